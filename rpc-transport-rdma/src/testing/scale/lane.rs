//! A lane's receive queue: the slots that messages wait in until they are reaped.

use std::collections::VecDeque;
use std::sync::Arc;

use super::end::Message;
use super::plan::{BATCH, Shape};
use crate::quota::slots::{SharedQuota, SlotQuota};
use crate::stats::lane::ActivityCounters;
use crate::worker::srq::Watermark;

/// A lane.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) shares: Arc<SharedQuota>,
    pub(super) activity: Arc<ActivityCounters>,
    pub(super) members: Vec<u32>,
    slots: usize,
    /// Messages that fill slots, each with its connection.
    waiting: VecDeque<(u32, Message)>,
    watermark: Watermark,
    /// Fewer posted slots than this make an event.
    limit: Option<u32>,
    /// The most slots that were ever filled.
    pub(super) filled_max: usize,
    /// Messages that were reaped.
    pub(super) reaped: u64,
    /// Number of times that the queue ran low.
    pub(super) limit_events: u64,
}

impl Lane {
    pub(super) fn new(shape: &Shape) -> Self {
        let quota = SlotQuota::new(shape.slots, shape.connections_max, shape.credits_max);
        Self {
            shares: Arc::new(SharedQuota::new(quota)),
            activity: Arc::default(),
            members: Vec::new(),
            slots: shape.slots as usize,
            waiting: VecDeque::new(),
            watermark: Watermark::new(shape.slots),
            limit: None,
            filled_max: 0,
            reaped: 0,
            limit_events: 0,
        }
    }

    /// Puts a message into a slot, as the device does.
    ///
    /// # Panics
    ///
    /// Panics if there is none: on a real device the sender would have to try again, which no rule
    /// of credit may ever let happen.
    pub(super) fn receive(&mut self, link: u32, message: Message) {
        assert!(self.waiting.len() < self.slots, "a message found none of {} slots", self.slots);
        self.waiting.push_back((link, message));
        self.filled_max = self.filled_max.max(self.waiting.len());
        let posted = self.slots - self.waiting.len();
        if self.limit.take_if(|limit| posted < *limit as usize).is_some() {
            self.limit_events += 1;
            self.watermark.handle_limit();
            self.shares.change(SlotQuota::squeeze);
        }
    }

    /// Reaps as many messages as a tick allows.
    pub(super) fn reap(&mut self, into: &mut Vec<(u32, Message)>) {
        let count = self.waiting.len().min(BATCH);
        into.extend(self.waiting.drain(..count));
        self.reaped += count as u64;
    }

    /// Sees to its slots after `count` completions; true when idle peers are to be asked for
    /// theirs.
    pub(super) fn relieve(&mut self, count: usize) -> bool {
        let is_over = self.watermark.handle_completions(count);
        if is_over {
            self.shares.change(SlotQuota::relax);
        }
        self.limit = self.watermark.limit_to_arm(count).or(self.limit);
        is_over && self.shares.take_pressed()
    }

    /// Returns the number of filled slots.
    pub(super) fn filled(&self) -> usize {
        self.waiting.len()
    }
}
