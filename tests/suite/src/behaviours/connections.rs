//! Connections and how they end.

use futures::future::try_join_all;

use super::echo::echo;
use crate::failure::{check, check_eq};
use crate::harness::running::Running;
use crate::proto::ParkRequest;
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

const CONNECTION_COUNT: u64 = 64;

pub(super) async fn dropping_the_channel_closes_the_connection(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = server.stub().await?;
    let clone = stub.clone();
    echo(&stub, 1, 1 << 20).await?;
    drop(stub);
    echo(&clone, 2, 100).await?;
    server.until("the connection", |server| server.connections().len() == 1).await?;
    let infos = server.connections();
    check_eq("its transport", &infos[0].transport, &harness.path().name())?;
    drop(clone);
    server.until("the connection's end", |server| server.connections().is_empty()).await
}

/// The one is parked while the other calls: neither waits for the other.
pub(super) async fn two_clients_are_served_at_once(harness: &Harness) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let (one, other) = (server.stub().await?, server.stub().await?);
    let request = ParkRequest { tag: 1, ..Default::default() };
    let parked = one.clone();
    let parked = tokio::spawn(async move { parked.park(request).await });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    let calls = |stub, seed| async move {
        for number in 0..20_u16 {
            echo(stub, seed + u64::from(number), 1 + 5000 * usize::from(number)).await?;
        }
        Ok::<_, Failure>(())
    };
    futures::try_join!(calls(&one, 100), calls(&other, 200))?;
    server.watch().open(1);
    parked.await??;
    Ok(())
}

pub(super) async fn sixty_four_connections_are_served(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let mut stubs = Vec::new();
    for _ in 0..CONNECTION_COUNT {
        stubs.push(server.stub().await?);
    }
    // A client may be told of its connection before the server has it in its list.
    let all = |server: &Running| server.connections().len() as u64 == CONNECTION_COUNT;
    server.until("the last of the connections", all).await?;
    let calls = stubs.iter().zip(0..).map(|(stub, number)| async move {
        echo(stub, number, 100).await?;
        echo(stub, CONNECTION_COUNT + number, 200_000).await
    });
    try_join_all(calls).await?;
    let infos = server.connections();
    check(infos.iter().all(|info| info.fallback.is_none()), "connections that fell back", &infos)?;
    drop(stubs);
    server.until("the connections' end", |server| server.connections().is_empty()).await
}
