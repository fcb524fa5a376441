//! Orderly ends of servers.

use farcall::{Code, Response, Status};
use tokio::task::JoinHandle;

use super::echo::echo;
use crate::failure::{check_eq, refused};
use crate::harness::running::Running;
use crate::payload::{check_payload, payload};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{EchoReply, EchoRequest, ParkRequest, ProduceRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

/// More than any socket's buffers hold.
const LARGE_LEN: usize = 32 << 20;

/// A call whose handler has begun and waits at the gate.
async fn parked(
    server: &mut Running,
    stub: &ProbeStub,
    len: usize,
) -> Result<JoinHandle<Result<Response<EchoReply>, Status>>, Failure> {
    let stub = stub.clone();
    let answer = Some(ProduceRequest { seed: 1, len: len as u64 });
    let request = ParkRequest { tag: 1, answer, ..Default::default() };
    let call = tokio::spawn(async move { stub.park(request).await });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    Ok(call)
}

/// Calls until a call is refused, and gives its status.
async fn until_refused(stub: &ProbeStub) -> Status {
    loop {
        if let Err(status) = stub.echo(EchoRequest::default()).await {
            return status;
        }
    }
}

pub(super) async fn shutdown_finishes_what_is_in_flight(harness: &Harness) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    let call = parked(&mut server, &stub, 1000).await?;
    server.shut_down();
    let status = server.within("a refusal", until_refused(&stub)).await?;
    check_eq("the code of a later call", &status.code(), &Code::Unavailable)?;
    check_eq("an event of the call in flight", &server.watch().try_next(), &None)?;
    server.watch().open(1);
    let reply = call.await??.into_inner();
    check_payload("the answer", &reply.payload, &payload(1, 1000))?;
    server.stopped().await?;
    let status = refused("a call without a server", stub.echo(EchoRequest::default()).await)?;
    check_eq("the code of a call without a server", &status.code(), &Code::Unavailable)
}

/// An answer that the server has given away, and no network has taken yet, is not lost.
pub(super) async fn shutdown_delivers_a_large_answer_whole(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    let call = parked(&mut server, &stub, LARGE_LEN).await?;
    server.shut_down();
    server.watch().open(1);
    let reply = call.await??.into_inner();
    check_payload("the answer", &reply.payload, &payload(1, LARGE_LEN))?;
    server.stopped().await
}

/// Requests that the server reads no more must not take the last answer with them.
pub(super) async fn shutdown_delivers_a_large_answer_despite_new_calls(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    echo(&stub, 1, 100).await?;
    let call = parked(&mut server, &stub, LARGE_LEN).await?;
    let others: Vec<_> = (0..8)
        .map(|_| {
            let stub = stub.clone();
            tokio::spawn(async move { until_refused_for_good(&stub).await })
        })
        .collect();
    server.shut_down();
    server.watch().open(1);
    let reply = call.await??.into_inner();
    check_payload("the answer", &reply.payload, &payload(1, LARGE_LEN))?;
    server.stopped().await?;
    for other in others {
        let status = server.within("the last refusal", other).await??;
        check_eq("the code of the others", &status.code(), &Code::Unavailable)?;
    }
    Ok(())
}

/// Calls, refused or not, until no server accepts connections any more.
async fn until_refused_for_good(stub: &ProbeStub) -> Status {
    loop {
        let request = EchoRequest { payload: payload(1, 10_000), ..Default::default() };
        match stub.echo(request).await {
            Ok(_) => {}
            Err(status) if status.message().contains("shutting down") => {}
            Err(status) => return status,
        }
        tokio::task::yield_now().await;
    }
}
