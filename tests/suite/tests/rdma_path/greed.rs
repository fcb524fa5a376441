//! Greedy clients share a receive queue equally, keep no other client out, and break nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;
use futures::future::try_join_all;
use rpc_transport_rdma::testing::jain;

use crate::rig::{Rig, Serving, connect, devices, echo, within, within_limit};

/// Calls that each client keeps in flight: twice the largest window.
const IN_FLIGHT: u64 = 64;

/// Calls of one measurement, of all clients together, unless `FARCALL_GREED_CALLS` says how many.
/// With eight clients a third of them is in flight when the last one starts.
const CALLS: u64 = 1500;

/// Numbers of clients at a time. One round goes through them in this order and the next in reverse,
/// because the machine's other load changes all the time.
const STAGES: [usize; 4] = [1, 2, 4, 8];

/// The bound on a round, which is a measurement for each number of clients: more than it takes.
const ROUND_LIMIT: Duration = Duration::from_secs(240);

/// Rounds, unless `FARCALL_GREED_ROUNDS` says how many.
const ROUNDS: usize = 3;

/// Bytes each way: one message each.
const LEN: usize = 500;

/// The least that Jain's index of the clients' shares in all rounds together may be: a few hundred
/// calls each, of which a round ends with 64 under way, say little alone. It is 1 when all are
/// equal; with one client of eight left out it is 0.875.
const FAIRNESS_MIN: f64 = 0.9;

/// Says the least that the median of the rounds' goodput may be, for where calls a second repeat:
/// in a virtual machine whose time counts instructions.
const GOODPUT_MIN_VARIABLE: &str = "FARCALL_GREED_GOODPUT_MIN";

pub(crate) fn eight_greedy_clients(rig: &Rig) -> Result<(), Failure> {
    let rounds = number("FARCALL_GREED_ROUNDS", ROUNDS);
    let calls = number("FARCALL_GREED_CALLS", CALLS);
    rig.run(async {
        let server = rig.serve(Default::default()).await?;
        let (mut stubs, mut devices_of_clients) = (Vec::new(), Vec::new());
        for _ in 0..STAGES[STAGES.len() - 1] {
            // Each has a lane of its own, as if it were another process.
            let rdma = devices(Default::default());
            stubs.push(ProbeStub::new(connect(&server.authority, &rdma).await?));
            devices_of_clients.push(rdma);
        }
        // Windows grow, and memory is touched for the first time.
        within("the first calls", measure(&stubs, calls)).await?;
        let mut seen = Vec::new();
        for number in 0..rounds {
            let round = round(rig, &server, &stubs, (number, calls));
            seen.push(within_limit(ROUND_LIMIT, "a round", round).await?);
        }
        within("a newcomer", newcomer(&server, &stubs, calls)).await?;
        judge(&server, &seen);
        Ok(())
    })
}

/// Returns the value of an environment variable, or `usual`.
fn number<T: std::str::FromStr>(name: &str, usual: T) -> T {
    let said = std::env::var(name).ok();
    said.map_or(usual, |said| {
        said.parse().unwrap_or_else(|_| panic!("{name}: {said} is no number"))
    })
}

/// The result of one round.
struct Round {
    /// Calls a second of all eight, over the most that any number of them made in this round.
    goodput: f64,
    /// The calls of each of the eight.
    shares: Vec<u64>,
}

async fn round(
    rig: &Rig,
    server: &Serving,
    stubs: &[ProbeStub],
    (number, calls): (usize, u64),
) -> Result<Round, Failure> {
    let mut stages = STAGES;
    if number % 2 == 1 {
        stages.reverse();
    }
    let (mut peak, mut last) = (0.0_f64, (0.0, Vec::new()));
    for count in stages {
        let before = (server.lane().activity, rig.counts());
        let (rate, shares) = measure(&stubs[..count], calls).await?;
        let (done, counts) = (server.lane().activity, rig.counts() - before.1);
        #[allow(clippy::cast_precision_loss, reason = "thousands")]
        let per_call = |after: u64, before: u64| (after - before) as f64 / calls as f64;
        println!(
            "{count} greedy clients: {rate:.0} calls/s; a call: {:.2} SENDs of both sides; of the \
             server {:.2} posts, {:.2} polls, {:.3} events, {:.3} grants, {:.2} waits for credit; \
             {} times without a receive in all",
            per_call(counts.sends, 0),
            per_call(done.posts, before.0.posts),
            per_call(done.polls, before.0.polls),
            per_call(done.events, before.0.events),
            per_call(done.grants_sent, before.0.grants_sent),
            per_call(done.credit_waits, before.0.credit_waits),
            counts.receivers_not_ready,
        );
        peak = peak.max(rate);
        if count == stubs.len() {
            last = (rate, shares);
        }
    }
    Ok(Round { goodput: last.0 / peak, shares: last.1 })
}

