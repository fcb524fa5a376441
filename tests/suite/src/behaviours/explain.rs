//! Accounts of calls: stages that sum to the whole, protocol, copies and attempts.

use std::time::Duration;

use farcall::{CallExplanation, CallStage, Code, Explain, Request, Trailers};

use crate::failure::{check, check_eq, refused};
use crate::payload::payload;
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{EchoRequest, FailRequest, ParkRequest, ReflectRequest};
use crate::{Failure, Harness, Path, Running};
use farcall_probe::entries::{entries, metadata, sample, sorted};
use farcall_probe::watch::WatchEvent;

/// Longer than what any transport takes for small.
const LARGE: usize = 1 << 20;

/// Makes a request that asks for an account.
fn explained<T>(message: T) -> (Request<T>, Explain) {
    let (explain, mut request) = (Explain::new(), Request::new(message));
    request.extensions_mut().insert(explain.clone());
    (request, explain)
}

/// Checks what holds for the account of every call that was answered.
fn check_account(
    harness: &Harness,
    server: &Running,
    account: &CallExplanation,
) -> Result<(), Failure> {
    let sum: Duration = account.stages.iter().map(|(_, time)| *time).sum();
    check_eq("the sum of the stages", &sum, &account.total)?;
    check(account.stages.is_sorted_by_key(|(stage, _)| *stage), "their order", &account.stages)?;
    let measured = [
        CallStage::Queue,
        CallStage::Encode,
        CallStage::Post,
        CallStage::Wire,
        CallStage::ServerQueue,
        CallStage::Handler,
        CallStage::Delivery,
        CallStage::Decode,
    ];
    let is_measured = |stage| account.stage(stage).is_some();
    check(measured.into_iter().all(is_measured), "every stage", &account.stages)?;
    check_eq("a stage of old servers", &is_measured(CallStage::Remote), &false)?;
    let waits_for_credits = harness.path().name() == "rdma";
    check_eq("a wait for credits", &is_measured(CallStage::Credit), &waits_for_credits)?;
    check_eq("the attempts", &account.attempts, &1)?;
    let endpoint = account.endpoint.as_deref().unwrap_or_default();
    check(server.address().ends_with(endpoint), "the server", endpoint)?;
    let transport = account.connection.as_ref().map(|info| info.transport);
    check_eq("the transport", &transport, &Some(harness.path().name()))
}

async fn echo(stub: &ProbeStub, len: usize) -> Result<CallExplanation, Failure> {
    let (request, explain) =
        explained(EchoRequest { payload: payload(1, len), tail: [][..].into() });
    stub.echo(request).await?;
    Ok(explain.explanation())
}

pub(super) async fn small_and_large_calls_are_explained(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = server.stub().await?;
    for (len, is_large) in [(10, false), (LARGE, true)] {
        // Compressed, the large message may be a small one.
        if is_large && *harness.path() == Path::Compressed {
            continue;
        }
        let account = echo(&stub, len).await?;
        check_account(harness, &server, &account)?;
        for frame in [account.request, account.reply] {
            let found = frame.map(|frame| (frame.is_large, frame.len > len as u64));
            check_eq("the frame", &found, &Some((is_large, true)))?;
            let name = frame.map_or("", |frame| frame.protocol_name());
            let names = match harness.path().name() {
                "rdma" => ["SEND", "READ"],
                "inproc" => ["whole", "announced"],
                _ => ["one record", "pieces"],
            };
            check_eq("its protocol", &name, &names[usize::from(is_large)])?;
        }
        let transfers = account.stage(CallStage::Transfer).is_some();
        check_eq("a transfer", &transfers, &is_large)?;
        check(account.copied_bytes.is_some(), "the bytes copied", account.copied_bytes)?;
        let line = account.to_string();
        check(line.contains(" us: queue ") && line.contains(" handler "), "the line", &line)?;
    }
    Ok(())
}

pub(super) async fn failed_and_cancelled_calls_are_explained(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve().await?;
    let stub = server.stub().await?;
    let message = "no\u{1b}[2J".to_owned();
    let code = Code::NotFound as i32;
    let (request, explain) = explained(FailRequest { code, message, ..Default::default() });
    let status = refused("a call that fails", stub.fail(request).await)?;
    check_eq("the metadata", &entries(status.metadata())?, &Vec::new())?;
    let account = explain.explanation();
    check_account(harness, &server, &account)?;
    let failed = [(Code::NotFound, "no\\u{1b}[2J".to_owned())];
    check_eq("the failed attempt", &account.failed[..], &failed)?;
    let (request, explain) = explained(ParkRequest { tag: 1, ..Default::default() });
    let parked = tokio::spawn({
        let stub = stub.clone();
        async move { stub.park(request).await }
    });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(1))?;
    parked.abort();
    drop(parked.await);
    let account = explain.explanation();
    let sum: Duration = account.stages.iter().map(|(_, time)| *time).sum();
    check_eq("the sum of the stages so far", &sum, &account.total)?;
    check_eq("the time of a handler that runs on", &account.stage(CallStage::Handler), &None)?;
    check_eq("the failed attempts of a dropped call", &account.failed, &Vec::new())
}

pub(super) async fn an_account_changes_nothing_that_handler_or_caller_sees(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = server.stub().await?;
    for (as_trailers, sent) in [(false, sample()), (true, sample()), (true, Vec::new())] {
        let (mut request, explain) = explained(ReflectRequest { as_trailers });
        *request.metadata_mut() = metadata(&sent)?;
        let reply = stub.reflect(request).await?;
        check_eq("the metadata", &sorted(entries(reply.metadata())?), &sorted(sent.clone()))?;
        let trailers = reply.extensions().get::<Trailers>();
        check_eq("trailers", &trailers.is_some(), &(as_trailers && !sent.is_empty()))?;
        check_eq("what the handler saw", &sorted(reply.into_inner().entries), &sorted(sent))?;
        check_account(harness, &server, &explain.explanation())?;
    }
    Ok(())
}
