//! Connections of gRPC that do nothing.

use farcall::Server;
use farcall_suite::interop_proto::Empty;

use crate::service::{serve, until, within};

/// As many for their memory as 10,000 are for 256 MiB.
#[tokio::test]
async fn idle_connections_count_what_they_hold() {
    const MAX: u64 = 32 << 20;
    let count = usize::try_from(MAX * 10_000 / (256 << 20)).unwrap();
    let builder = Server::builder().max_memory(MAX).max_connections_per_peer(2_000);
    let running = serve(builder).await;
    let mut idle = Vec::new();
    for _ in 0..count {
        let raw = running.raw_client().await;
        // Acknowledged settings say that the connection is served.
        within(raw.sender.clone().ready()).await.unwrap();
        idle.push(raw);
    }
    within(until(|| running.grpc_connections() == count)).await;
    println!("{count} connections count {} bytes", running.server.memory_held());
    assert!(idle.iter().all(|raw| !raw.is_closed()));
    within(running.client().await.empty_call(Empty {})).await.expect("newcomers are served");
    drop(idle);
    within(until(|| running.server.memory_held() <= 2 * MAX / count as u64)).await;
}
