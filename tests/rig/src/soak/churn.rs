//! Connections that come and go for a set time, with calls of all kinds over them, many of which
//! are given up.
//!
//! The time goes in rounds. In a round some workers connect, make calls, and let go of the
//! connection, now and then amid its calls; now and then with devices of their own, so that these
//! come and go too. Between two rounds there is no connection, and everything that belongs to one
//! has to be gone: that is waited for, and then the process is looked at.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farcall::{Channel, Status};
use farcall_testkit::calls::PayloadSource;
use futures::future::try_join_all;
use tokio::task::JoinSet;

use super::call::{Caller, LEN_MAX};
use super::flatness::{complaints, growth_kib};
use super::holdings::Holdings;
use super::tally::Tally;
use farcall_suite::Rules;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::{Failure, Harness, Running};

/// The first look: from then on what belongs to connections must come back to what it was.
const FIRST_LOOK: usize = 0;

/// Workers, each with a connection at a time.
const WORKERS: u64 = 8;

/// Callers on one connection, each with a call at a time.
const CALLERS: u64 = 6;

/// The most calls of one caller before its connection goes.
const CALLS_MAX: u64 = 30;

/// A connection that is let go amid its calls is so after this at the latest.
const LIFE_MAX_US: u64 = 50_000;

/// One of so many connections is let go amid its calls, and one has devices of its own.
const ABANDONED_SHARE: u64 = 4;
const OWN_DEVICES_SHARE: u64 = 16;

/// Between two looks at what has to become as it was.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The length of a churn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChurnPlan {
    /// The time of all rounds together.
    pub length: Duration,
    /// Maximum number of rounds.
    pub rounds: u32,
    /// Seed of everything.
    pub seed: u64,
}

/// The result of a churn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Churn {
    /// Ends of calls that were not dropped with their connection.
    pub tally: Tally,
    /// Connections that were made.
    pub connections: u64,
    /// Of those, how many were let go of amid their calls.
    pub abandoned: u64,
    /// Connections that could not be made, and calls that ended as nothing explains, as messages.
    pub failures: Vec<String>,
    /// A look after each round.
    pub looks: Vec<Holdings>,
}

impl Churn {
    fn merge(&mut self, other: Self) {
        self.tally.merge(&other.tally);
        self.connections += other.connections;
        self.abandoned += other.abandoned;
        self.failures.extend(other.failures);
    }

    /// Growth of memory in the last third of the rounds, in KiB; negative when there is less.
    #[must_use]
    pub fn growth_kib(&self) -> i64 {
        growth_kib(&self.looks)
    }

    /// Returns the violations.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        self.failures.iter().cloned().chain(complaints(&self.looks)).collect()
    }
}

/// Goes through the rounds of a plan, and tells of each by `tell`.
///
/// # Errors
///
/// Returns an error if a connection leaves something behind, or a call does not end.
///
/// # Cancel safety
///
/// Cancelled, the connections are closed.
pub async fn churn(
    harness: &Harness,
    plan: ChurnPlan,
    mut tell: impl FnMut(&Churn),
) -> Result<Churn, Failure> {
    let server = Arc::new(harness.serve().await?);
    let shared = harness.rules();
    let payloads = PayloadSource::new(plan.seed, LEN_MAX);
    let mut all = Churn::default();
    let started = Instant::now();
    // On a slow machine rounds end late, and there are fewer of them.
    for round in 0_u64.. {
        if started.elapsed() >= plan.length {
            break;
        }
        let until = Instant::now() + plan.length / plan.rounds;
        let workers = (0..WORKERS).map(|worker| {
            let seed = (plan.seed << 32) + round * WORKERS + worker;
            let worker = Worker {
                address: server.address().to_owned(),
                shared: shared.clone(),
                own: harness.rules(),
                payloads: payloads.with_seed(seed),
                limit: harness.limit(),
            };
            tokio::spawn(worker.run(until))
        });
        for worked in try_join_all(workers).await? {
            all.merge(worked);
        }
        let before = all.looks.get(FIRST_LOOK).cloned();
        all.looks.push(look(&server, harness, before).await?);
        tell(&all);
    }
    Ok(all)
}

