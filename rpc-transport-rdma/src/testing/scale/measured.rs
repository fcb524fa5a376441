//! The results of a simulation, and a model that forecasts windows, memory and waits by arithmetic
//! alone.
//!
//! A lane has `S` slots and `n` connections, of which `a` are greedy. Every connection holds
//! [`BASE`] slots, a greedy one `w - 1` more. A window may be a quarter of what is free beyond the
//! margin `M` for newcomers, so that in the end `w = (S - BASE n - a (w - 1) - M) / 4`, hence
//!
//! ```text
//! w = (S - BASE n - M + a) / (4 + a)      but at least 1, and at most `credits_max`
//! ```
//!
//! What the active hold beyond the base depends on their bursts: nothing at the least, as much as a
//! greedy one at the most, which makes `a` larger. So the model has two ends, and what is simulated
//! should lie between them. Without active connections they are the same.
//!
//! The greedy have `a w` messages on their way. What a lane handles in a round trip is shared with
//! the active; when more is on its way than that, the rest waits, and a round trip takes as long as
//! handling all of it does: `t = max(1, a w / c)` for a capacity of `c` messages a round trip that
//! is left to the greedy. A newcomer has one credit, gets its first answer after `t`, and doubles
//! its window with each answer, so that it has half of `w` after `t log2(w / 2)`.

use crate::quota::slots::{BASE, MARGIN_PART, PART};
use crate::testing::scale::plan::{ACTIVE_LOAD, BATCH, Plan, ROUND_TRIP};

/// The results of a simulation. Times are in round trips of an idle lane. A share that does not
/// come is waited for 4,096 of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Number of workers.
    pub lanes: u32,
    /// Memory to receive into, for a connection.
    pub receive_bytes_per_connection: f64,
    /// The part of those bytes that is promised to connections.
    pub promised_bytes_per_connection: f64,
    /// The part of those bytes that a queue for each connection would take if it were as long as
    /// the largest window.
    pub part_of_own_queues: f64,
    /// The window of a greedy connection: least, mean, most.
    pub greedy_window: [f64; 3],
    /// The part of the slots that is promised.
    pub promised_part: f64,
    /// The largest part of the slots that was filled at once, in the fullest lane.
    pub filled_part_max: f64,
    /// The part of the lanes' capacity that they used.
    pub busy_part: f64,
    /// Fairness among greedy connections of a lane (Jain's index), in the worst lane.
    pub fairness: f64,
    /// Duration of an active connection's call: median and 99th percentile.
    pub active_round_trips: [f64; 2],
    /// Wait of a newcomer for its first answer: median and longest.
    pub first_answer_round_trips: [f64; 2],
    /// Time until a newcomer that wanted it had half the window of a greedy connection: median and
    /// longest.
    pub half_share_round_trips: [f64; 2],
    /// Time until others had half the windows, after the greedy had become idle and as many of the
    /// idle greedy. `None` where there are not as many.
    pub handover_round_trips: Option<f64>,
    /// Number of times that a queue ran low.
    pub limit_events: u64,
    /// Credits that idle peers gave back.
    pub credits_returned: u64,
}

/// The value that so much of `values` does not exceed; zero of none.
pub(super) fn quantile(values: &mut [u64], part: f64) -> f64 {
    values.sort_unstable();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = (part * values.len() as f64) as usize;
    values.get(index.min(values.len().saturating_sub(1))).map_or(0.0, |value| *value as f64)
}

/// The model's forecast, each value between a least and a most. Times are in round trips of an idle
/// lane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The window of a greedy connection.
    pub greedy_window: [f64; 2],
    /// Memory promised to a connection.
    pub promised_bytes_per_connection: [f64; 2],
    /// Wait of a newcomer for its first answer.
    pub first_answer_round_trips: [f64; 2],
    /// Time until it has half the window of a greedy connection.
    pub half_share_round_trips: [f64; 2],
}

/// Returns the model's forecast for a plan.
#[must_use]
pub fn forecast(plan: &Plan) -> Forecast {
    let lanes = f64::from(plan.lane_count());
    let [n, a, active] = [plan.connections, plan.greedy_count(), plan.active_count()]
        .map(|count| f64::from(count) / lanes);
    let windows = [window(plan, n, a + active), window(plan, n, a)];
    let load = if active > 0.0 { ACTIVE_LOAD } else { 0.0 };
    let capacity = (BATCH * ROUND_TRIP) as f64 * (1.0 - load);
    let round_trips = windows.map(|window| (a * window / capacity).max(1.0));
    let doublings = windows.map(|window| (window / 2.0).log2().ceil().max(1.0));
    let greedy_slots = a * (windows[1] - 1.0);
    let all_slots = (a + active) * (windows[0] - 1.0);
    let promised = [greedy_slots.min(all_slots), greedy_slots.max(all_slots)];
    let bytes = |extra: f64| (f64::from(BASE) + extra / n) * f64::from(plan.shape.slot_len);
    Forecast {
        greedy_window: windows,
        promised_bytes_per_connection: promised.map(bytes),
        first_answer_round_trips: round_trips,
        half_share_round_trips: [0, 1].map(|end| round_trips[end] * doublings[end]),
    }
}

/// The window of each of `a` greedy connections among `n` of a lane.
fn window(plan: &Plan, n: f64, a: f64) -> f64 {
    let (slots, base) = (f64::from(plan.shape.slots), f64::from(BASE));
    let newcomers = (f64::from(plan.shape.connections_max) - n) * base;
    let margin = newcomers.min(slots / f64::from(MARGIN_PART)).max(0.0);
    let free = slots - base * n - margin + a;
    (free / (f64::from(PART) + a)).clamp(1.0, f64::from(plan.shape.credits_max))
}
