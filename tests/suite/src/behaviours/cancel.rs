//! Calls that are given up, at any moment.

use std::time::Duration;

use farcall::Channel;
use futures::FutureExt;

use super::echo::echo;
use crate::failure::check_eq;
use crate::harness::running::Running;
use crate::payload::{check_payload, payload};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{EchoRequest, ParkRequest, ProduceRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

/// Drops calls that are on their way; every one of their moments is some round's.
const ROUND_COUNT: usize = 60;

/// The largest payload of a call that is given up.
const LARGE_LEN_MAX: usize = 3 << 20;

pub(super) async fn dropping_a_call_drops_its_handler_and_harms_no_other(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let park = |tag| {
        let (stub, answer) = (stub.clone(), Some(ProduceRequest { seed: tag, len: 1000 }));
        async move { stub.park(ParkRequest { tag, answer, ..Default::default() }).await }
    };
    let neighbour = tokio::spawn(park(1));
    check_eq("the neighbour", &server.event().await?, &WatchEvent::Entered(1))?;
    let given_up = tokio::spawn(park(2));
    check_eq("the call to give up", &server.event().await?, &WatchEvent::Entered(2))?;
    given_up.abort();
    check_eq("the call given up", &server.event().await?, &WatchEvent::Dropped(2))?;
    echo(&stub, 1, 100).await?;
    server.watch().open(1);
    let reply = neighbour.await??.into_inner();
    check_payload("the neighbour's answer", &reply.payload, &payload(1, 1000))
}

pub(super) async fn large_requests_are_cancelled_at_any_moment(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = server.stub().await?;
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..ROUND_COUNT {
        let request =
            EchoRequest { payload: payload(7, rng.usize(1..LARGE_LEN_MAX)), ..Default::default() };
        let call = stub.echo(request);
        give_up(call, &mut rng).await;
        follow(&stub, round).await?;
    }
    settled(&server, stub).await
}

pub(super) async fn large_responses_are_cancelled_at_any_moment(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve().await?;
    let stub = server.stub().await?;
    let mut rng = fastrand::Rng::with_seed(2);
    for round in 0..ROUND_COUNT {
        let call = stub.produce(ProduceRequest { seed: 7, len: rng.u64(1..LARGE_LEN_MAX as u64) });
        give_up(call, &mut rng).await;
        follow(&stub, round).await?;
    }
    settled(&server, stub).await
}

/// Polls a call for a random while, and drops it. Some have ended by then.
async fn give_up(call: impl Future, rng: &mut fastrand::Rng) {
    let mut call = Box::pin(call);
    match rng.u8(0..3) {
        // At once, after its first poll.
        0 => drop(call.as_mut().now_or_never()),
        // After some turns of the scheduler.
        1 => {
            for _ in 0..rng.usize(0..200) {
                if call.as_mut().now_or_never().is_some() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
        // After some time.
        _ => drop(tokio::time::timeout(Duration::from_micros(rng.u64(0..5000)), call).await),
    }
}

/// A call right behind one that was given up.
async fn follow(stub: &ProbeStub<Channel>, round: usize) -> Result<(), Failure> {
    let len = if round.is_multiple_of(10) { 1 << 20 } else { 1 + round * 37 };
    echo(stub, 1000 + round as u64, len).await
}

/// After all that, the connection is still the first, and it still carries large calls.
async fn settled(server: &Running, stub: ProbeStub<Channel>) -> Result<(), Failure> {
    check_eq("the connections", &server.connections().len(), &1)?;
    echo(&stub, 99, 8 << 20).await?;
    drop(stub);
    server.until("the connection's end", |server| server.connections().is_empty()).await
}
