//! Servers that go away, and come back.

use std::time::Duration;

use farcall::{Code, Status};

use super::echo::echo;
use crate::failure::{check, check_eq, refused};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{EchoRequest, ParkRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

pub(super) async fn a_client_reconnects_to_a_server_that_came_back(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let channel = server.channel().await?;
    let stub = ProbeStub::new(channel.clone());
    echo(&stub, 1, 100).await?;
    server.shut_down();
    server.stopped().await?;
    let status = refused("a call without a server", stub.echo(EchoRequest::default()).await)?;
    check_eq("the code of a call without a server", &status.code(), &Code::Unavailable)?;
    server.start_again(harness).await?;
    let refusals = server.within("an answer of the new server", until_answered(&stub)).await?;
    for status in refusals {
        check_eq("the code until then", &status.code(), &Code::Unavailable)?;
    }
    server.check_transport(&channel)?;
    echo(&stub, 2, 1 << 20).await
}

/// Between two calls. The channel backs off, so that most of them make no attempt to connect.
const CALL_INTERVAL: Duration = Duration::from_millis(10);

/// Calls until a call is answered, and gives the statuses before that.
async fn until_answered(stub: &ProbeStub) -> Vec<Status> {
    let mut refusals = Vec::new();
    while let Err(status) = stub.echo(EchoRequest::default()).await {
        refusals.push(status);
        tokio::time::sleep(CALL_INTERVAL).await;
    }
    refusals
}

/// A server that stops being polled closes its connections; the calls end in the open.
pub(super) async fn a_server_that_is_aborted_fails_the_calls_in_flight(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    let call = stub.clone();
    let request = ParkRequest { tag: 1, ..Default::default() };
    let call = tokio::spawn(async move { call.park(request).await });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    server.abort();
    let ended = server.within("the end of the call", call).await??;
    let status = refused("a call to a server that is gone", ended)?;
    check_eq("the code", &status.code(), &Code::Unavailable)?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Dropped(1))?;
    let again = stub.echo(EchoRequest::default()).await;
    check(again.is_err(), "a call without a server", again)
}
