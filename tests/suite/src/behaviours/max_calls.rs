//! The limit on calls in flight, which makes callers wait and never fails them.

use std::collections::HashSet;

use farcall::{Limits, Response, Status};
use futures::future::try_join_all;
use tokio::task::JoinHandle;

use super::echo::echo;
use crate::failure::{check, check_eq};
use crate::proto::probe_rpc::ProbeStub;
use crate::proto::{EchoReply, ParkRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

const CALLS_MAX: u32 = 4;
const CALL_COUNT: u64 = 20;

fn limits() -> Limits {
    Harness::limits().with_max_calls(CALLS_MAX)
}

fn park(stub: &ProbeStub, tag: u64) -> JoinHandle<Result<Response<EchoReply>, Status>> {
    let stub = stub.clone();
    tokio::spawn(async move { stub.park(ParkRequest { tag, ..Default::default() }).await })
}

pub(super) async fn calls_over_the_limit_wait_for_their_turn(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_under(limits()).await?;
    let stub = server.stub().await?;
    let calls: Vec<_> = (0..CALL_COUNT).map(|tag| park(&stub, tag)).collect();
    let mut inside = HashSet::new();
    let mut answered_count = 0;
    while answered_count < CALL_COUNT {
        match server.event().await? {
            WatchEvent::Entered(tag) => {
                inside.insert(tag);
                check(inside.len() <= CALLS_MAX as usize, "the handlers at once", inside.len())?;
                // Only a full house is let go, so that the limit is reached each time.
                let is_full = inside.len() == CALLS_MAX as usize;
                server.watch().open(if is_full { CALLS_MAX as usize } else { 0 });
            }
            WatchEvent::Answered(tag) => {
                check(inside.remove(&tag), "a handler that never began", tag)?;
                answered_count += 1;
            }
            dropped @ WatchEvent::Dropped(_) => check(false, "no call is given up", dropped)?,
        }
    }
    for call in try_join_all(calls).await? {
        call?;
    }
    Ok(())
}

pub(super) async fn a_call_that_waits_for_its_turn_can_be_given_up(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_under(limits()).await?;
    let stub = server.stub().await?;
    let calls: Vec<_> = (0..u64::from(CALLS_MAX)).map(|tag| park(&stub, tag)).collect();
    for _ in 0..CALLS_MAX {
        let event = server.event().await?;
        check(matches!(event, WatchEvent::Entered(_)), "an event while the gate is shut", event)?;
    }
    {
        let mut waiting = Box::pin(stub.park(ParkRequest { tag: 99, ..Default::default() }));
        check(futures::poll!(&mut waiting).is_pending(), "a call over the limit", ())?;
    }
    server.watch().open(CALLS_MAX as usize);
    for call in try_join_all(calls).await? {
        call?;
    }
    echo(&stub, 1, 100).await?;
    for _ in 0..CALLS_MAX {
        let event = server.event().await?;
        check(matches!(event, WatchEvent::Answered(_)), "an event after the gate is open", event)?;
    }
    check_eq("an event of the call given up", &server.watch().try_next(), &None)
}
