//! Handlers that panic.

use farcall::Code;

use super::echo::echo;
use crate::failure::{check_eq, refused};
use crate::proto::{EchoRequest, ParkRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

pub(super) async fn a_panic_ends_its_own_call_only(harness: &Harness) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    let neighbour = stub.clone();
    let request = ParkRequest { tag: 1, ..Default::default() };
    let neighbour = tokio::spawn(async move { neighbour.park(request).await });
    check_eq("the neighbour", &server.event().await?, &WatchEvent::Entered(1))?;
    let status = refused("a handler that panics", stub.panic(EchoRequest::default()).await)?;
    check_eq("the code", &status.code(), &Code::Internal)?;
    echo(&stub, 1, 100).await?;
    server.watch().open(1);
    neighbour.await??;
    check_eq("the connections", &server.connections().len(), &1)
}
