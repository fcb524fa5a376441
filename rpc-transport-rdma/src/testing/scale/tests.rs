//! A thousand connections in every build; `cargo xtask bench --group scale` has more.

use super::*;

fn plan(shape: Shape, greedy_percent: u32, active_percent: u32) -> Plan {
    let mix = Mix { greedy_percent, active_percent };
    Plan { seed: 7, connections: 1000, mix, shape }
}

/// Simulates with all assertions, and holds what comes out against what a load may ask for.
fn check(plan: &Plan) -> Measured {
    let (measured, model) = (simulate(plan), forecast(plan));
    println!("{plan:?}\n  {measured:?}\n  {model:?}");
    let ([_, window, _], [least, most]) = (measured.greedy_window, model.greedy_window);
    assert!(0.9 * least <= window && window <= 1.1 * most, "{window}, by the model {least}-{most}");
    assert!(measured.fairness > 0.8, "{}", measured.fairness);
    assert!(measured.promised_part <= 1.0 && measured.filled_part_max <= 1.0);
    let max_wait = super::simulation::MAX_WAIT as f64;
    assert!(measured.half_share_round_trips[1] < max_wait, "a newcomer got no share");
    assert!(measured.handover_round_trips.is_none_or(|time| time < max_wait), "no hand-over");
    measured
}

#[test]
fn a_thousand_connections_share_usual_lanes() {
    let measured = check(&plan(Shape::usual(), 10, 30));
    assert_eq!(measured.lanes, 4);
    assert!(measured.receive_bytes_per_connection < 20.0 * 1024.0);
    assert!(measured.handover_round_trips.is_some());
    assert!(measured.credits_returned > 0, "those that became idle gave nothing back");
}

#[test]
fn a_thousand_connections_share_one_queue() {
    let measured = check(&plan(Shape::pooled(1000), 10, 30));
    assert_eq!(measured.lanes, 1);
}

#[test]
fn a_thousand_connections_share_a_queue_with_room() {
    check(&plan(Shape::usual().with_slots(8192), 10, 30));
}

#[test]
fn a_thousand_greedy_connections_keep_their_lanes_busy() {
    let measured = check(&plan(Shape::usual(), 100, 0));
    assert!(measured.busy_part > 0.95, "{}", measured.busy_part);
    assert_eq!(measured.handover_round_trips, None);
}

#[test]
fn a_thousand_idle_connections_ask_for_nothing() {
    let measured = simulate(&plan(Shape::usual(), 0, 0));
    assert_eq!((measured.busy_part, measured.filled_part_max), (0.0, 0.0));
    let base = f64::from(crate::quota::slots::BASE * Shape::usual().slot_len);
    assert_eq!(measured.promised_bytes_per_connection, base);
}

#[test]
fn the_same_seed_gives_the_same() {
    let plan = Plan { connections: 300, ..plan(Shape::usual(), 20, 30) };
    assert_eq!(simulate(&plan), simulate(&plan));
    assert_ne!(simulate(&plan), simulate(&Plan { seed: 8, ..plan }));
}
