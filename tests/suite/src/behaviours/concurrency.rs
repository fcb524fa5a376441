//! Many calls on one connection.

use std::collections::HashSet;

use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt};

use super::echo::echo;
use crate::failure::check_eq;
use crate::payload::{check_payload, payload};
use crate::proto::{ParkRequest, ProduceRequest};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

const CALL_COUNT: u16 = 256;

/// A size that depends on the call: most are small, some are large on every transport.
fn mixed_len(number: u64) -> usize {
    let mut rng = fastrand::Rng::with_seed(number);
    match number % 8 {
        0 => rng.usize(100_000..400_000),
        1 | 2 => rng.usize(3_000..70_000),
        _ => rng.usize(0..3_000),
    }
}

pub(super) async fn each_of_256_mixed_calls_gets_its_own_answer(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let calls = (0..CALL_COUNT).map(u64::from).map(|number| echo(&stub, number, mixed_len(number)));
    try_join_all(calls).await?;
    Ok(())
}

/// All handlers have begun before the first answers, so all calls are in flight at once.
pub(super) async fn calls_in_flight_are_answered_in_any_order(
    harness: &Harness,
) -> Result<(), Failure> {
    let mut server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let call = |tag: u64| {
        let stub = stub.clone();
        async move {
            let len = mixed_len(tag);
            let answer = Some(ProduceRequest { seed: tag, len: len as u64 });
            let reply = stub.park(ParkRequest { tag, answer, ..Default::default() }).await?;
            check_payload("the answer", &reply.into_inner().payload, &payload(tag, len))
        }
    };
    let mut calls: FuturesUnordered<_> =
        (0..CALL_COUNT).map(|tag| tokio::spawn(call(tag.into()))).collect();
    let mut entered = HashSet::new();
    while entered.len() < usize::from(CALL_COUNT) {
        match server.event().await? {
            WatchEvent::Entered(tag) => entered.insert(tag),
            other => return check_eq("an event before the gate is open", &Some(other), &None),
        };
    }
    server.watch().open(CALL_COUNT.into());
    while let Some(ended) = calls.next().await {
        ended??;
    }
    Ok(())
}

/// A large answer that is on its way holds up no small call for ever.
pub(super) async fn small_calls_pass_while_large_ones_are_on_their_way(
    harness: &Harness,
) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let stub = server.probe().await?;
    let large = try_join_all((0..4).map(|number| echo(&stub, number, 4 << 20)));
    let small = try_join_all((0..64).map(|number| echo(&stub, 100 + number, 64)));
    futures::try_join!(large, small)?;
    Ok(())
}
