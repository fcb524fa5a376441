//! The receiving half of a simulated queue pair: what a request does when it arrives.

use crate::AsyncEventKind;
use crate::sim::SimGid;
use crate::sim::state::{
    Answer, Entry, Event, HeldReceive, LateWrite, NetworkState, Origin, Packet, Posted,
    QueuePairState, opcode, rnr_timer, status,
};
use crate::sim::violation::SimViolation;
use crate::sys::provider::{
    Partition, RawCompletion, RawOperation, RawSegment, RemoteKey, RemoteMemory,
};

/// Byte that a device may leave in memory that it is about to write.
const RUBBISH: u8 = 0xdb;

/// A direction of a path, as its requester sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

impl NetworkState {
    /// A request reaches the peer, if that is there.
    pub(crate) fn arrive(&mut self, packet: Packet) {
        let Some(requester) = self.queue_pairs.get(&packet.queue_pair) else { return };
        let is_current = requester.wire.attempt == packet.attempt && !requester.is_error();
        if !is_current || !self.carries(requester.device) || self.loses(packet) {
            return;
        }
        let Some(peer) = self.peer_of(packet.queue_pair) else { return };
        let Some(path) = self.queue_pairs.get(&peer).and_then(QueuePairState::path) else { return };
        let traffic_class = path.traffic_class;
        let Some(answer) = self.execute(peer, packet) else { return };
        let latency = self.after_latency() - self.now;
        let read_len = match &answer {
            Answer::Done(Some(bytes)) => Some(bytes.len() as u64),
            _ => None,
        };
        let leaves = self.depart(peer, read_len.unwrap_or(0));
        if let Some(requester) = self.queue_pairs.get_mut(&packet.queue_pair) {
            requester.wire.keep_moving(self.now, leaves);
        }
        let Some(peer) = self.queue_pairs.get_mut(&peer) else { return };
        let packet = Packet { traffic_class, lag_port: peer.lag_port, ..packet };
        let delay = read_len.map_or(0, |_| self.devices[peer.device].read_delay);
        let at = (leaves + latency + delay).max(peer.wire.last_answer);
        peer.wire.last_answer = at;
        self.count_sent(packet);
        self.agenda.schedule(at, Event::Answer(packet, answer));
    }

    /// The connected queue pair at the other end, if it takes this one for its peer.
    fn peer_of(&self, id: u32) -> Option<u32> {
        let here = self.queue_pairs.get(&id)?;
        let path = here.path()?;
        let ours = self.gid_of(here)?;
        let found = self.queue_pairs.iter().find(|(_, there)| {
            there.number == path.remote.queue_pair_number
                && self.carries(there.device)
                && self.gid_of(there).is_some_and(|theirs| {
                    theirs.gid == path.remote.gid
                        && self.paths.carry(ours.gid, ours.interface, theirs.gid)
                        && self.paths.carry(theirs.gid, theirs.interface, ours.gid)
                })
                && self.joins_partition(here, there)
                && there.path().is_some_and(|back| {
                    back.remote.queue_pair_number == here.number
                        && back.remote.gid == ours.gid
                        && back.remote.packet_sequence_number == path.packet_sequence_number
                        && path.remote.packet_sequence_number == back.packet_sequence_number
                })
        });
        found.map(|(id, _)| *id)
    }

    /// Returns true if the partitions of two ends let packets pass.
    fn joins_partition(&self, here: &QueuePairState, there: &QueuePairState) -> bool {
        let key = |queue_pair: &QueuePairState| {
            let port = usize::from(queue_pair.path()?.port).checked_sub(1)?;
            let port = self.devices[queue_pair.device].config.ports.get(port)?;
            Some(Partition::choose(&port.partition_keys).key)
        };
        key(here).zip(key(there)).is_some_and(|(here, there)| Partition::joins(here, there))
    }

    /// The entry of its port's table that a queue pair sends by.
    fn gid_of(&self, queue_pair: &QueuePairState) -> Option<SimGid> {
        let path = queue_pair.path()?;
        self.devices[queue_pair.device].config.gid_at(path.port, path.gid_index).copied()
    }

    /// Returns true if a path carries so many bytes from a queue pair, in its packets, or to it.
    fn fits(&self, id: u32, len: u64, direction: Direction) -> bool {
        let Some(queue_pair) = self.queue_pairs.get(&id) else { return false };
        let (Some(path), Some(ours)) = (queue_pair.path(), self.gid_of(queue_pair)) else {
            return false;
        };
        let (ours, theirs, mtu) = (ours.gid, path.remote.gid, path.agreement.mtu);
        match direction {
            Direction::Out => self.paths.fits(ours, theirs, mtu, len),
            Direction::In => self.paths.fits(theirs, ours, mtu, len),
        }
    }

    /// Executes a request unless it was executed before; `None` when it comes too early.
    fn execute(&mut self, peer: u32, packet: Packet) -> Option<Answer> {
        let requester = self.queue_pairs.get(&packet.queue_pair)?;
        let requests = requester.requests.iter();
        let mut requests = requests.filter(|it| it.sequence == Some(packet.sequence));
        let request = requests.next()?;
        let (operation, len) = (request.operation, request.segment.map_or(0, |it| it.len));
        let direction = match operation {
            RawOperation::Read(_) => Direction::In,
            _ => Direction::Out,
        };
        if !self.fits(packet.queue_pair, len.into(), direction) {
            return None;
        }
        let expected = self.queue_pairs.get(&peer)?.expected;
        let ahead = packet.sequence.wrapping_sub(expected);
        let is_repeated = ahead > u32::MAX / 2;
        if ahead != 0 && !is_repeated {
            return None;
        }
        let answer = match operation {
            // A READ changes nothing, so it is simply done again.
            RawOperation::Read(memory) => self.execute_read(peer, memory, len),
            RawOperation::Send if is_repeated => Answer::Done(None),
            RawOperation::SendInvalidate(_) if is_repeated => Answer::Done(None),
            RawOperation::Send => self.execute_send(peer, packet, None),
            RawOperation::SendInvalidate(key) => self.execute_send(peer, packet, Some(key)),
            RawOperation::Bind(_) | RawOperation::Invalidate(_) => return None,
        };
        if !is_repeated && matches!(answer, Answer::Done(_)) {
            let peer = self.queue_pairs.get_mut(&peer)?;
            peer.expected = peer.expected.wrapping_add(1);
        }
        Some(answer)
    }

