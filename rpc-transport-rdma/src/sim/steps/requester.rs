//! The sending half of a simulated queue pair: requests leave in order, are answered in order and
//! complete in order.
//!
//! Whatever is not answered in time is sent again from the first request that is not, as a new
//! attempt; packets of older attempts mean nothing. The peer knows by a request's sequence number
//! whether it has executed it before.

use crate::AsyncEventKind;
use crate::sim::state::{
    Answer, Entry, Event, LateWrite, Nanos, NetworkState, Origin, Packet, RETRY_FOR_EVER, Request,
    acknowledgement_timeout, opcode, status,
};
use crate::sys::provider::{RawCompletion, RawOperation, RawSegment};

/// Byte that a device may leave in memory that it is about to write.
const RUBBISH: u8 = 0xdb;

impl NetworkState {
    /// Does what a queue pair can do now.
    pub(crate) fn work(&mut self, id: u32) {
        self.issue(id);
        self.finish(id);
        let is_left = self
            .queue_pairs
            .get(&id)
            .is_some_and(|state| state.is_error() && !state.requests.is_empty());
        if is_left {
            let at = self.after_latency();
            self.agenda.schedule(at, Event::Flush { queue_pair: id });
        }
    }

    /// Issues requests as far as order, READs outstanding and the peer allow.
    fn issue(&mut self, id: u32) {
        while let Some(queue_pair) = self.queue_pairs.get(&id) {
            let Some(path) = queue_pair.path().filter(|_| !queue_pair.wire.is_paused) else {
                return;
            };
            let reads_max = usize::from(path.agreement.reads_out);
            let Some(request) = queue_pair.requests.get(queue_pair.issued) else { return };
            match (request.outcome, request.operation) {
                (Some(Err(_)), _) => return,
                (Some(Ok(())), _) => self.mark_issued(id, None),
                (None, RawOperation::Bind(bind)) => {
                    let outcome = self.bind(id, bind);
                    self.mark_issued(id, Some(outcome));
                }
                (None, RawOperation::Invalidate(key)) => {
                    let is_valid = self.invalidate(id, key);
                    let outcome = is_valid.then_some(()).ok_or(status::LOCAL_OPERATION);
                    self.mark_issued(id, Some(outcome));
                }
                (None, operation) => {
                    let reads = queue_pair.unanswered().filter(|other| is_read(other.operation));
                    let read_count = reads.count();
                    if is_read(operation) && read_count >= reads_max {
                        return;
                    }
                    self.transmit(id);
                }
            }
        }
    }

