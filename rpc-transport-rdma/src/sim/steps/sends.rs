//! Posts to a simulated queue pair, and their ends.

use crate::AsyncEventKind;
use crate::sim::state::{Event, NetworkState, Origin, Phase, Request, SpanId, Usage, status};
use crate::sim::violation::SimViolation;
use crate::sys::provider::{PartialPost, RawOperation, RawSegment, RawSend};

/// The first number of a queue pair that is not reserved.
const FIRST_NUMBER: u32 = 17;

impl NetworkState {
    /// The lowest number that no queue pair of the device has: numbers are used again as soon as
    /// can be, because that is when one is mistaken for another.
    pub(crate) fn next_number(&mut self, device: usize) -> u32 {
        if let Some(script) = self.script(device) {
            script.queue_pairs += 1;
            return script.queue_pairs;
        }
        let siblings = self.queue_pairs.values().filter(|it| it.device == device);
        let taken: std::collections::BTreeSet<u32> = siblings.map(|it| it.number).collect();
        (FIRST_NUMBER..).find(|number| !taken.contains(number)).unwrap_or(FIRST_NUMBER)
    }

    pub(crate) fn post_sends(&mut self, id: u32, requests: &[RawSend]) -> Result<(), PartialPost> {
        let refuse = |accepted, errno| Err(PartialPost { accepted, errno });
        let Some(queue_pair) = self.queue_pairs.get(&id) else { return refuse(0, libc::EINVAL) };
        let (number, is_initial) = (queue_pair.number, matches!(queue_pair.phase, Phase::Initial));
        if self.contexts.get(&queue_pair.context).is_none_or(|context| context.is_dead) {
            return refuse(0, libc::EIO);
        }
        if is_initial {
            self.report(SimViolation::NotConnected { number });
            return refuse(0, libc::EINVAL);
        }
        let device = queue_pair.device;
        if self.is_scripted(device) {
            return self.record_sends(id, device, requests);
        }
        let refused = self.refused_part(id, requests.len());
        let mut result = Ok(());
        for (index, request) in requests.iter().enumerate() {
            let injected = refused.filter(|(at, _)| *at == index).map(|(_, errno)| errno);
            self.counters.refused_posts += u64::from(injected.is_some());
            let posted = injected.map_or(Ok(()), Err).and_then(|()| self.post_send(id, request));
            if let Err(errno) = posted {
                result = refuse(index, errno);
                break;
            }
        }
        self.work(id);
        result
    }

    /// Returns the position at which a post ends early by chance, and the error.
    fn refused_part(&mut self, id: u32, count: usize) -> Option<(usize, i32)> {
        let queue_pair = self.queue_pairs.get(&id).filter(|state| !state.is_error())?;
        // A device never reports an empty queue as full.
        let may_be_full = !queue_pair.spans.is_empty();
        if self.roll(self.faults.refused_post) {
            return Some((self.pick(count), libc::EIO));
        }
        (may_be_full && self.roll(self.faults.full_send_queue))
            .then(|| (self.pick(count), libc::ENOMEM))
    }

    pub(super) fn post_send(&mut self, id: u32, send: &RawSend) -> Result<(), i32> {
        let queue_pair = self.queue_pairs.get(&id).ok_or(libc::EINVAL)?;
        let (number, context) = (queue_pair.number, queue_pair.context);
        if queue_pair.spans.len() >= queue_pair.depth as usize {
            let depth = queue_pair.depth;
            self.report(SimViolation::SendQueueOverrun { number, depth });
            return Err(libc::ENOMEM);
        }
        let (len, max) = (send.segment.map_or(0, |segment| segment.len), queue_pair.inline_max);
        if send.inline && len > max {
            self.report(SimViolation::InlineTooLong { number, len, max });
            return Err(libc::EINVAL);
        }
        let message_len_max = self.devices[queue_pair.device].config.message_len_max;
        let checked = send.segment.map_or(Ok(()), |segment| self.check(context, send, segment));
        let is_too_long = len > message_len_max;
        let outcome = if is_too_long { Err(status::LOCAL_LENGTH) } else { checked };
        let span = self.note_span(send).filter(|_| checked.is_ok());
        let is_message =
            matches!(send.operation, RawOperation::Send | RawOperation::SendInvalidate(_));
        let posted = send.segment.filter(|_| is_message && checked.is_ok());
        let request = Request {
            work_id: send.work_id,
            operation: send.operation,
            segment: send.segment,
            is_signaled: send.signaled,
            is_inline: send.inline,
            posted: posted.and_then(|segment| self.gather(segment)),
            sequence: None,
            outcome: outcome.err().map(Err),
        };
        if let Some(queue_pair) = self.queue_pairs.get_mut(&id) {
            queue_pair.spans.push_back(span);
            queue_pair.requests.push_back(request);
        }
        Ok(())
    }