    fn execute_read(&mut self, peer: u32, memory: RemoteMemory, len: u32) -> Answer {
        let path = self.queue_pairs.get(&peer).and_then(QueuePairState::path);
        let serves = path.is_some_and(|path| path.serves_reads);
        let bytes = self.read_for_peer(peer, memory, len.into()).filter(|_| serves);
        if let Some(bytes) = bytes {
            self.counters.reads += 1;
            return Answer::Done(Some(bytes));
        }
        self.counters.refused_accesses += 1;
        self.raise_for(peer, AsyncEventKind::QueuePairAccessError);
        self.fail(peer);
        Answer::Refused(status::REMOTE_ACCESS)
    }

    fn execute_send(&mut self, peer: u32, packet: Packet, key: Option<RemoteKey>) -> Answer {
        let Some(state) = self.queue_pairs.get(&peer) else { return Answer::Done(None) };
        let (receive_queue, number) = (state.receive_queue, state.number);
        let timer = state.path().map_or(0, |path| path.options.rnr_timer);
        let is_unready = self.roll(self.faults.receiver_not_ready);
        if is_unready || !self.has_receive(receive_queue) {
            self.counters.receiver_not_ready += 1;
            return Answer::NotReady { wait: rnr_timer(timer) };
        }
        let payload = self.departing(packet);
        let Some(posted) = self.take_receive(receive_queue) else { return Answer::Done(None) };
        let mut raw = RawCompletion {
            work_id: posted.receive.work_id,
            opcode: opcode::RECEIVE,
            byte_len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            queue_pair_number: number,
            ..RawCompletion::default()
        };
        let mut writes = Vec::new();
        let mut answer = Answer::Done(None);
        if self.cuts(&payload) && raw.byte_len <= posted.receive.segment.len {
            let len = 1 + self.pick(payload.len() - 1);
            self.scatter(posted.receive.segment, &payload[..len]);
            raw.status = status::FLUSHED;
            self.hold(peer, posted, raw);
            return Answer::Refused(status::RETRY_EXCEEDED);
        } else if raw.byte_len > posted.receive.segment.len {
            raw.status = status::LOCAL_LENGTH;
            answer = Answer::Refused(status::REMOTE_INVALID_REQUEST);
        } else if key.is_some_and(|key| !self.invalidate(peer, key)) {
            // The sender has done nothing that its device could see.
            raw.status = status::REMOTE_INVALID_REQUEST;
            self.counters.refused_accesses += 1;
            self.raise_for(peer, AsyncEventKind::QueuePairRequestError);
        } else {
            raw.invalidated_key = key;
            self.counters.messages += 1;
            writes = self.deliver(posted.receive.segment, payload);
        }
        self.complete_receive(peer, &posted, raw, writes);
        if raw.status != 0 {
            self.fail(peer);
        }
        answer
    }

    /// A queue pair has heard the last of its peer in the middle of a message. The receive is
    /// thrown out with its queue pair, or never heard of again.
    fn hold(&mut self, peer: u32, posted: Posted, raw: RawCompletion) {
        let is_lost = self.roll(self.faults.lost_receive);
        self.counters.lost_receives += u64::from(is_lost);
        if let Some(state) = self.queue_pairs.get_mut(&peer) {
            state.held.push(HeldReceive { posted, raw, is_lost });
        }
        self.fail(peer);
    }

    /// The bytes of a message as they leave, which must be those that were posted.
    fn departing(&mut self, packet: Packet) -> Box<[u8]> {
        let requester = self.queue_pairs.get_mut(&packet.queue_pair);
        let request = requester.and_then(|state| {
            state.requests.iter_mut().find(|it| it.sequence == Some(packet.sequence))
        });
        let Some(request) = request else { return Box::default() };
        let is_inline = request.is_inline;
        let posted = request.posted.take().unwrap_or_default();
        let Some(segment) = request.segment.filter(|_| !is_inline) else { return posted };
        let departing = self.gather(segment).unwrap_or_default();
        if departing != posted {
            let (address, len) = (segment.address, segment.len);
            self.report(SimViolation::ChangedInFlight { address, len });
        }
        departing
    }

    /// Writes a message to its slot now, or gives back what is to be written later.
    fn deliver(&mut self, segment: RawSegment, payload: Box<[u8]>) -> Vec<LateWrite> {
        if !self.roll(self.faults.late_write) {
            self.scatter(segment, &payload);
            return Vec::new();
        }
        self.counters.late_writes += 1;
        self.scatter(segment, &vec![RUBBISH; segment.len as usize]);
        vec![LateWrite { segment, bytes: payload }]
    }

    /// Reports a receive.
    pub(crate) fn complete_receive(
        &mut self,
        peer: u32,
        posted: &Posted,
        raw: RawCompletion,
        writes: Vec<LateWrite>,
    ) {
        let Some(state) = self.queue_pairs.get(&peer) else { return };
        let (receive_queue, span) = (state.receive_queue, posted.span);
        let origin = Origin::Receive { receive_queue, span, queue_pair: peer };
        self.complete(state.completion_queue, Entry { raw, origin, writes });
    }
}