/// Calls by all stubs at once until there are enough; the rate, and the calls of each.
async fn measure(stubs: &[ProbeStub], calls: u64) -> Result<(f64, Vec<u64>), Failure> {
    let (left, started) = (Arc::new(AtomicU64::new(calls)), Instant::now());
    let shares: Vec<_> = stubs.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
    let mut tasks = Vec::new();
    for (stub, share) in stubs.iter().zip(&shares) {
        for seed in 0..IN_FLIGHT {
            let (stub, share, left) = (stub.clone(), Arc::clone(share), Arc::clone(&left));
            tasks.push(tokio::spawn(async move {
                let take = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    echo(&stub, seed, LEN).await?;
                    share.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, Failure>(())
            }));
        }
    }
    for result in try_join_all(tasks).await? {
        result?;
    }
    #[allow(clippy::cast_precision_loss, reason = "thousands")]
    let rate = calls as f64 / started.elapsed().as_secs_f64();
    Ok((rate, shares.iter().map(|share| share.load(Ordering::Relaxed)).collect()))
}

/// Connects and calls while the others are at it.
async fn newcomer(server: &Serving, stubs: &[ProbeStub], calls: u64) -> Result<(), Failure> {
    let client = devices(Default::default());
    let arrival = async {
        let stub = ProbeStub::new(connect(&server.authority, &client).await?);
        for seed in 0..20 {
            echo(&stub, seed, LEN).await?;
        }
        echo(&stub, 20, 1 << 20).await?;
        Ok::<_, Failure>(stub)
    };
    let (greedy, stub) = tokio::join!(measure(stubs, calls), arrival);
    let (rate, shares) = greedy?;
    println!("8 greedy clients and a newcomer: {rate:.0} calls/s, shares {shares:?}");
    drop(stub?);
    Ok(())
}

fn judge(server: &Serving, rounds: &[Round]) {
    let mut goodputs: Vec<_> = rounds.iter().map(|round| round.goodput).collect();
    goodputs.sort_by(f64::total_cmp);
    let (median, len) = (goodputs[goodputs.len() / 2], goodputs.len());
    let (least, most) = (goodputs[0], goodputs[len - 1]);
    println!("goodput of 8 over the peak: {median:.2} ({least:.2} to {most:.2}, {len} rounds)");
    assert!(median >= number(GOODPUT_MIN_VARIABLE, 0.0), "{goodputs:?}");
    let mut shares = vec![0; rounds[0].shares.len()];
    for round in rounds {
        println!(
            "shares of 8 in a round: {:?}, Jain's index {:.4}",
            round.shares,
            fairness(&round.shares)
        );
        shares.iter_mut().zip(&round.shares).for_each(|(sum, share)| *sum += share);
    }
    let fairness = fairness(&shares);
    println!("shares of 8: {shares:?}, Jain's index {fairness:.4}");
    assert!(fairness >= FAIRNESS_MIN, "{shares:?}");
    let lane = server.lane();
    println!("the server's lane: {lane:?}");
    assert_eq!(lane.activity.credit_stalls, 0);
    // No queue pair has died: they are the connections of the beginning, and over RDMA.
    let connections = server.server.connections();
    let over_rdma = connections.iter().filter(|info| info.transport == "rdma").count();
    assert!(over_rdma >= 8 && over_rdma == connections.len(), "{connections:?}");
}

/// Jain's index of what each client got done.
#[allow(clippy::cast_precision_loss, reason = "thousands")]
fn fairness(shares: &[u64]) -> f64 {
    jain(shares.iter().map(|share| *share as f64))
}