    /// Checks that a request may use the memory that it names.
    fn check(&mut self, context: u32, send: &RawSend, segment: RawSegment) -> Result<(), u32> {
        let (address, len) = (segment.address, segment.len);
        let Some(access) = self.region_of(context, segment).map(|region| region.access) else {
            self.report(SimViolation::UnknownMemory { address, len });
            return Err(status::LOCAL_PROTECTION);
        };
        if matches!(send.operation, RawOperation::Read(_)) && !access.is_sink() {
            self.report(SimViolation::WrongAccess { address, len });
            return Err(status::LOCAL_PROTECTION);
        }
        Ok(())
    }

    /// Records the memory that a request keeps until its completion was polled.
    fn note_span(&mut self, send: &RawSend) -> Option<SpanId> {
        let segment = send.segment.filter(|_| !send.inline)?;
        let (address, len) = (segment.address, segment.len);
        let is_read = matches!(send.operation, RawOperation::Read(_));
        let usage = if is_read { Usage::Writes } else { Usage::Reads };
        let (span, collides) = self.ledger.insert(address, len.into(), usage);
        if collides {
            self.report(SimViolation::MemoryInUse { address, len });
        }
        Some(span)
    }

    /// The completion of a queue pair's next `ended` requests has been polled.
    pub(crate) fn reap(&mut self, id: u32, ended: usize) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        let ended = ended.min(queue_pair.spans.len());
        let spans: Vec<_> = queue_pair.spans.drain(..ended).flatten().collect();
        spans.into_iter().for_each(|span| self.ledger.remove(span));
    }

    /// Moves a queue pair to the error state; what is in its send queue is flushed, later.
    pub(crate) fn fail(&mut self, id: u32) {
        let at = self.after_latency();
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        let device = queue_pair.device;
        if self.devices[device].is_scripted {
            queue_pair.phase = Phase::Error;
            self.devices[device].script.halts += 1;
            return;
        }
        if !matches!(std::mem::replace(&mut queue_pair.phase, Phase::Error), Phase::Error) {
            self.agenda.schedule(at, Event::Flush { queue_pair: id });
            if self.roll(self.faults.late_last_receive) {
                self.counters.late_last_receives += 1;
                let at = self.after_delay(self.faults.last_receive_delay_max);
                self.agenda.schedule(at, Event::LastReceive { queue_pair: id });
            } else {
                self.end_receives(id);
            }
        }
    }

    /// Throws out what a dead queue pair was receiving, after which it receives nothing.
    pub(crate) fn end_receives(&mut self, id: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        let (flushed, lost): (Vec<_>, Vec<_>) =
            std::mem::take(&mut queue_pair.held).into_iter().partition(|it| !it.is_lost);
        queue_pair.held = lost;
        for held in flushed {
            self.complete_receive(id, &held.posted, held.raw, Vec::new());
        }
        if self.roll(self.faults.missing_last_receive) {
            self.counters.missing_last_receives += 1;
        } else {
            self.raise_for(id, AsyncEventKind::LastReceiveReached);
        }
    }

    /// Breaks a queue pair for no fault of its own.
    pub(crate) fn break_down(&mut self, id: u32) {
        if self.queue_pairs.get(&id).is_some_and(|queue_pair| !queue_pair.is_error()) {
            self.counters.broken_queue_pairs += 1;
            self.raise_for(id, AsyncEventKind::QueuePairFatal);
            self.fail(id);
        }
    }

    /// Lets nothing be heard of a queue pair any more.
    pub(crate) fn silence(&mut self, id: u32) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(&id) {
            queue_pair.is_silent = true;
            queue_pair.phase = Phase::Error;
        }
    }

    pub(crate) fn destroy_queue_pair(&mut self, id: u32) {
        let Some(queue_pair) = self.queue_pairs.remove(&id) else { return };
        for span in queue_pair.spans.into_iter().flatten() {
            self.ledger.remove(span);
        }
        for held in queue_pair.held {
            self.reap_receive(queue_pair.receive_queue, held.posted.span);
        }
        if self.roll(self.faults.purge_on_destroy) {
            self.purge(id, queue_pair.completion_queue);
        }
        let (number, context) = (queue_pair.number, queue_pair.context);
        let window_count = self.windows.len();
        if let Some(script) = self.script(queue_pair.device) {
            script.destroyed += 1;
            script.windows_at_destruction += window_count;
        }
        // No event names a queue pair that is gone: another may soon have its number.
        if let Some(context) = self.contexts.get_mut(&context) {
            context.events.retain(|event| event.queue_pair_number != Some(number));
        }
        let bound = self
            .windows
            .iter_mut()
            .filter(|(_, window)| window.bound.is_some_and(|bound| bound.queue_pair == id));
        let mut has_older = false;
        for (window_id, window) in bound {
            window.bound = None;
            has_older |= *window_id < id;
        }
        if has_older {
            self.report(SimViolation::DestroyedBound { number });
        }
        self.forget_writes(
            |origin| matches!(origin, Origin::Send { queue_pair, .. } if queue_pair == id),
        );
    }
}
