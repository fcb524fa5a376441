//! The calls, so many at a time, and what is left when they have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall_testkit::calls::PayloadSource;
use farcall_testkit::counters::resident_kib;
use futures::future::try_join_all;

use super::call::{Caller, LEN_MAX};
use super::tally::Tally;
use farcall_suite::OneServer as _;
use farcall_suite::check;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::{Failure, Harness};

/// Of how many calls one is made before memory is measured for the first time. Pools and the
/// allocator reach their height late, since that takes many large messages at the same moment.
const WARM_UP_SHARE: u64 = 2;

/// The amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Calls in all.
    pub calls: u64,
    /// Calls at a time, at most.
    pub in_flight: usize,
    /// Seed of the calls.
    pub seed: u64,
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Ends of the calls, those of the warm-up included.
    pub tally: Tally,
    /// The process's memory after the first half of the calls, in KiB.
    pub resident_first_kib: u64,
    /// The process's memory after all calls, in KiB.
    pub resident_last_kib: u64,
}

/// Makes the calls of a plan over one connection.
///
/// # Errors
///
/// Returns an error if a call ends in a way that nothing explains, or does not end, or if a table
/// on either side is not empty afterwards.
///
/// # Cancel safety
///
/// Cancelled, the calls in flight are cancelled.
pub async fn soak(harness: &Harness, plan: Plan) -> Result<Report, Failure> {
    let server = harness.serve().await?;
    let channel = server.channel().await?;
    let payloads = PayloadSource::new(plan.seed, LEN_MAX);
    let caller = |worker: usize| Caller {
        stub: ProbeStub::new(channel.clone()),
        payloads: payloads.with_seed(plan.seed.wrapping_add(worker as u64)),
    };
    let mut callers: Vec<_> = (0..plan.in_flight).map(caller).collect();
    let warm_up = plan.calls / WARM_UP_SHARE;
    let mut tally = Tally::default();
    callers = calls(callers, warm_up, &mut tally, harness).await?;
    let resident_first_kib = resident_kib()?;
    calls(callers, plan.calls - warm_up, &mut tally, harness).await?;
    server
        .until("the end of every call on both sides", |server| {
            let client = channel.info().map_or(0, |info| info.calls_in_flight);
            client == 0 && server.connections().iter().all(|info| info.calls_in_flight == 0)
        })
        .await?;
    check(tally.total() == plan.calls, "the calls that ended", tally.total())?;
    Ok(Report { tally, resident_first_kib, resident_last_kib: resident_kib()? })
}

/// Makes `count` calls, and gives the callers back.
async fn calls(
    callers: Vec<Caller>,
    count: u64,
    tally: &mut Tally,
    harness: &Harness,
) -> Result<Vec<Caller>, Failure> {
    let left = Arc::new(AtomicU64::new(count));
    let workers = callers.into_iter().map(|caller| {
        let left = Arc::clone(&left);
        let limit = harness.limit();
        tokio::spawn(async move { work(caller, &left, limit).await })
    });
    let mut callers = Vec::new();
    for worked in try_join_all(workers).await? {
        let (caller, mine) = worked?;
        tally.merge(&mine);
        callers.push(caller);
    }
    Ok(callers)
}

/// Makes calls one after the other, as long as any are left.
async fn work(
    mut caller: Caller,
    left: &AtomicU64,
    limit: std::time::Duration,
) -> Result<(Caller, Tally), Failure> {
    let mut tally = Tally::default();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
        let ended = tokio::time::timeout(limit, caller.call()).await;
        check(ended.is_ok(), "a call that ends in time", limit)?;
        if let Ok(ended) = ended {
            let (kind, how) = ended?;
            tally.add(kind, how);
        }
    }
    Ok((caller, tally))
}
