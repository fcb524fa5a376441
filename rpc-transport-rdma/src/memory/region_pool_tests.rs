//! Budget, reuse, waiting, and what happens when no more memory can be pinned.

use std::time::Duration;

use super::*;
use crate::testing::scripted::ScriptedDevice;

const KIB: usize = 1024;

fn pool(sim: &ScriptedDevice, bytes_max: usize) -> Arc<RegionPool> {
    RegionPool::new(&sim.device(), Access::Source, bytes_max as u64)
}

#[test]
fn a_buffer_has_exactly_its_length_and_its_region_is_reused() {
    let sim = ScriptedDevice::new();
    let pool = pool(&sim, 64 * KIB);
    let mut buffer = pool.try_take(10_000).unwrap();
    assert_eq!((buffer.len(), buffer.capacity()), (10_000, 16 * KIB));
    buffer.fill(7);
    let key = buffer.remote().key;
    drop(buffer);
    let PoolBytes { in_use, registered, .. } = pool.bytes();
    assert_eq!((in_use, registered), (0, 16 * KIB as u64));
    let again = pool.try_take(16 * KIB).unwrap();
    assert_eq!(again.remote().key, key);
    assert_eq!(sim.registrations(), 1);
}

#[test]
fn unused_regions_make_way_for_another_class() {
    let sim = ScriptedDevice::new();
    let pool = pool(&sim, 64 * KIB);
    let small: Vec<_> = (0..8).map(|_| pool.try_take(8 * KIB).unwrap()).collect();
    assert!(matches!(pool.try_take(1), Err(PoolError::Exhausted { len: 1, .. })));
    drop(small);
    assert_eq!(pool.bytes().registered, 64 * KIB as u64);
    let large = pool.try_take(50 * KIB).unwrap();
    assert_eq!(large.capacity(), 56 * KIB);
    assert_eq!((pool.bytes_in_use(), pool.bytes().registered), (56 << 10, 64 << 10));
    assert_eq!(sim.registered_bytes(), 64 * KIB);
}

#[test]
fn what_no_peer_can_name_is_cut_from_few_registrations() {
    let sim = ScriptedDevice::new();
    let pool = RegionPool::new(&sim.device(), Access::Sink, 4 << 20);
    let mut buffers: Vec<_> = (0..64).map(|_| pool.try_take(8 * KIB).unwrap()).collect();
    assert_eq!(sim.registrations(), 7, "1, 1, 2, 4, 8, 16 and 32 blocks");
    for (fill, buffer) in (0u8..).zip(&mut buffers) {
        buffer.fill(fill);
    }
    for (fill, buffer) in (0u8..).zip(&buffers) {
        assert!(buffer.iter().all(|byte| *byte == fill), "block {fill} is another's too");
    }
    let sources = RegionPool::new(&sim.device(), Access::Source, 4 << 20);
    let offered: Vec<_> = (0..8).map(|_| sources.try_take(8 * KIB).unwrap()).collect();
    assert_eq!(sim.registrations(), 15, "a key opens one buffer and nothing else");
    drop(offered);
}

