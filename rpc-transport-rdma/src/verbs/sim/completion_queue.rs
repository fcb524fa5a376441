//! Completion queues of a simulated device, and the events that are armed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::agenda::Event;
use super::context::{SimContext, failed};
use super::span_ledger::SpanId;
use super::state::NetworkState;
use super::violation::SimViolation;
use super::waiter::Waiter;
use crate::verbs::{
    AsyncEvent, AsyncEventKind, RawCompletion, RawCompletionQueue, RawSegment, VerbsError,
};

/// The most completions that an event waits for.
const COALESCED_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct CompletionQueueState {
    context: u32,
    pub(super) device: usize,
    capacity: u32,
    completions: VecDeque<Entry>,
    is_armed: bool,
    /// An event is on its way, and comes after so many completions more at the latest; what is
    /// armed meanwhile becomes one with it.
    held_for: Option<u32>,
    has_event: bool,
    is_broken: bool,
}

/// A completion that waits to be polled.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) raw: RawCompletion,
    pub(super) origin: Origin,
    /// What is written when it is polled, and not before.
    pub(super) writes: Vec<LateWrite>,
}

/// Whose work has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// `ended` requests of a send queue.
    Send { queue_pair: u32, ended: usize },
    /// A receive.
    Receive { receive_queue: u32, span: SpanId, queue_pair: u32 },
}

/// Bytes that the device has and memory that has not.
#[derive(Debug)]
pub(super) struct LateWrite {
    pub(super) segment: RawSegment,
    pub(super) bytes: Box<[u8]>,
}

impl Origin {
    /// Whether two completions must keep their order.
    fn is_ordered_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Send { queue_pair: a, .. }, Self::Send { queue_pair: b, .. })
            | (Self::Receive { queue_pair: a, .. }, Self::Receive { queue_pair: b, .. }) => a == b,
            _ => false,
        }
    }
}

impl NetworkState {
    /// Puts a completion into its queue.
    pub(super) fn complete(&mut self, id: u32, entry: Entry) {
        let may_overtake = self.roll(self.faults.reordered_completion);
        let Some(queue) = self.completion_queues.get(&id) else { return };
        if queue.is_broken {
            return;
        }
        if queue.completions.len() >= queue.capacity as usize {
            let capacity = queue.capacity;
            self.report(SimViolation::CompletionQueueOverrun { capacity });
            self.break_completion_queue(id);
            return;
        }
        let len = queue.completions.len();
        let ordered = |other: &Entry| other.origin.is_ordered_with(entry.origin);
        let earliest = queue.completions.iter().rposition(ordered).map_or(0, |at| at + 1);
        let at = if may_overtake { earliest + self.pick(len - earliest + 1) } else { len };
        self.counters.reordered_completions += u64::from(at < len);
        let Some(queue) = self.completion_queues.get_mut(&id) else { return };
        queue.completions.insert(at, entry);
        let is_armed = std::mem::take(&mut queue.is_armed);
        if let Some(missing) = &mut queue.held_for {
            *missing = missing.saturating_sub(1);
            if *missing == 0 {
                self.notify(id);
            }
        } else if is_armed {
            self.notify_some_time(id);
        }
    }

    /// Lets an event come now, or holds it back.
    fn notify_some_time(&mut self, id: u32) {
        let held_for = if self.roll(self.faults.delayed_event) {
            self.counters.delayed_events += 1;
            u32::MAX
        } else if self.roll(self.faults.coalesced_event) {
            self.counters.coalesced_events += 1;
            u32::try_from(self.pick(COALESCED_MAX)).unwrap_or(0) + 1
        } else {
            return self.notify(id);
        };
        let at = self.after_delay(self.faults.event_delay_max);
        self.agenda.schedule(at, Event::Notify { completion_queue: id });
        if let Some(queue) = self.completion_queues.get_mut(&id) {
            queue.held_for = Some(held_for);
        }
    }

    /// The time of an event that was held back has come; it may have come before.
    pub(super) fn notify_late(&mut self, id: u32) {
        if self.completion_queues.get(&id).is_some_and(|queue| queue.held_for.is_some()) {
            self.notify(id);
        }
    }

    /// The event of a queue comes through.
    pub(super) fn notify(&mut self, id: u32) {
        if let Some(queue) = self.completion_queues.get_mut(&id) {
            queue.held_for = None;
            queue.has_event = true;
            self.wake(id);
        }
    }

    /// Makes a queue useless, with everything that completes into it.
    pub(super) fn break_completion_queue(&mut self, id: u32) {
        let Some(queue) = self.completion_queues.get_mut(&id) else { return };
        if std::mem::replace(&mut queue.is_broken, true) {
            return;
        }
        let kind = AsyncEventKind::CompletionQueueError;
        let context = queue.context;
        self.raise(context, AsyncEvent { kind, port: None, queue_pair_number: None });
        let hit = self.queue_pairs.iter().filter(|(_, state)| state.completion_queue == id);
        let hit: Vec<u32> = hit.map(|(queue_pair, _)| *queue_pair).collect();
        hit.into_iter().for_each(|queue_pair| self.break_down(queue_pair));
    }

