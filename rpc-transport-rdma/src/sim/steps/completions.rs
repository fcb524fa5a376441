//! Completions, and the events that are armed.

use std::collections::VecDeque;

use crate::AsyncEventKind;
use crate::sim::state::{Entry, Event, NetworkState, Origin, failed};
use crate::sim::violation::SimViolation;
use crate::sys::provider::{AsyncEvent, RawCompletion, VerbsError};

/// The most completions that an event waits for.
const COALESCED_MAX: usize = 16;

impl NetworkState {
    /// Puts a completion into its queue.
    pub(crate) fn complete(&mut self, id: u32, entry: Entry) {
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
    pub(crate) fn notify_late(&mut self, id: u32) {
        if self.completion_queues.get(&id).is_some_and(|queue| queue.held_for.is_some()) {
            self.notify(id);
        }
    }

    /// The event of a queue comes through.
    pub(crate) fn notify(&mut self, id: u32) {
        if let Some(queue) = self.completion_queues.get_mut(&id) {
            queue.held_for = None;
            queue.has_event = true;
            if !self.devices[queue.device].script.is_silent {
                self.wake(id);
            }
        }
    }

    /// Asks for an event of the next completion.
    pub(crate) fn arm(&mut self, id: u32) {
        let is_spurious = self.roll(self.faults.spurious_event);
        let Some(queue) = self.completion_queues.get_mut(&id) else { return };
        queue.is_armed = false;
        let device = queue.device;
        let completed = self.script(device).map(|script| std::mem::take(&mut script.when_armed));
        for raw in completed.unwrap_or_default() {
            self.complete_by_script(device, raw);
        }
        if let Some(queue) = self.completion_queues.get_mut(&id) {
            queue.is_armed = true;
        }
        if is_spurious {
            self.counters.spurious_events += 1;
            self.notify(id);
        }
    }

    /// Takes the event of a queue, unless the device makes none.
    pub(crate) fn take_event(&mut self, id: u32) -> Option<()> {
        let queue = self.completion_queues.get_mut(&id)?;
        let is_silent = self.devices[queue.device].script.is_silent;
        (!is_silent && std::mem::take(&mut queue.has_event)).then_some(())
    }

    /// Returns true if an event is there, or something to poll that a silenced device has none for.
    pub(crate) fn has_event(&self, id: u32) -> bool {
        self.completion_queues.get(&id).is_some_and(|queue| {
            match self.devices[queue.device].script.is_silent {
                true => !queue.completions.is_empty(),
                false => queue.has_event,
            }
        })
    }

    /// Makes a queue useless, with everything that completes into it.
    pub(crate) fn break_completion_queue(&mut self, id: u32) {
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

    pub(crate) fn poll_completions(
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
        let device = self.completion_queues.get(&id).map_or(0, |queue| queue.device);
        if let Some(flood) = self.devices.get(device).and_then(|device| device.script.flood) {
            out[count..].fill(flood);
            count = out.len();
        }
        Ok(count)
    }

    /// Throws out what a queue pair that is gone has left to be polled.
    pub(crate) fn purge(&mut self, queue_pair: u32, completion_queue: u32) {
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

    /// Drops the pending writes of a queue that is gone.
    pub(crate) fn forget_writes(&mut self, is_gone: impl Fn(Origin) -> bool) {
        for queue in self.completion_queues.values_mut() {
            for entry in &mut queue.completions {
                if is_gone(entry.origin) {
                    entry.writes.clear();
                }
            }
        }
    }
}
