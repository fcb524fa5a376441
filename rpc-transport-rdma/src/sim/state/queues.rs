//! Completion queues and shared receive queues as a simulated device has them.

use std::collections::{BTreeSet, VecDeque};

use crate::sim::state::memory::SpanId;
use crate::sys::provider::{RawCompletion, RawReceive, RawSegment};

/// A completion queue in the network's table.
#[derive(Debug)]
pub(crate) struct CompletionQueueState {
    pub(crate) context: u32,
    pub(crate) device: usize,
    pub(crate) capacity: u32,
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) vector: u32,
    /// Bytes of locked memory.
    pub(crate) locked: u64,
    pub(crate) completions: VecDeque<Entry>,
    pub(crate) is_armed: bool,
    /// An event is on its way, and comes after so many completions more at the latest; what is
    /// armed meanwhile becomes one with it.
    pub(crate) held_for: Option<u32>,
    pub(crate) has_event: bool,
    pub(crate) is_broken: bool,
}

/// A completion that waits to be polled.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) raw: RawCompletion,
    pub(crate) origin: Origin,
    /// Bytes that are written when it is polled, and not before.
    pub(crate) writes: Vec<LateWrite>,
}

/// The queue whose work has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `ended` requests of a send queue.
    Send { queue_pair: u32, ended: usize },
    /// A receive.
    Receive { receive_queue: u32, span: SpanId, queue_pair: u32 },
}

/// Bytes that the device has and memory that has not.
#[derive(Debug)]
pub(crate) struct LateWrite {
    pub(crate) segment: RawSegment,
    pub(crate) bytes: Box<[u8]>,
}

impl CompletionQueueState {
    pub(crate) fn new(context: u32, device: usize, capacity: u32, locked: u64) -> Self {
        Self {
            context,
            device,
            capacity,
            vector: 0,
            locked,
            completions: VecDeque::new(),
            is_armed: false,
            held_for: None,
            has_event: false,
            is_broken: false,
        }
    }
}

impl Origin {
    /// Returns true if two completions must keep their order.
    pub(crate) fn is_ordered_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Send { queue_pair: a, .. }, Self::Send { queue_pair: b, .. })
            | (Self::Receive { queue_pair: a, .. }, Self::Receive { queue_pair: b, .. }) => a == b,
            _ => false,
        }
    }
}

/// A shared receive queue in the network's table.
#[derive(Debug)]
pub(crate) struct ReceiveQueueState {
    pub(crate) context: u32,
    pub(crate) device: usize,
    /// Bytes of locked memory.
    pub(crate) locked: u64,
    pub(crate) depth: u32,
    pub(crate) limit: u32,
    pub(crate) posted: VecDeque<Posted>,
    /// Memory of receives that are posted, or completed and not polled.
    pub(crate) spans: BTreeSet<SpanId>,
}

/// A receive that waits for a message.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) receive: RawReceive,
    pub(crate) span: SpanId,
}

impl ReceiveQueueState {
    pub(crate) fn new(context: u32, device: usize, depth: u32, locked: u64) -> Self {
        let (posted, spans) = (VecDeque::new(), BTreeSet::new());
        Self { context, device, locked, depth, limit: 0, posted, spans }
    }
}
