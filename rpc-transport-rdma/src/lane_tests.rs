//! What a lane promises: never more receive slots than it has.

use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::verbs::mock::MockDevice;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A lane whose task never runs, because nobody drives its runtime.
fn lane(runtime: &Runtime, receive_slots: u16, connections_max: u32) -> Lane {
    let config = RdmaConfig { receive_slots, connections_max, ..RdmaConfig::default() };
    let _inside = runtime.enter();
    Lane::start(&MockDevice::new().device(), &config).unwrap()
}

fn promised(lane: &Lane) -> u32 {
    lane.shared.table().promised_slots
}

#[test]
fn the_first_connections_get_the_most_and_many_fit() {
    let runtime = runtime();
    let lane = lane(&runtime, 1000, 128);
    let mut places = Vec::new();
    let full = loop {
        match lane.shared.take_place() {
            Ok(place) => places.push(place),
            Err(words) => break words,
        }
    };
    assert_eq!(places[0].window, 31, "a share of what is left");
    assert!(places.windows(2).all(|pair| pair[0].window >= pair[1].window));
    assert_eq!(places.last().unwrap().window, WINDOW_MIN);
    assert_eq!(places.len(), 64);
    assert!(promised(&lane) <= 1000);
    assert!(full.contains("rdma.receive_slots") && full.contains("of 1000"), "{full}");
}

#[test]
fn a_place_that_is_dropped_unused_is_free_again() {
    let runtime = runtime();
    let lane = lane(&runtime, 8, 128);
    let place = lane.shared.take_place().unwrap();
    assert_eq!((place.promised_slots(), promised(&lane)), (8, 8));
    assert!(lane.shared.take_place().is_err());
    drop(place);
    assert_eq!((promised(&lane), lane.shared.connection_count()), (0, 0));
    lane.shared.take_place().expect("the place is free again");
}

#[test]
fn the_number_of_connections_is_a_limit_too() {
    let runtime = runtime();
    let lane = lane(&runtime, 1000, 2);
    let _places = [lane.shared.take_place().unwrap(), lane.shared.take_place().unwrap()];
    let words = lane.shared.take_place().err().unwrap();
    assert!(words.contains("2 connections of at most 2 (rdma.connections_max)"), "{words}");
}

#[test]
fn a_lane_that_has_ended_gives_no_places() {
    let runtime = runtime();
    let lane = lane(&runtime, 1000, 2);
    runtime.shutdown_background();
    assert!(lane.shared.is_dead());
    assert_eq!(lane.shared.take_place().err().unwrap(), DEAD);
}

#[test]
fn limits_that_no_device_has_are_refused_and_do_not_overflow() {
    let runtime = runtime();
    let _inside = runtime.enter();
    let config = RdmaConfig {
        receive_slots: 64,
        connections_max: u32::MAX,
        send_depth: u32::MAX,
        ..RdmaConfig::default()
    };
    let lane = Lane::start(&MockDevice::new().device(), &config).unwrap();
    assert!(lane.shared.take_place().is_ok());
}

proptest! {
    #[test]
    fn promises_never_exceed_the_slots_and_come_back(
        receive_slots in 0u16..1000,
        credits_max in 0u32..64,
        steps in prop::collection::vec(any::<(bool, prop::sample::Index)>(), 0..200),
    ) {
        let runtime = runtime();
        let config = RdmaConfig { receive_slots, credits_max, ..RdmaConfig::default() };
        let lane = {
            let _inside = runtime.enter();
            Lane::start(&MockDevice::new().device(), &config).unwrap()
        };
        let mut places: Vec<Place> = Vec::new();
        for (is_new, which) in steps {
            if is_new {
                places.extend(lane.shared.take_place());
            } else if !places.is_empty() {
                places.swap_remove(which.index(places.len()));
            }
            let sum: u32 = places.iter().map(Place::promised_slots).sum();
            prop_assert_eq!(promised(&lane), sum);
            prop_assert!(sum <= u32::from(receive_slots));
            prop_assert_eq!(lane.shared.connection_count(), places.len());
        }
        places.clear();
        prop_assert_eq!(promised(&lane), 0);
    }
}
