//! The queue against a model: senders, the connection's task, a socket and a peer. The property
//! test interleaves their steps.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use rpc_core::pool::Pool;
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};
use tokio::sync::Semaphore;

use super::*;
use crate::codec::record::{FRAME_LEN_LEN, RECORD_HEADER_LEN, RecordHeader, RecordKind};
use crate::send::frame::{FrameBuffer, LargeShare};

/// The budget for large frames, which must be whole again at the end.
const BUDGET: usize = 1 << 30;

#[derive(Debug, Clone)]
enum ModelStep {
    Small(usize),
    /// A large frame with a head and a tail of these lengths.
    Large(usize, usize),
    Ack,
    Cork,
    Uncork,
    /// A delivery has woken this many tasks.
    Woken(u64),
    /// Cancels the call of one of the large frames.
    Abandon(usize),
    /// One of the senders makes a step.
    Sender(usize),
    Driver,
    /// The peer's kernel accepts this many bytes.
    Take(usize),
    /// The peer acknowledges everything that it has read.
    PeerAck,
    Wait(Duration),
    Drain,
    Close,
}

fn step() -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        6 => prop_oneof![HEADER_LEN..300, 2_000..5_000_usize].prop_map(ModelStep::Small),
        3 => (HEADER_LEN..200_000_usize, 0..200_000_usize)
            .prop_map(|(head_len, tail_len)| ModelStep::Large(head_len, tail_len)),
        1 => Just(ModelStep::Ack),
        2 => Just(ModelStep::Cork),
        2 => Just(ModelStep::Uncork),
        2 => (0..2 * DEFERRED_COUNT_MIN).prop_map(ModelStep::Woken),
        1 => any::<usize>().prop_map(ModelStep::Abandon),
        12 => any::<usize>().prop_map(ModelStep::Sender),
        6 => Just(ModelStep::Driver),
        4 => prop_oneof![1..200_000_usize, Just(3 << 20)].prop_map(ModelStep::Take),
        2 => Just(ModelStep::PeerAck),
        1 => (0..20_000_u64).prop_map(|ms| ModelStep::Wait(Duration::from_millis(ms))),
    ]
}

/// The state of the connection's task, as in `drive_writes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    Asleep,
    Yielding,
    AwaitingSocket,
    Writing,
    Over,
}

/// The bytes that the peer has read.
#[derive(Default)]
struct Peer {
    unparsed: Vec<u8>,
    small: Vec<u64>,
    /// The frame and its missing bytes, by transfer.
    transfers: HashMap<u32, (u64, usize)>,
    large: Vec<u64>,
    acks: Vec<u64>,
    chunk_bytes: u64,
    /// End of the last chunk that wants an ack.
    wanted: u64,
    acked: u64,
}

impl Peer {
    fn read(&mut self, bytes: &[u8]) {
        let mut unparsed = std::mem::take(&mut self.unparsed);
        unparsed.extend_from_slice(bytes);
        let mut rest = &unparsed[..];
        while let Some((header, body)) = rest.split_first_chunk::<RECORD_HEADER_LEN>() {
            let header = RecordHeader::parse(header).expect("the record is good");
            let Some((mut body, behind)) = body.split_at_checked(header.len) else { break };
            rest = behind;
            match header.kind {
                RecordKind::Single => self.small.push(id_of(body)),
                RecordKind::Ack => {
                    self.acks
                        .push(u64::from_le_bytes(body.try_into().expect("it is 8 bytes long")));
                }
                RecordKind::First => {
                    let (len, chunk) =
                        body.split_first_chunk::<FRAME_LEN_LEN>().expect("its length");
                    let len = usize::try_from(u64::from_le_bytes(*len)).expect("it is in memory");
                    let earlier = self.transfers.insert(header.transfer, (id_of(chunk), len));
                    assert_eq!(earlier, None, "a number has one frame at a time");
                    body = chunk;
                    self.read_chunk(header, body);
                }
                RecordKind::Next => self.read_chunk(header, body),
            }
        }
        self.unparsed = rest.to_vec();
    }