    fn poll_completions(
        &mut self,
        id: u32,
        out: &mut [RawCompletion],
    ) -> Result<usize, VerbsError> {
        let mut count = 0;
        while count < out.len() {
            let queue = self.completion_queues.get_mut(&id);
            let queue = queue.filter(|queue| !queue.is_broken);
            let queue = queue.ok_or_else(|| failed("poll a completion queue", libc::EIO))?;
            let Some(entry) = queue.completions.pop_front() else { break };
            for write in entry.writes {
                self.scatter(write.segment, &write.bytes);
            }
            match entry.origin {
                Origin::Send { queue_pair, ended } => self.reap(queue_pair, ended),
                Origin::Receive { receive_queue, span, .. } => {
                    self.reap_receive(receive_queue, span);
                }
            }
            out[count] = entry.raw;
            count += 1;
        }
        Ok(count)
    }

    /// Throws out what a queue pair that is gone has left to be polled.
    pub(super) fn purge(&mut self, queue_pair: u32, completion_queue: u32) {
        let Some(queue) = self.completion_queues.get_mut(&completion_queue) else { return };
        let is_of_it = |origin| match origin {
            Origin::Send { queue_pair: of, .. } | Origin::Receive { queue_pair: of, .. } => {
                of == queue_pair
            }
        };
        let (purged, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut queue.completions)
            .into_iter()
            .partition(|entry| is_of_it(entry.origin));
        queue.completions = kept;
        self.counters.purged_completions += purged.len() as u64;
        for entry in purged {
            if let Origin::Receive { receive_queue, span, .. } = entry.origin {
                self.reap_receive(receive_queue, span);
            }
        }
    }

    /// What is still to be written on behalf of a queue that is gone is not written any more.
    pub(super) fn forget_writes(&mut self, is_gone: impl Fn(Origin) -> bool) {
        for queue in self.completion_queues.values_mut() {
            for entry in &mut queue.completions {
                if is_gone(entry.origin) {
                    entry.writes.clear();
                }
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct SimCompletionQueue {
    pub(super) context: Arc<SimContext>,
    pub(super) id: u32,
    capacity: u32,
    waiter: Waiter,
}

impl SimCompletionQueue {
    pub(super) fn create(context: Arc<SimContext>, capacity: u32) -> Result<Self, VerbsError> {
        let operation = "create a completion queue";
        let id = context.enter(operation, |state| {
            let device = context.device(state);
            let max = state.devices[device].config.attributes.completions_max;
            if capacity == 0 || capacity > max {
                return Err(failed(operation, libc::EINVAL));
            }
            let id = state.next_id();
            let queue = CompletionQueueState {
                context: context.id,
                device,
                capacity,
                completions: VecDeque::new(),
                is_armed: false,
                held_for: None,
                has_event: false,
                is_broken: false,
            };
            state.completion_queues.insert(id, queue);
            Ok(id)
        })?;
        Ok(Self { context, id, capacity, waiter: Waiter::default() })
    }
}

// SAFETY: each entry is popped once, and `NetworkState` makes it when the device is done with the
// memory of its request and of all before it: what is left to write is written before it is
// returned.
unsafe impl RawCompletionQueue for SimCompletionQueue {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn poll(&self, out: &mut [RawCompletion]) -> Result<usize, VerbsError> {
        self.context.fabric.enter(|state| state.poll_completions(self.id, out))
    }

    fn arm(&self) -> Result<(), VerbsError> {
        self.context.fabric.enter(|state| {
            let is_spurious = state.roll(state.faults.spurious_event);
            let Some(queue) = state.completion_queues.get_mut(&self.id) else { return };
            queue.is_armed = true;
            if is_spurious {
                state.counters.spurious_events += 1;
                state.notify(self.id);
            }
        });
        Ok(())
    }

    fn poll_event(&self, context: &mut Context<'_>) -> Poll<Result<(), VerbsError>> {
        self.waiter.poll(&self.context.fabric, self.id, context, |state| {
            let queue = state.completion_queues.get_mut(&self.id)?;
            std::mem::take(&mut queue.has_event).then_some(())
        })
    }

    fn has_event(&self) -> bool {
        self.context.fabric.enter(|state| {
            state.completion_queues.get(&self.id).is_some_and(|queue| queue.has_event)
        })
    }
}

impl Drop for SimCompletionQueue {
    fn drop(&mut self) {
        self.context.fabric.enter(|state| {
            let queue = state.completion_queues.remove(&self.id);
            // Receives whose completions will never be polled end here.
            for entry in queue.into_iter().flat_map(|queue| queue.completions) {
                if let Origin::Receive { span, .. } = entry.origin {
                    state.ledger.remove(span);
                }
            }
            state.stop_waiting(self.id);
        });
    }
}