#[test]
fn more_than_the_budget_is_too_large() {
    let pool = pool(&ScriptedDevice::new(), 20 * KIB);
    assert_eq!(pool.bytes_max(), 16 * KIB as u64);
    assert!(matches!(pool.try_take(16 * KIB + 1), Err(PoolError::TooLarge { .. })));
    assert!(matches!(pool.try_take(usize::MAX), Err(PoolError::TooLarge { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_budget_when_it_is_given_back() {
    let pool = pool(&ScriptedDevice::new(), 16 * KIB);
    let held = pool.try_take(16 * KIB).unwrap();
    let waiter = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.take(8 * KIB).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiter.is_finished());
    drop(held.freeze());
    assert_eq!(waiter.await.unwrap().unwrap().len(), 8 * KIB);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_budget_is_bounded() {
    let sim = ScriptedDevice::new();
    let pool = bounded(&sim, 16 * KIB, &Arc::default());
    let held = pool.try_take(16 * KIB).unwrap();
    let error = pool.take(8 * KIB).await.unwrap_err();
    assert!(matches!(error, PoolError::Exhausted { len: 8192, .. }), "{error}");
    drop(held);
    pool.take(16 * KIB).await.expect("the wait cost no budget");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_room_is_served_when_blocks_return() {
    let sim = ScriptedDevice::new();
    let pool = RegionPool::new(&sim.device(), Access::Sink, 64 << 10);
    let mut blocks: Vec<_> = (0..8).map(|_| pool.try_take(8 * KIB).unwrap()).collect();
    // One block of every slab stays: 1, 1, 2 and 4 blocks are registered.
    let kept: Vec<_> = [0, 1, 2, 4].iter().rev().map(|at| blocks.swap_remove(*at)).collect();
    drop(blocks);
    assert!(matches!(pool.try_take(32 * KIB), Err(PoolError::Exhausted { .. })));
    let waiter = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.take(32 * KIB).await }
    });
    tokio::task::yield_now().await;
    drop(kept);
    assert_eq!(waiter.await.unwrap().unwrap().len(), 32 * KIB);
}

#[tokio::test(start_paused = true)]
async fn unpinnable_memory_comes_from_unused_pools() {
    let sim = ScriptedDevice::new();
    let arbiter = Arc::new(MemlockArbiter::default());
    let (pool, other) = (bounded(&sim, 64 * KIB, &arbiter), bounded(&sim, 64 * KIB, &arbiter));
    drop(pool.try_take(8 * KIB).unwrap());
    drop(other.try_take(8 * KIB).unwrap());
    sim.limit_registered_bytes(16 * KIB);
    let buffer = pool.try_take(16 * KIB).unwrap();
    assert_eq!(other.bytes().registered, 0);
    let waiter = tokio::spawn({
        let other = Arc::clone(&other);
        async move { other.take(16 * KIB).await }
    });
    tokio::task::yield_now().await;
    assert!(matches!(other.try_take_at_once(16 * KIB), Err(PoolError::Exhausted { .. })));
    drop(buffer);
    waiter.await.unwrap().expect("it waited for what the other pool gave back");
}

#[tokio::test(start_paused = true)]
async fn memory_that_cannot_be_pinned_in_time_names_the_limit() {
    let sim = ScriptedDevice::new();
    let pool = bounded(&sim, 64 * KIB, &Arc::default());
    sim.limit_registered_bytes(16 * KIB);
    let held = pool.try_take(16 * KIB).unwrap();
    for error in [pool.try_take(16 * KIB).unwrap_err(), pool.take(16 * KIB).await.unwrap_err()] {
        assert!(matches!(error, PoolError::Register(VerbsError::MemoryLock { .. })), "{error}");
        assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
    }
    drop(held);
    pool.try_take(16 * KIB).expect("the failures gave their budget back");
    assert!(pool.take(24 * KIB).await.is_err(), "nothing is in use: waiting would not help");
}

#[tokio::test]
async fn what_must_be_registered_is_registered_by_a_command() {
    let sim = ScriptedDevice::new();
    let pool = RegionPool::new(&sim.device(), Access::Source, 8 << 20);
    for len in [8 * KIB, 1 << 20] {
        assert!(matches!(pool.try_take_at_once(len), Err(PoolError::Exhausted { .. })), "{len}");
    }
    let buffer = pool.take(1 << 20).await.unwrap();
    drop(buffer);
    pool.try_take_at_once(1 << 20).expect("it is registered now");
    let lent = pool.lend(2 << 20).await.unwrap();
    assert!(pool.find_lent(&lent).is_some());
    assert!(pool.lend(4 << 20).await.is_none(), "more than half would be lent");
}

fn bounded(
    sim: &ScriptedDevice,
    bytes_max: usize,
    arbiter: &Arc<MemlockArbiter>,
) -> Arc<RegionPool> {
    let wait_max = Duration::from_secs(1);
    let (access, handout) = (Access::Source, Handout::AsLeft);
    let rules = PoolRules { access, handout, bytes_max: bytes_max as u64, wait_max };
    RegionPool::with_rules(&sim.device(), rules, arbiter)
}
