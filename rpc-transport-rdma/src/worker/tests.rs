//! A worker never promises more receive slots than it has.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::lane::DEAD;
use crate::quota::slots::BASE;
use crate::testing::scripted::ScriptedDevice;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A worker whose task never runs, because its runtime is never driven.
fn worker(runtime: &Runtime, receive_slots: u16, max_connections: u32) -> Worker {
    let config = RdmaConfig { receive_slots, max_connections, ..RdmaConfig::default() };
    let _inside = runtime.enter();
    Worker::start(&ScriptedDevice::new().device(), &config).unwrap()
}

fn promised(worker: &Worker) -> u32 {
    worker.shared.shares.quota().promised()
}

#[test]
fn idle_connections_take_little_and_many_fit() {
    let runtime = runtime();
    let worker = worker(&runtime, 1000, 400);
    let mut places = Vec::new();
    let full = loop {
        match worker.shared.take_place() {
            Ok(place) => places.push(place),
            Err(text) => break text,
        }
    };
    assert_eq!(places.len(), 333);
    assert_eq!(promised(&worker), 333 * BASE);
    assert!(full.contains("rdma.receive_slots") && full.contains("1 of 1000"), "{full}");
}

#[test]
fn reads_are_ordered_unless_the_settings_say_otherwise() {
    let runtime = runtime();
    let _inside = runtime.enter();
    for (relaxed_ordering, access) in [(false, Access::Sink), (true, Access::RelaxedSink)] {
        let small = RdmaConfig { receive_slots: 64, ..RdmaConfig::default() };
        let config = RdmaConfig { relaxed_ordering, ..small };
        let worker = Worker::start(&ScriptedDevice::new().device(), &config).unwrap();
        let sink = worker.shared.sinks.try_take(4096).unwrap();
        assert_eq!(sink.access(), access);
    }
}

#[test]
fn a_place_that_is_dropped_unused_is_free_again() {
    let runtime = runtime();
    let worker = worker(&runtime, 3, 128);
    let place = worker.shared.take_place().unwrap();
    assert_eq!((place.1.window(), promised(&worker)), (1, 3));
    assert!(worker.shared.take_place().is_err());
    drop(place);
    assert_eq!((promised(&worker), worker.shared.connection_count()), (0, 0));
    worker.shared.take_place().expect("the place is free again");
}

#[test]
fn the_number_of_connections_is_a_limit_too() {
    let runtime = runtime();
    let worker = worker(&runtime, 1000, 2);
    let _places = [worker.shared.take_place().unwrap(), worker.shared.take_place().unwrap()];
    let text = worker.shared.take_place().err().unwrap();
    assert!(text.contains("2 connections of at most 2 (rdma.max_connections)"), "{text}");
}

#[test]
fn a_worker_that_has_ended_gives_no_places() {
    let runtime = runtime();
    let worker = worker(&runtime, 1000, 2);
    runtime.shutdown_background();
    assert!(worker.shared.is_dead());
    assert_eq!(worker.shared.take_place().err().unwrap(), DEAD);
}

#[test]
fn a_worker_that_is_unused_ends_its_task() {
    // Before its first poll, while it polls, and asleep.
    let spins = [Duration::ZERO, Duration::MAX, Duration::ZERO];
    for (spin, turns) in spins.into_iter().zip([0, 10, 10]) {
        let runtime = runtime();
        let config = RdmaConfig { spin, receive_slots: 64, ..RdmaConfig::default() };
        let device = ScriptedDevice::new();
        device.silence_events();
        runtime.block_on(async {
            let worker = Worker::start(&device.device(), &config).unwrap();
            let shared = Arc::clone(&worker.shared);
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            drop(worker);
            for _ in 0..turns + 10 {
                tokio::task::yield_now().await;
            }
            assert!(shared.is_dead(), "{spin:?}, {turns} turns");
        });
    }
}

#[test]
fn limits_that_no_device_has_are_refused_and_do_not_overflow() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let config = RdmaConfig {
        receive_slots: 64,
        max_connections: u32::MAX,
        send_depth: u32::MAX,
        ..RdmaConfig::default()
    };
    let worker = Worker::start(&ScriptedDevice::new().device(), &config).unwrap();
    assert!(worker.shared.take_place().is_ok());
}
