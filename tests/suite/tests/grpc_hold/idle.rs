//! Connections of gRPC that do nothing.

use std::time::Duration;

use farcall::{Keepalive, Server};
use farcall_suite::interop_proto::Empty;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::service::{framed, outcome, serve, until, within};

/// The number of connections is to their memory limit like 10,000 to 256 MiB.
#[tokio::test]
async fn idle_connections_count_what_they_hold() {
    const MAX: u64 = 32 << 20;
    let count = usize::try_from(MAX * 10_000 / (256 << 20)).unwrap();
    let builder = Server::builder().max_memory(MAX).max_connections_per_peer(2_000);
    let running = serve(builder).await;
    let mut idle = Vec::new();
    for number in 0..count {
        // Eight of an address are within its floor, which the whole budget serves.
        let [.., high, low] = u32::try_from(number / 8 + 1).unwrap().to_be_bytes();
        let raw = running.raw_client_from([127, 1, high, low].into()).await;
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

/// A client that answers pings stays, and one that does not is found.
#[tokio::test]
async fn a_client_that_answers_no_pings_is_found() {
    let keepalive = Keepalive::new(Duration::from_millis(100), Duration::from_millis(400));
    let running = serve(Server::builder().keepalive(keepalive)).await;
    let raw = running.raw_client().await;
    for _ in 0..3 {
        let mut gone = within(TcpStream::connect(&running.authority)).await.unwrap();
        gone.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let mut rest = Vec::new();
        let _ = within(gone.read_to_end(&mut rest)).await;
        // A frame of 8 bytes on the connection, with no flags.
        assert!(rest.windows(9).any(|it| it == b"\0\0\x08\x06\0\0\0\0\0"), "it was asked");
    }
    assert!(!raw.is_closed());
    let (answer, mut requests) = raw.call("EmptyCall").await;
    requests.send_data(framed(&Empty {}), true).unwrap();
    assert_eq!(outcome(answer).await.unwrap().0, 0);
}
