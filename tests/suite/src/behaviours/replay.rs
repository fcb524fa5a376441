//! Calls in flight on a connection that ends under them, with another server in place.

use farcall::{Code, MayHaveExecuted, NotExecuted, Response, Server};

use super::handover::{Serving, SharedPlace};
use crate::failure::{check, check_eq, refused};
use crate::harness::place::connect;
use crate::payload::check_payload;
use crate::proto::probe_rpc::{ProbeService, ProbeStub};
use crate::proto::{ParkRequest, ProduceRequest};
use crate::{Failure, Harness, Probe, payload};
use farcall_probe::watch::{Watch, WatchEvent};

const UNARY: u64 = 1;
const STREAM: u64 = 2;
const NOT_IDEMPOTENT: u64 = 3;

/// The length of an answer, and of each request: both are large.
const LEN: usize = 300_000;

fn request(tag: u64) -> ParkRequest {
    let answer = Some(ProduceRequest { seed: tag, len: LEN as u64 });
    ParkRequest { tag, answer, payload: payload(tag, LEN) }
}

/// Waits until handlers of all those calls have begun, in any order.
async fn all_entered(
    harness: &Harness,
    watch: &mut Watch,
    mut tags: Vec<u64>,
) -> Result<(), Failure> {
    while !tags.is_empty() {
        let event = harness.within("a handler that begins", watch.next()).await?;
        let before = tags.len();
        tags.retain(|&tag| event != Some(WatchEvent::Entered(tag)));
        check(tags.len() < before, "a handler that begins", event)?;
    }
    Ok(())
}

pub(super) async fn idempotent_calls_are_replayed_when_their_connection_dies(
    harness: &Harness,
) -> Result<(), Failure> {
    let (place, address) = harness.place().await?;
    let serve = |probe| {
        let builder = harness.rules().settings.server(Server::builder());
        builder.add_service(ProbeService::new(probe)).build()
    };
    let ((first, mut first_watch), (second, mut second_watch)) = (Probe::new(), Probe::new());
    let (first, second) = (serve(first), serve(second));
    let shared = SharedPlace::new(place);
    let first = Serving::start(&first, &shared);
    let stub = ProbeStub::new(connect(harness.path(), &address, &harness.rules()).await?);
    let (unary, stream, other) = (stub.clone(), stub.clone(), stub.clone());
    let unary = tokio::spawn(async move { unary.wait(request(UNARY)).await });
    let stream = tokio::spawn(async move { stream.follow(request(STREAM)).await });
    let other = tokio::spawn(async move { other.park(request(NOT_IDEMPOTENT)).await });
    let tags = vec![UNARY, STREAM, NOT_IDEMPOTENT];
    all_entered(harness, &mut first_watch, tags).await?;
    let second = Serving::start(&second, &shared);
    first.abort();

    let ended = harness.within("the end of the other call", other).await??;
    let status = refused("a call that is not idempotent", ended)?;
    check_eq("its code", &status.code(), &Code::Unavailable)?;
    check(MayHaveExecuted::matches(&status), "the mark that it may have been", &status)?;
    check(!NotExecuted::matches(&status), "the mark that it was not", &status)?;

    all_entered(harness, &mut second_watch, vec![UNARY, STREAM]).await?;
    second_watch.open(2);
    let reply = harness.within("the answer", unary).await??.map(Response::into_inner)?;
    check_payload("the answer", &reply.payload, &payload(UNARY, LEN))?;
    let mut stream = harness.within("the stream", stream).await??.map(Response::into_inner)?;
    let message = harness.within("its message", stream.message()).await??.unwrap_or_default();
    check_payload("its message", &message.payload, &payload(STREAM, LEN))?;
    let end = harness.within("its end", stream.message()).await??;
    check(end.is_none(), "the end of the stream", end)?;
    drop((stream, stub));
    harness.within("the end of the server", second.stop()).await?
}
