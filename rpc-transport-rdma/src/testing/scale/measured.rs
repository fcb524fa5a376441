//! What a simulation has found.

/// What a simulation has found. Times are in round trips of an idle lane; shares that do not come
/// are waited for 4,096 of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// How many workers there were.
    pub lanes: u32,
    /// Memory to receive into, for a connection.
    pub receive_bytes_per_connection: f64,
    /// What of that is promised to connections.
    pub promised_bytes_per_connection: f64,
    /// What of that a queue for each connection alone would take, as long as the largest window.
    pub part_of_own_queues: f64,
    /// The window of a greedy connection: least, mean, most.
    pub greedy_window: [f64; 3],
    /// What part of the slots is promised.
    pub promised_part: f64,
    /// What part of the slots was ever filled at once, in the fullest lane.
    pub filled_part_max: f64,
    /// What part of what the lanes could handle they handled.
    pub busy_part: f64,
    /// How equal greedy connections of a lane fared (Jain's index): that of the worst lane.
    pub fairness: f64,
    /// How long a call of an active connection took: median, and what 99 of 100 did not exceed.
    pub active_round_trips: [f64; 2],
    /// How long a newcomer waited for its first answer: median and longest.
    pub first_answer_round_trips: [f64; 2],
    /// How long it took until a newcomer that wanted it had half the window of a greedy connection:
    /// median and longest.
    pub half_share_round_trips: [f64; 2],
    /// How long it took until others had half the windows, after the greedy had become idle and as
    /// many of the idle greedy; nothing where there are not as many.
    pub handover_round_trips: Option<f64>,
    /// How often a queue ran low.
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
