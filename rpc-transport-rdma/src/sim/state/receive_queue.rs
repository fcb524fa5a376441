//! Shared receive queues as a simulated device has them.

use std::collections::{BTreeSet, VecDeque};

use super::span_ledger::SpanId;
use crate::verbs::RawReceive;

/// A shared receive queue in the network's table.
#[derive(Debug)]
pub(crate) struct ReceiveQueueState {
    pub(crate) context: u32,
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
    pub(crate) fn new(context: u32, depth: u32) -> Self {
        Self { context, depth, limit: 0, posted: VecDeque::new(), spans: BTreeSet::new() }
    }
}