    fn read_chunk(&mut self, header: RecordHeader, chunk: &[u8]) {
        self.chunk_bytes += chunk.len() as u64;
        if header.wants_ack {
            self.wanted = self.chunk_bytes;
        }
        let (id, missing) = self.transfers.get_mut(&header.transfer).expect("it has begun");
        *missing = missing.checked_sub(chunk.len()).expect("no chunk goes beyond its frame");
        let is_own = |byte: &u8| *byte == fill_of(*id);
        let bytes = if header.kind == RecordKind::First { &chunk[HEADER_LEN..] } else { chunk };
        assert!(bytes.iter().all(is_own), "the bytes are the frame's");
        if *missing == 0 {
            self.large.push(*id);
            self.transfers.remove(&header.transfer);
        }
    }
}

fn id_of(frame: &[u8]) -> u64 {
    let header = frame.first_chunk::<HEADER_LEN>().expect("a header is whole");
    FrameHeader::parse(header).expect("the header is good").call
}

fn fill_of(id: u64) -> u8 {
    id.to_le_bytes()[0]
}

struct Model {
    queue: SendQueue,
    scheduler: WriteScheduler,
    is_locked: bool,
    /// Senders that write, or were told to.
    senders: Vec<Option<Pass>>,
    driver: Driver,
    driver_pass: Option<Pass>,
    is_driver_told: bool,
    socket: Vec<u8>,
    socket_room: usize,
    peer: Peer,
    now: Instant,
    budget: Arc<Semaphore>,
    is_corked: bool,
    small_ids: Vec<u64>,
    large_ids: Vec<u64>,
    abandoned: Vec<u64>,
    ack: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            queue: SendQueue::default(),
            scheduler: WriteScheduler::default(),
            is_locked: false,
            senders: Vec::new(),
            driver: Driver::Asleep,
            driver_pass: None,
            is_driver_told: false,
            socket: Vec::new(),
            socket_room: 100_000,
            peer: Peer::default(),
            now: Instant::now(),
            budget: Arc::new(Semaphore::new(BUDGET)),
            is_corked: false,
            small_ids: Vec::new(),
            large_ids: Vec::new(),
            abandoned: Vec::new(),
            ack: 0,
        }
    }

    fn take(&mut self, step: &ModelStep) {
        match *step {
            ModelStep::Small(len) => self.push(len, None),
            ModelStep::Large(head_len, tail_len) => self.push(head_len, Some(tail_len)),
            ModelStep::Ack if self.queue.close_reason().is_none() => {
                self.ack += 1;
                let is_to_write = self.queue.push_ack(self.ack);
                self.add_sender(is_to_write);
            }
            ModelStep::Cork => {
                self.queue.cork();
                self.is_corked = true;
            }
            ModelStep::Uncork => self.uncork(),
            ModelStep::Woken(count) => self.queue.set_woken(count),
            ModelStep::Abandon(index) if !self.large_ids.is_empty() => {
                let id = self.large_ids[index % self.large_ids.len()];
                self.queue.abandon(id);
                self.abandoned.push(id);
            }
            ModelStep::Sender(index) if !self.senders.is_empty() => {
                self.step_sender(index % self.senders.len());
            }
            ModelStep::Driver => self.step_driver(),
            ModelStep::Take(len) => {
                let taken: Vec<_> = self.socket.drain(..len.min(self.socket.len())).collect();
                self.socket_room = len;
                self.peer.read(&taken);
            }
            ModelStep::PeerAck => self.acknowledge(),
            ModelStep::Wait(time) => self.now += time,
            ModelStep::Drain => {
                self.queue.drain();
                self.uncork();
                self.is_driver_told = true;
            }
            ModelStep::Close => {
                self.queue.close(CloseReason::Peer);
                self.senders.push(None);
            }
            ModelStep::Ack | ModelStep::Abandon(_) | ModelStep::Sender(_) => {}
        }
        self.check();
    }

    fn push(&mut self, head_len: usize, tail_len: Option<usize>) {
        if self.queue.close_reason().is_some() {
            return;
        }
        let id = (self.small_ids.len() + self.large_ids.len()) as u64 + 1;
        let mut memory = Pool::new(0).take(RECORD_HEADER_LEN + head_len);
        memory.fill(fill_of(id));
        memory[RECORD_HEADER_LEN..][..HEADER_LEN]
            .copy_from_slice(&FrameHeader::bare(FrameKind::Request, id).to_bytes());
        let frame = match tail_len {
            None => {
                self.small_ids.push(id);
                FrameBuffer::small(memory).into_frame()
            }
            Some(tail_len) => {
                self.large_ids.push(id);
                let permits = u32::try_from(head_len + tail_len).expect("it is short");
                let permit = Arc::clone(&self.budget).try_acquire_many_owned(permits).unwrap();
                let share = LargeShare { _permit: permit, _charge: MemoryCharge::default() };
                Frame::Large(LargeFrame::new(
                    memory,
                    Bytes::from(vec![fill_of(id); tail_len]),
                    share,
                ))
            }
        };
        let is_to_write = self.queue.push(frame, head_len + tail_len.unwrap_or(0));
        self.add_sender(is_to_write);
    }

    fn add_sender(&mut self, is_to_write: bool) {
        self.is_driver_told |= self.queue.takes_deferral();
        if is_to_write {
            self.senders.push(None);
        }
    }

    fn uncork(&mut self) {
        let is_to_write = self.queue.uncork();
        self.is_corked = false;
        self.add_sender(is_to_write);
    }

    fn acknowledge(&mut self) {
        if self.peer.acked < self.peer.wanted {
            self.peer.acked = self.peer.chunk_bytes;
            let acked = self.peer.acked;
            self.is_driver_told |= self.queue.handle_ack(acked, self.now).expect("the ack is good");
        }
    }

    fn step_sender(&mut self, index: usize) {
        let Some(mut pass) = self.senders[index].take() else {
            if self.is_locked {
                self.senders.swap_remove(index);
            } else {
                self.is_locked = true;
                self.senders[index] = Some(Pass::new(Writer::Sender));
            }
            return;
        };
        if self.write(&mut pass) {
            self.senders[index] = Some(pass);
        } else {
            self.senders.swap_remove(index);
        }
    }

    fn step_driver(&mut self) {
        match self.driver {
            Driver::Over => {}
            Driver::Asleep => {
                // A task that takes over also looks without a notification.
                self.is_driver_told = false;
                self.look();
            }
            Driver::AwaitingSocket if self.socket_room == 0 => {}
            Driver::AwaitingSocket | Driver::Yielding => {
                if self.driver == Driver::AwaitingSocket {
                    self.queue.handle_writable();
                }
                if self.is_locked {
                    self.driver = Driver::Asleep;
                } else {
                    self.is_locked = true;
                    self.driver = Driver::Writing;
                    self.driver_pass = Some(Pass::new(Writer::Driver));
                }
            }
            Driver::Writing => {
                let mut pass = self.driver_pass.take().expect("it writes");
                if self.write(&mut pass) {
                    self.driver_pass = Some(pass);
                } else {
                    self.look();
                }
            }
        }
    }

    fn look(&mut self) {
        self.driver = match self.queue.turn() {
            _ if self.queue.is_over() => Driver::Over,
            Turn::Idle | Turn::Anyone | Turn::Driver(Blocked::WindowFull) => Driver::Asleep,
            Turn::Driver(Blocked::TurnOver | Blocked::Deferred) => Driver::Yielding,
            Turn::Driver(Blocked::SocketFull) => Driver::AwaitingSocket,
        };
    }

    /// Asks for the next step, and writes once. Returns false if the pass is over.
    fn write(&mut self, pass: &mut Pass) -> bool {
        let now = self.now;
        let is_held_back = self.queue.window.is_owed_ack() && !self.queue.is_draining();
        let in_flight = self.queue.window.in_flight();
        let next = self.queue.next(&mut self.scheduler, pass, || now);
        let window = &self.queue.window;
        if is_held_back && window.is_paced() && window.in_flight() > in_flight {
            assert!(window.in_flight() <= window.len(), "{window:?}");
        }
        if next != Next::Write {
            self.is_locked = false;
            self.is_driver_told |= next == Next::Yield;
            return false;
        }
        let slices = self.scheduler.slices();
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        assert!(!bytes.is_empty() && slices.iter().all(|slice| !slice.is_empty()));
        drop(slices);
        let len = bytes.len().min(self.socket_room);
        self.socket.extend_from_slice(&bytes[..len]);
        self.socket_room -= len;
        self.scheduler.advance(len);
        pass.advance(len, len < bytes.len());
        true
    }

    /// Checks that queued frames have a party that writes them.
    fn check(&self) {
        let is_over = self.queue.is_over();
        if !self.senders.is_empty() || self.is_corked || is_over || self.driver == Driver::Writing {
            return;
        }
        assert!(!self.is_locked);
        let is_driver_up = self.is_driver_told || self.driver == Driver::Yielding;
        match self.queue.turn() {
            Turn::Anyone => panic!("no task was told to write"),
            Turn::Idle => {
                assert!(!self.queue.has_small() && self.queue.ack.is_none());
                assert!(self.queue.large.is_empty() && !self.scheduler.has_large());
                assert!(self.scheduler.is_at_boundary());
                assert_eq!(self.queue.small_bytes(), 0);
            }
            Turn::Driver(Blocked::TurnOver | Blocked::Deferred) => assert!(is_driver_up),
            Turn::Driver(Blocked::SocketFull) => {
                assert!(is_driver_up || self.driver == Driver::AwaitingSocket);
            }
            Turn::Driver(Blocked::WindowFull) => {
                assert!(!self.queue.window.may_send(self.now), "an ack has come");
                assert!(!self.queue.has_small() && self.queue.ack.is_none());
            }
        }
    }

    /// Runs every party until nothing is left to do.
    fn settle(&mut self) {
        self.uncork();
        for _ in 0..10_000 {
            while let Some(index) = self.senders.len().checked_sub(1) {
                self.step_sender(index);
            }
            let is_driver_idle = self.driver == Driver::Over
                || self.driver == Driver::Asleep && !self.is_driver_told;
            if is_driver_idle && self.socket.is_empty() && self.peer.acked >= self.peer.wanted {
                self.check();
                return;
            }
            self.take(&ModelStep::Driver);
            self.take(&ModelStep::Take(1 << 20));
            self.acknowledge();
        }
        panic!("it does not come to rest");
    }

    /// Checks that nothing is held any more.
    fn check_freed(&self) {
        assert_eq!(self.queue.small_bytes(), 0);
        assert!(!self.queue.is_busy());
        assert_eq!(self.budget.available_permits(), BUDGET);
        assert!(self.scheduler.slices().is_empty());
    }
}