/// Waits until nothing of any connection is left, and looks.
async fn look(
    server: &Running,
    harness: &Harness,
    before: Option<Holdings>,
) -> Result<Holdings, Failure> {
    let idle = |server: &Running| server.connections().is_empty();
    server.until("the end of the server's connections", idle).await?;
    let mut now = Holdings::read(harness.path())?;
    let settling = async {
        loop {
            // The first time, what is there is what was closed last: it has a moment to go.
            tokio::time::sleep(LOOK_INTERVAL).await;
            let next = Holdings::read(harness.path())?;
            let settled = before.as_ref().unwrap_or(&now).without_memory() == next.without_memory();
            now = next;
            if settled {
                return Ok::<_, Failure>(());
            }
        }
    };
    let settled = harness.within("the end of what connections had", settling).await;
    if settled.is_err() {
        println!("  {now} are left, and not what there was: {before:?}");
    }
    settled??;
    Ok(now)
}

/// Makes connections one after the other.
struct Worker {
    address: String,
    /// The rules of most connections, which share their devices.
    shared: Rules,
    own: Rules,
    payloads: PayloadSource,
    limit: Duration,
}

impl Worker {
    async fn run(mut self, until: Instant) -> Churn {
        let mut seen = Churn::default();
        while Instant::now() < until {
            let is_own = self.payloads.random.u64(..OWN_DEVICES_SHARE) == 0;
            let Rules { settings, rdma } = if is_own { &self.own } else { &self.shared };
            let builder = Channel::builder(&self.address).expect("the server has said it");
            match settings.channel(builder).rdma(rdma).connect().await {
                Ok(channel) => {
                    seen.connections += 1;
                    self.use_up(ProbeStub::new(channel), &mut seen).await;
                }
                Err(error) => seen.failures.push(format!("no connection: {error}")),
            }
        }
        seen
    }

    /// Makes calls over a connection, and lets it go.
    async fn use_up(&mut self, stub: ProbeStub, seen: &mut Churn) {
        let mut calling = JoinSet::new();
        for _ in 0..CALLERS {
            let seed = self.payloads.random.u64(..);
            let caller = Caller { stub: stub.clone(), payloads: self.payloads.with_seed(seed) };
            let count = self.payloads.random.u64(..CALLS_MAX);
            calling.spawn(call(caller, count, self.limit));
        }
        drop(stub);
        if self.payloads.random.u64(..ABANDONED_SHARE) == 0 {
            seen.abandoned += 1;
            let life_us = self.payloads.random.u64(..LIFE_MAX_US);
            tokio::time::sleep(Duration::from_micros(life_us)).await;
            calling.abort_all();
        }
        while let Some(called) = calling.join_next().await {
            match called {
                Ok((tally, failure)) => {
                    seen.tally.merge(&tally);
                    seen.failures.extend(failure);
                }
                Err(error) if error.is_cancelled() => {}
                Err(error) => seen.failures.push(error.to_string()),
            }
        }
    }
}

/// Makes calls one after the other, up to one that ends as nothing explains.
async fn call(mut caller: Caller, count: u64, limit: Duration) -> (Tally, Option<String>) {
    let mut tally = Tally::default();
    for _ in 0..count {
        match tokio::time::timeout(limit, caller.call()).await {
            Ok(Ok((kind, ended))) => tally.add(kind, ended),
            Ok(Err(status)) => return (tally, Some(failure(&status))),
            Err(_) => return (tally, Some(format!("a call did not end within {limit:?}"))),
        }
    }
    (tally, None)
}

fn failure(status: &Status) -> String {
    format!("a call ended with {:?}: {}", status.code(), status.message())
}
