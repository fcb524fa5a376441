//! Callers that wait when no more memory can be pinned, and callers that are refused.

use std::sync::Arc;
use std::time::Duration;

use crate::memory::{Handout, MemlockArbiter, PoolRules, RegionPool};
use crate::sim::{SimDevice, SimFaults, SimNetwork};
use crate::sys::provider::{Access, Device};

const MIB: usize = 1 << 20;

/// Long enough to be registered on a thread of its own.
const LEN: usize = 600 << 10;

/// A device that pins so many bytes, and two pools of one arbiter on it.
fn limited(bytes_max: usize) -> (SimNetwork, SimDevice, [Arc<RegionPool>; 2]) {
    let network = SimNetwork::new(1);
    let memory_lock_bytes = Some(bytes_max as u64);
    network.set_faults(SimFaults { memory_lock_bytes, ..SimFaults::default() });
    let sim = network.add_device("sim0", &[[10, 0, 0, 1].into()]);
    let device = Device::open(&network.provider(), "sim0").expect("it was added");
    let arbiter = Arc::new(MemlockArbiter::default());
    let pools = [Access::Source, Access::Sink].map(|access| {
        let wait_max = Duration::from_secs(60);
        let rules =
            PoolRules { access, handout: Handout::AsLeft, bytes_max: 64 * MIB as u64, wait_max };
        RegionPool::with_rules(&device, rules, &arbiter)
    });
    (network, sim, pools)
}

#[tokio::test]
async fn a_caller_at_the_limit_waits_for_pins_in_progress() {
    let (network, sim, [sources, sinks]) = limited(MIB);
    let hold = sim.hold_registrations();
    // As a handshake registers, on a thread of its own.
    let first = tokio::task::spawn_blocking(move || sources.try_take(LEN));
    let hold = tokio::task::spawn_blocking(move || {
        hold.wait_for(1);
        hold
    });
    let hold = hold.await.unwrap();
    // No buffer is in use yet, and nothing that is unused could make way.
    let second = tokio::spawn(async move { sinks.take(LEN).await });
    while network.counters().refused_registrations == 0 {
        tokio::task::yield_now().await;
    }
    drop(hold);
    let first = first.await.unwrap().unwrap();
    drop(first);
    second.await.unwrap().expect("it waited for the first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_of_many_has_its_turn() {
    let (network, _sim, pools) = limited(2 * MIB);
    for round in 0..20 {
        let takers = (0..16).map(|taker| {
            let pool = Arc::clone(&pools[taker % 2]);
            tokio::spawn(async move {
                let buffer = pool.take(LEN + taker * 8192).await;
                tokio::task::yield_now().await;
                buffer.map(drop)
            })
        });
        for taker in takers.collect::<Vec<_>>() {
            taker.await.unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
    assert!(network.counters().refused_registrations > 0, "the limit was never met");
    assert_eq!(network.violations(), []);
}

#[tokio::test]
async fn who_alone_meets_the_limit_is_told_at_once() {
    let (_network, _sim, [sources, sinks]) = limited(MIB);
    drop(sinks.take(LEN).await.unwrap());
    let timeouts = Duration::from_secs(30);
    let taken = tokio::time::timeout(timeouts, sources.take(2 * MIB)).await;
    let refused = taken.expect("it does not wait").unwrap_err();
    assert!(refused.to_string().contains("RLIMIT_MEMLOCK"), "{refused}");
    sources.take(LEN).await.expect("and others go on");
}
