//! The events of a simulated network, and the objects on it.

use std::collections::BTreeMap;

/// Counts of events. A test that injects faults should check that they happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimCounters {
    /// Messages that were delivered.
    pub messages: u64,
    /// READs that were answered with bytes.
    pub reads: u64,
    /// Memory windows that were bound.
    pub binds: u64,
    /// Memory windows that a request of either side has invalidated.
    pub invalidations: u64,
    /// Requests and answers that were lost on the way.
    pub lost: u64,
    /// Requests and answers that were sent, by traffic class. What is sent again counts again.
    pub sent_by_class: BTreeMap<u8, u64>,
    /// Those that were lost for their traffic class.
    pub lost_by_class: BTreeMap<u8, u64>,
    /// Those that were lost with their LAG port.
    pub lost_by_lag_port: u64,
    /// Times that a queue pair began again after a timeout.
    pub timeouts: u64,
    /// Messages that found no receive posted, or were told so.
    pub receiver_not_ready: u64,
    /// Posts that ended early.
    pub refused_posts: u64,
    /// Registrations that failed.
    pub refused_registrations: u64,
    /// Writes that waited until their completion was polled.
    pub late_writes: u64,
    /// Completions that overtook those of other queues.
    pub reordered_completions: u64,
    /// Events that were held back.
    pub delayed_events: u64,
    /// Events that waited for more completions.
    pub coalesced_events: u64,
    /// Requests of which a part was sent again.
    pub retransmissions: u64,
    /// Messages and READs that were cut in the middle.
    pub cut_transfers: u64,
    /// Completions that were thrown out when their queue pair was destroyed.
    pub purged_completions: u64,
    /// Events of last receives that came late.
    pub late_last_receives: u64,
    /// Events of last receives that never came.
    pub missing_last_receives: u64,
    /// Receives that never completed.
    pub lost_receives: u64,
    /// READs that completed without the end of their bytes.
    pub short_reads: u64,
    /// READs that completed with a wrong bit.
    pub corrupt_reads: u64,
    /// READs that completed without a packet of their bytes.
    pub stale_reads: u64,
    /// Events without a completion.
    pub spurious_events: u64,
    /// Queue pairs that broke, by chance or because they were told to.
    pub broken_queue_pairs: u64,
    /// Peers' accesses that were refused: bad keys, bounds, rights.
    pub refused_accesses: u64,
}

/// Counts of the objects that exist on a network now. It is all zero when everything above is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimCensus {
    /// Openings of devices.
    pub contexts: usize,
    /// Registered regions.
    pub regions: usize,
    /// Bytes of registered regions.
    pub registered_bytes: u64,
    /// Bytes that are locked: of registered regions, and of queues that count.
    pub locked_bytes: u64,
    /// Memory windows.
    pub windows: usize,
    /// Memory windows that are bound.
    pub bound_windows: usize,
    /// Completion queues.
    pub completion_queues: usize,
    /// Shared receive queues.
    pub receive_queues: usize,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Requests whose memory is a device's: posted, and their completion not polled yet.
    pub requests: usize,
}