    /// The next request has been issued, and perhaps is done.
    fn mark_issued(&mut self, id: u32, outcome: Option<Result<(), u32>>) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        let next = queue_pair.issued;
        queue_pair.issued += 1;
        if let (Some(request), Some(outcome)) = (queue_pair.requests.get_mut(next), outcome) {
            request.outcome = Some(outcome);
        }
    }

    /// Puts the next request on the wire.
    fn transmit(&mut self, id: u32) {
        if self.roll(self.faults.broken_queue_pair) {
            self.mark_issued(id, Some(Err(status::LOCAL_OPERATION)));
            self.counters.broken_queue_pairs += 1;
            self.raise_for(id, AsyncEventKind::QueuePairFatal);
            return;
        }
        let (now, delay) = (self.now, self.after_latency() - self.now + self.retransmission());
        let leaves = self.depart(id, self.message_len(id));
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        let lag_port = queue_pair.lag_port;
        let Some(path) = queue_pair.path() else { return };
        let (timeout, traffic_class) = (path.options.timeout, path.traffic_class);
        let is_first = queue_pair.unanswered().next().is_none();
        let Some(request) = queue_pair.requests.get_mut(queue_pair.issued) else { return };
        let wire = &mut queue_pair.wire;
        let sequence = *request.sequence.get_or_insert_with(|| {
            wire.next_sequence = wire.next_sequence.wrapping_add(1);
            wire.next_sequence.wrapping_sub(1)
        });
        let at = (leaves + delay).max(wire.last_arrival);
        wire.keep_moving(now, leaves);
        wire.last_arrival = at;
        if is_first {
            wire.last_progress = now;
        }
        let needs_timer = !std::mem::replace(&mut wire.has_timer, true);
        let attempt = wire.attempt;
        let packet = Packet { queue_pair: id, sequence, attempt, lag_port, traffic_class };
        queue_pair.issued += 1;
        self.count_sent(packet);
        self.agenda.schedule(at, Event::Arrive(packet));
        if needs_timer {
            let at = now + acknowledgement_timeout(timeout);
            self.agenda.schedule(at, Event::Timeout { queue_pair: id });
        }
    }

    /// Returns the number of bytes that the next request of a queue pair brings with it.
    fn message_len(&self, id: u32) -> u64 {
        let next = self.queue_pairs.get(&id).and_then(|it| it.requests.get(it.issued));
        let next = next.filter(|request| !is_read(request.operation));
        next.and_then(|request| request.segment).map_or(0, |segment| segment.len.into())
    }

    /// Returns the delay of a message of which a part is retransmitted.
    fn retransmission(&mut self) -> Nanos {
        if !self.roll(self.faults.retransmission) {
            return 0;
        }
        self.counters.retransmissions += 1;
        self.after_delay(self.faults.retransmission_delay_max) - self.now
    }

    /// An answer comes back.
    pub(crate) fn answer(&mut self, packet: Packet, answer: Answer) {
        let id = packet.queue_pair;
        let Some(queue_pair) = self.queue_pairs.get(&id) else { return };
        let Some(path) = queue_pair.path() else { return };
        let (retries, rnr_retries) = (path.options.retry_count, path.options.rnr_retry);
        let is_current = queue_pair.wire.attempt == packet.attempt;
        if !is_current || !self.carries(queue_pair.device) || self.loses(packet) {
            return;
        }
        let is_cut = match &answer {
            Answer::Done(Some(bytes)) => self.cuts(bytes),
            _ => false,
        };
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        let is_answered = |request: &Request| {
            request.sequence == Some(packet.sequence) && request.outcome.is_none()
        };
        let Some(index) = queue_pair.requests.iter().position(is_answered) else { return };
        queue_pair.wire.last_progress = now;
        queue_pair.wire.retries = retries;
        if !matches!(answer, Answer::NotReady { .. }) {
            queue_pair.wire.rnr_retries = rnr_retries;
        }
        match answer {
            Answer::Done(Some(bytes)) if is_cut => self.land_cut(id, index, &bytes),
            Answer::Done(bytes) => {
                queue_pair.requests[index].outcome = Some(Ok(()));
                self.land(id, index, bytes);
            }
            Answer::Refused(status) => queue_pair.requests[index].outcome = Some(Err(status)),
            Answer::NotReady { .. } if queue_pair.wire.rnr_retries == 0 => {
                queue_pair.requests[index].outcome = Some(Err(status::RECEIVER_NOT_READY));
            }
            Answer::NotReady { wait } => {
                if queue_pair.wire.rnr_retries != RETRY_FOR_EVER {
                    queue_pair.wire.rnr_retries -= 1;
                }
                queue_pair.wire.is_paused = true;
                let attempt = self.begin_again(id);
                self.agenda.schedule(now + wait, Event::Resume { queue_pair: id, attempt });
                return;
            }
        }
        self.work(id);
    }

    /// Puts the bytes of a READ where they belong, now or at the last legal moment.
    fn land(&mut self, id: u32, index: usize, bytes: Option<Box<[u8]>>) {
        let Some(mut bytes) = bytes else { return };
        let Some(queue_pair) = self.queue_pairs.get(&id) else { return };
        let Some(path) = queue_pair.path() else { return };
        let packet_len = usize::from(path.agreement.mtu.bytes());
        let request = queue_pair.requests.get(index);
        let Some(segment) = request.and_then(|request| request.segment) else { return };
        self.corrupt(&mut bytes);
        self.make_stale(segment, packet_len, &mut bytes);
        let bytes = self.shorten(bytes);
        if !self.roll(self.faults.late_write) {
            self.scatter(segment, &bytes);
            return;
        }
        self.counters.late_writes += 1;
        self.scatter(segment, &vec![RUBBISH; bytes.len()]);
        if let Some(queue_pair) = self.queue_pairs.get_mut(&id) {
            queue_pair.writes.push(LateWrite { segment, bytes });
        }
    }

    /// Flips a bit of a READ's bytes, by chance.
    fn corrupt(&mut self, bytes: &mut [u8]) {
        if bytes.is_empty() || !self.roll(self.faults.corrupt_read) {
            return;
        }
        self.counters.corrupt_reads += 1;
        let bit = self.pick(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    /// Replaces a packet of a READ's bytes by those that the memory has, by chance.
    fn make_stale(&mut self, segment: RawSegment, packet_len: usize, bytes: &mut [u8]) {
        if bytes.is_empty() || !self.roll(self.faults.stale_read) {
            return;
        }
        self.counters.stale_reads += 1;
        let packet = self.pick(bytes.len().div_ceil(packet_len));
        let Some(old) = self.gather(segment) else { return };
        let packets = bytes.chunks_mut(packet_len).zip(old.chunks(packet_len));
        for (bytes, old) in packets.skip(packet).take(1) {
            bytes.copy_from_slice(old);
        }
    }

    /// Returns the part of a READ's bytes that is written at all.
    fn shorten(&mut self, bytes: Box<[u8]>) -> Box<[u8]> {
        if bytes.is_empty() || !self.roll(self.faults.short_read) {
            return bytes;
        }
        self.counters.short_reads += 1;
        let len = self.pick(bytes.len());
        bytes[..len].into()
    }

    /// Returns true if a transfer of these bytes ends in the middle.
    pub(crate) fn cuts(&mut self, bytes: &[u8]) -> bool {
        let is_cut = bytes.len() > 1 && self.roll(self.faults.cut_transfer);
        self.counters.cut_transfers += u64::from(is_cut);
        is_cut
    }

    /// Puts the first bytes of a READ where they belong, of which no more come.
    fn land_cut(&mut self, id: u32, index: usize, bytes: &[u8]) {
        let len = 1 + self.pick(bytes.len() - 1);
        let request = self.queue_pairs.get_mut(&id).and_then(|it| it.requests.get_mut(index));
        let Some(request) = request else { return };
        request.outcome = Some(Err(status::RETRY_EXCEEDED));
        if let Some(segment) = request.segment {
            self.scatter(segment, &bytes[..len]);
        }
    }

    /// Begins a new attempt from the first request without an answer.
    fn begin_again(&mut self, id: u32) -> u32 {
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return 0 };
        queue_pair.issued = 0;
        queue_pair.wire.attempt = queue_pair.wire.attempt.wrapping_add(1);
        queue_pair.wire.attempt
    }

    /// A queue pair has waited for a receiver that was not ready.
    pub(crate) fn resume(&mut self, id: u32, attempt: u32) {
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        if queue_pair.wire.attempt == attempt {
            queue_pair.wire.is_paused = false;
            queue_pair.wire.last_progress = now;
            self.work(id);
        }
    }

    /// The acknowledgement timeout may have passed.
    pub(crate) fn time_out(&mut self, id: u32) {
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        queue_pair.wire.has_timer = false;
        let Some(timeout) = queue_pair.path().map(|path| path.options.timeout) else { return };
        let is_waiting = queue_pair.wire.is_paused || queue_pair.unanswered().next().is_some();
        if !is_waiting {
            return;
        }
        let timeout = acknowledgement_timeout(timeout);
        let due = queue_pair.wire.last_progress.max(queue_pair.wire.moving_until) + timeout;
        if !queue_pair.wire.is_paused && due <= now {
            self.retry(id);
        }
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        if queue_pair.path().is_some() && !std::mem::replace(&mut queue_pair.wire.has_timer, true) {
            let at = if due > now { due } else { now + timeout };
            self.agenda.schedule(at, Event::Timeout { queue_pair: id });
        }
    }

    /// Sends again what was not answered in time, or gives up.
    fn retry(&mut self, id: u32) {
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        queue_pair.wire.last_progress = now;
        if queue_pair.wire.retries > 0 {
            queue_pair.wire.retries -= 1;
            self.counters.timeouts += 1;
            self.begin_again(id);
        } else if let Some(request) =
            queue_pair.requests.iter_mut().find(|request| request.outcome.is_none())
        {
            request.outcome = Some(Err(status::RETRY_EXCEEDED));
        }
        self.work(id);
    }

    /// Completes what is done, in order, up to the first that failed.
    fn finish(&mut self, id: u32) {
        while let Some(queue_pair) = self.queue_pairs.get_mut(&id) {
            if queue_pair.is_error() {
                return;
            }
            let Some(outcome) = queue_pair.requests.front().and_then(|front| front.outcome) else {
                return;
            };
            let Some(request) = queue_pair.requests.pop_front() else { return };
            queue_pair.issued = queue_pair.issued.saturating_sub(1);
            match outcome {
                Ok(()) if !request.is_signaled => queue_pair.silent += 1,
                Ok(()) => self.complete_request(id, &request, 0),
                Err(status) => {
                    self.complete_request(id, &request, status);
                    self.fail(id);
                }
            }
        }
    }

    /// Throws out everything that is left.
    pub(crate) fn flush(&mut self, id: u32) {
        while let Some(queue_pair) = self.queue_pairs.get_mut(&id) {
            if queue_pair.is_silent {
                return;
            }
            let Some(request) = queue_pair.requests.pop_front() else { return };
            let landed =
                request.segment.filter(|_| is_read(request.operation) && request.outcome.is_none());
            // A READ that is thrown out may have written anything until its flush is polled.
            if let Some(segment) = landed
                && self.roll(self.faults.late_write)
            {
                let bytes = vec![RUBBISH; segment.len as usize].into_boxed_slice();
                if let Some(queue_pair) = self.queue_pairs.get_mut(&id) {
                    queue_pair.writes.push(LateWrite { segment, bytes });
                }
            }
            self.complete_request(id, &request, status::FLUSHED);
        }
    }

    /// Reports a request, with everything before it that succeeded in silence.
    fn complete_request(&mut self, id: u32, request: &Request, status: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(&id) else { return };
        let raw = RawCompletion {
            work_id: request.work_id,
            status,
            opcode: match request.operation {
                RawOperation::Send | RawOperation::SendInvalidate(_) => opcode::SEND,
                RawOperation::Read(_) => opcode::READ,
                RawOperation::Bind(_) => opcode::BIND,
                RawOperation::Invalidate(_) => opcode::INVALIDATE,
            },
            byte_len: request.segment.map_or(0, |segment| segment.len),
            queue_pair_number: queue_pair.number,
            ..RawCompletion::default()
        };
        let ended = std::mem::take(&mut queue_pair.silent) + 1;
        let writes = std::mem::take(&mut queue_pair.writes);
        let origin = Origin::Send { queue_pair: id, ended };
        let completion_queue = queue_pair.completion_queue;
        self.complete(completion_queue, Entry { raw, origin, writes });
    }
}

fn is_read(operation: RawOperation) -> bool {
    matches!(operation, RawOperation::Read(_))
}
