//! That greedy clients share a receive queue alike, keep nobody out, and break nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;
use futures::future::try_join_all;

use crate::rig::{Rig, Serving, config, connect, echo, within};

/// Calls that each client keeps in flight: twice the largest window.
const IN_FLIGHT: u64 = 64;

/// Calls of one measurement, of all clients together.
const CALLS: u64 = 3000;

/// Bytes each way: one message each.
const LEN: usize = 500;

/// The least that Jain's index of the clients' shares may be. It is 1 when all are equal; with one
/// client of eight left out it is 0.875.
const FAIRNESS_MIN: f64 = 0.9;

pub(crate) fn eight_greedy_clients(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let server = rig.serve(Default::default()).await?;
        let mut clients = Vec::new();
        let mut rates = Vec::new();
        for count in [1, 2, 4, 8] {
            while clients.len() < count {
                // Each has a lane of its own, as if it were another process.
                let config = config(Default::default());
                let channel = connect(&server.authority, &config).await?;
                clients.push((ProbeStub::new(channel), config));
            }
            let stubs: Vec<_> = clients.iter().map(|(stub, _)| stub.clone()).collect();
            let (rate, shares) = within("greedy calls", measure(&stubs)).await?;
            println!("{count} greedy clients: {rate:.0} calls/s, shares {shares:?}");
            rates.push((rate, shares));
        }
        let stubs: Vec<_> = clients.iter().map(|(stub, _)| stub.clone()).collect();
        within("a newcomer", newcomer(&server, &stubs)).await?;
        judge(&server, &rates);
        Ok(())
    })
}

/// Calls by all stubs at once until there are enough; the rate, and the calls of each.
async fn measure(stubs: &[ProbeStub]) -> Result<(f64, Vec<u64>), Failure> {
    let (left, started) = (Arc::new(AtomicU64::new(CALLS)), Instant::now());
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
    let rate = CALLS as f64 / started.elapsed().as_secs_f64();
    Ok((rate, shares.iter().map(|share| share.load(Ordering::Relaxed)).collect()))
}

/// Connects and calls while the others are at it.
async fn newcomer(server: &Serving, stubs: &[ProbeStub]) -> Result<(), Failure> {
    let client = config(Default::default());
    let arrival = async {
        let stub = ProbeStub::new(connect(&server.authority, &client).await?);
        for seed in 0..20 {
            echo(&stub, seed, LEN).await?;
        }
        echo(&stub, 20, 1 << 20).await?;
        Ok::<_, Failure>(stub)
    };
    let (greedy, stub) = tokio::join!(measure(stubs), arrival);
    let (rate, shares) = greedy?;
    println!("8 greedy clients and a newcomer: {rate:.0} calls/s, shares {shares:?}");
    drop(stub?);
    Ok(())
}

fn judge(server: &Serving, rates: &[(f64, Vec<u64>)]) {
    let peak = rates.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
    let (rate, shares) = &rates[rates.len() - 1];
    let fairness = jain(shares);
    let (least, most) = (shares.iter().min().unwrap_or(&0), shares.iter().max().unwrap_or(&0));
    println!("goodput of 8 over the peak: {:.2}; Jain's index {fairness:.4}", rate / peak);
    println!("shares of 8: {least} to {most} calls");
    let lane = server.lane();
    println!("the server's lane: {lane:?}");
    assert!(fairness >= FAIRNESS_MIN, "{shares:?}");
    assert_eq!(lane.activity.credit_stalls, 0);
    // Nobody's queue pair has died: they are the connections of the beginning, and over RDMA.
    let connections = server.server.connections();
    let over_rdma = connections.iter().filter(|info| info.transport == "rdma").count();
    assert!(over_rdma >= 8 && over_rdma == connections.len(), "{connections:?}");
}

/// 1 when all shares are the same, and 1 / n when one has everything.
#[allow(clippy::cast_precision_loss, reason = "thousands")]
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}
