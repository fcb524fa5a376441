//! One of four servers is ten times slower: how long the slowest hundredth of the calls takes, by
//! rule of balance.
//!
//! It compares times of one run with each other. A machine that is busy otherwise can spoil it, so
//! that no build runs it.

use std::time::{Duration, Instant};

use farcall::Channel;
use farcall::balance::{BalanceConfig, Policy};
use futures::future::join_all;
use tokio::runtime::Handle;

use super::Shown;
use super::cluster::{Cluster, Directory, SERVERS};
use super::ledger::{LedgerFile, look};
use crate::RigError;
use farcall_suite::Failure;

/// Duration of a call at a server, in milliseconds.
const DELAY_MS: u64 = 5;
const SLOW_DELAY_MS: u64 = 10 * DELAY_MS;

const CALLERS: usize = 16;
const CALLS_EACH: usize = 400;

/// Calls before those that count, in which a channel learns how fast its servers are.
const WARM_UP_EACH: usize = 50;

/// By how much the slow server may lengthen the slowest hundredth.
const RATIO_MAX: f64 = 1.3;

pub(super) fn show(runtime: &Handle) -> Result<Shown, RigError> {
    let mut shown = Shown::default();
    let file = LedgerFile::new()?;
    let mut delays = [DELAY_MS; SERVERS];
    let cluster = Cluster::start(file.path(), delays, Directory::Nowhere)?;
    let healthy = runtime.block_on(p99(&cluster, Policy::LeastLoaded))?;
    drop(cluster);
    delays[SERVERS - 1] = SLOW_DELAY_MS;
    let cluster = Cluster::start(file.path(), delays, Directory::Nowhere)?;
    let least_loaded = runtime.block_on(p99(&cluster, Policy::LeastLoaded))?;
    let round_robin = runtime.block_on(p99(&cluster, Policy::RoundRobin))?;
    println!("  {CALLERS} callers, {CALLS_EACH} calls each");
    println!("  p99, all servers alike, least loaded    {healthy:>8.1?}");
    let lines = [("least loaded", least_loaded), ("round robin", round_robin)];
    for (name, p99) in lines {
        let ratio = p99.as_secs_f64() / healthy.as_secs_f64();
        println!("  p99, one 10 times slower, {name:<12}  {p99:>8.1?}  {ratio:.2} times");
    }
    let ratio = least_loaded.as_secs_f64() / healthy.as_secs_f64();
    shown.expect(ratio <= RATIO_MAX, || {
        format!("a slow server makes p99 {ratio:.2} times as long, at most {RATIO_MAX}")
    });
    Ok(shown)
}

/// Returns the 99th percentile of the calls' durations.
async fn p99(cluster: &Cluster, policy: Policy) -> Result<Duration, RigError> {
    let addresses = cluster.addresses();
    let builder = Channel::builder(addresses.as_str()).map_err(Failure::from)?;
    let channel = builder.balance(BalanceConfig::default().with_policy(policy)).connect_lazy();
    let caller = |_| async {
        let mut times = Vec::with_capacity(CALLS_EACH);
        for number in 0..WARM_UP_EACH + CALLS_EACH {
            let began = Instant::now();
            look(&channel, number as u64).await?;
            times.push(began.elapsed());
        }
        Ok::<_, farcall::Status>(times.split_off(WARM_UP_EACH))
    };
    let mut times = Vec::new();
    for caller_times in join_all((0..CALLERS).map(caller)).await {
        times.extend(caller_times.map_err(Failure::from)?);
    }
    times.sort_unstable();
    Ok(times[times.len() * 99 / 100])
}