proptest! {
    #[test]
    fn every_frame_is_written_once_and_in_order(
        steps in prop::collection::vec(step(), 0..150),
        is_drained: bool,
    ) {
        let mut model = Model::new();
        steps.iter().for_each(|step| model.take(step));
        if is_drained {
            model.take(&ModelStep::Drain);
        }
        model.settle();
        model.check_freed();
        let peer = &model.peer;
        prop_assert_eq!(&peer.small, &model.small_ids);
        prop_assert!(peer.acks.is_sorted() && peer.acks.last().copied().unwrap_or(0) == model.ack);
        prop_assert!(peer.transfers.is_empty() && peer.unparsed.is_empty());
        let mut large = peer.large.clone();
        large.sort_unstable();
        let is_due = |id: &&u64| large.contains(id) || !model.abandoned.contains(id);
        let due: Vec<_> = model.large_ids.iter().filter(is_due).copied().collect();
        prop_assert_eq!(large, due);
        let sent = model.queue.sent();
        prop_assert_eq!(sent.small_count, model.small_ids.len() as u64);
        prop_assert_eq!(sent.large_count, model.large_ids.len() as u64);
        prop_assert_eq!(model.driver == Driver::Over, is_drained);
    }

    #[test]
    fn a_close_at_any_point_frees_everything(
        before in prop::collection::vec(step(), 0..80),
        is_draining: bool,
        after in prop::collection::vec(step(), 0..20),
    ) {
        let mut model = Model::new();
        before.iter().for_each(|step| model.take(step));
        if is_draining {
            model.take(&ModelStep::Drain);
        }
        model.take(&ModelStep::Close);
        after.iter().for_each(|step| model.take(step));
        model.take(&ModelStep::Close);
        model.settle();
        model.check_freed();
        let reason = if is_draining { CloseReason::Local } else { CloseReason::Peer };
        prop_assert_eq!(model.queue.close_reason(), Some(&reason));
    }
}
