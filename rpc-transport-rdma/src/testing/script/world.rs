//! The surroundings of a connection's state in a script: the peer, the handler, the application and
//! the clock. The device is in `device`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rpc_core::Deadline;
use rpc_core::transport::{CloseReason, Withheld};
use rpc_core::wire::HEADER_LEN;
use tokio::time::Instant;

use super::buffers::{Access, Books, OfferedFrame, Queue, ScriptBuffers, Share, Slot, Token};
use super::input::{Input, Seen};
use super::peer::{OUR_EPOCH, OfferedToPeer, PEER_EPOCH, Peer};
use crate::proto::connection::{
    Arrival, ArrivalOf, CONTROL_SLOT_LEN, ConnectionState, Event, Look, Outgoing, PROOF_HEAD_LEN,
    Parts, Rules,
};
use crate::proto::flow::window::{FlowWindow, HeldQuota};
use crate::proto::remote_memory::{RemoteKey, RemoteMemory};
use crate::proto::rndv::get::{Due, GetRequest, ReadLimits, RndvGet};
use crate::proto::rndv::throttle::ReadThrottle;
use crate::proto::wire::{AtsStatus, MessageHeader, MessageKind, RTS_LEN_MAX, Rts, RtsSegment};
use crate::quota::slots::{SharedQuota, SlotQuota};
use crate::testing::script::input::{TIMEOUTS, clock, now, set_now};

const SLOTS: u32 = 32;
const CONTROL_SLOTS: usize = 4;
pub(super) const SEND_DEPTH: usize = 12;
const GRANT: u32 = 4;
const CHUNK_LEN: u32 = 10_000;
/// READ bytes of the device: less than the READs that may be outstanding could take.
pub(super) const READ_BYTES: u64 = 25_000;
const SLOT_LEN: usize = 256;
/// The longest frame that there is memory for.
const SINK_LEN_MAX: u64 = 1 << 20;

pub(super) struct World {
    /// `None` when the queue pairs are gone.
    pub(super) state: Option<ConnectionState<ScriptBuffers>>,
    pub(super) books: Books,
    pub(super) quota: Arc<SharedQuota>,
    pub(super) share: Share,
    pub(super) peer: Peer,
    /// The queue of the messages, and those of READs alone.
    pub(super) messages: Queue,
    pub(super) reads: Vec<Queue>,
    pub(super) is_halted: bool,
    /// Set while the device only flushes.
    pub(super) is_flushing: bool,
    /// The key of a bind whose offer is not posted yet.
    pub(super) bound: Option<RemoteKey>,
    /// Set if the device takes one request at a time.
    pub(super) is_slow: bool,
    pub(super) memory_windows_left: u32,
    pub(super) next_key: u32,
    pub(super) arrivals: VecDeque<ArrivalOf<ScriptBuffers>>,
    pub(super) memory_wanted: Vec<Due>,
    pub(super) turn_wanted: Option<u32>,
    pub(super) takes_memory: bool,
    pub(super) next_call: u64,
    pub(super) seen: Seen,
}

impl World {
    /// A connection whose kind is in the low bits: with or without windows, queue pairs for READs,
    /// and a proof of the whole path.
    pub(super) fn new(kind: u8) -> Self {
        set_now(Instant::now());
        let (memory_windows_max, read_queues) = (usize::from(kind & 1) * 3, usize::from(kind & 2));
        let quota = Arc::new(SharedQuota::new(SlotQuota::new(SLOTS, 4, 8)));
        let holding = HeldQuota::take(&quota).expect("there are slots");
        let allowed = holding.window();
        let books = Books::default();
        let taken = Rc::default();
        let share = |taken: &Rc<Cell<u64>>| Share { max: READ_BYTES, taken: Rc::clone(taken) };
        let queues = read_queues.max(1);
        let limits = ReadLimits { queues, per_queue: 2, total: 3 };
        let state = ConnectionState::new(Parts {
            rules: Rules {
                our_epoch: OUR_EPOCH,
                peer_epoch: PEER_EPOCH,
                stale_max: 2,
                memory_windows_max,
                takes_keys_away: memory_windows_max > 0,
                send_depth: SEND_DEPTH,
                reads_with_messages: read_queues == 0,
                proves_fully: kind & 16 != 0,
                timeouts: TIMEOUTS,
            },
            flow: FlowWindow::new(holding, GRANT, Arc::default()),
            control_slots: (0..CONTROL_SLOTS)
                .map(|_| Slot::new(&books, CONTROL_SLOT_LEN))
                .collect(),
            rndv_get: RndvGet::new(limits, CHUNK_LEN),
            read_throttle: ReadThrottle::new(share(&taken), CHUNK_LEN, queues),
            counters: Arc::default(),
            cancellations: Arc::default(),
        });
        Self {
            state: Some(state),
            share: share(&taken),
            books,
            quota,
            peer: Peer::new(GRANT, allowed),
            messages: Queue::default(),
            reads: (0..read_queues).map(|_| Queue::default()).collect(),
            is_halted: false,
            is_flushing: false,
            bound: None,
            is_slow: kind & 4 != 0,
            memory_windows_left: if kind & 8 == 0 { 2 } else { 0 },
            next_key: 0,
            arrivals: VecDeque::new(),
            memory_wanted: Vec::new(),
            turn_wanted: None,
            takes_memory: false,
            next_call: 0,
            seen: Seen::default(),
        }
    }

    /// Something happens.
    pub(super) fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 26 {
            0 => self.handle(Event::Open),
            1 | 2 => self.send_frame(input),
            3 | 4 => self.send_large(),
            5 => self.send(Outgoing::Control([1; HEADER_LEN])),
            6 => self.abandon(input),
            7 | 8 => self.peer_says(MessageKind::Frame, &[2; HEADER_LEN]),
            9 | 10 => self.peer_offers(input),
            11 | 12 => self.peer_releases(input),
            13 => self.peer_grants(input),
            14 => self.peer_withdraws(input),
            15 => self.peer_answers(input),
            16..=18 => self.complete(input, true),
            19 => self.give_memory(input),
            20 => self.give_turn(),
            21 | 22 => self.arrive(input),
            23 => self.pass_time(input),
            24 => self.rarely(input),
            _ => (0..4).for_each(|_| self.complete(input, true)),
        }
        self.check();
    }

    /// Plays a rare event, which would soon end most scripts if it were as frequent as the rest.
    fn rarely(&mut self, input: &mut Input<'_>) {
        match input.byte() {
            0..16 => self.handle(Event::Close),
            16..24 => self.handle(Event::Fail(CloseReason::Local)),
            24..32 => self.complete(input, false),
            32..64 => self.lie(input),
            64..128 => self.handle(Event::Reclaim),
            128..144 => self.handle(Event::Probe),
            144..160 => self.peer_proves(input),
            160..192 => self.is_slow ^= true,
            _ => self.peer_says(MessageKind::Probe, &[]),
        }
    }

    pub(super) fn state(&mut self) -> &mut ConnectionState<ScriptBuffers> {
        self.state.as_mut().expect("it is there until the script's end")
    }

    /// Tells the state of an event and does what it asks for.
    pub(super) fn handle(&mut self, event: Event<'_, ScriptBuffers>) {
        self.state().handle(event, &mut clock());
        self.pump();
    }

    fn send(&mut self, outgoing: Outgoing<ScriptBuffers>) {
        let sent = self.state().send(outgoing);
        drop(sent);
        self.pump();
    }

    fn send_frame(&mut self, input: &mut Input<'_>) {
        let len = HEADER_LEN + usize::from(input.byte() % 32);
        let (slot, permit) = (Slot::new(&self.books, SLOT_LEN), Token::new(&self.books));
        self.seen.frames_sent += 1;
        self.send(Outgoing::Frame { slot, len, permit });
    }

    fn send_large(&mut self) {
        self.next_call += 1;
        let (slot, permit) = (Slot::new(&self.books, SLOT_LEN), Token::new(&self.books));
        let payload = OfferedFrame::frame(&self.books);
        let call = self.next_call / 2;
        self.seen.offers_sent += 1;
        self.send(Outgoing::Rts { payload, slot, permit, call, is_given_up: false });
    }

    fn abandon(&mut self, input: &mut Input<'_>) {
        let call = u64::from(input.byte()) % (self.next_call + 1);
        self.handle(Event::Abandon { call });
    }

    fn peer_says(&mut self, kind: MessageKind, body: &[u8]) {
        if let Some(message) = self.peer.say(kind, body) {
            self.hear(&message, None);
        }
    }

    /// A message arrives, and the device takes the key away that comes with it.
    fn hear(&mut self, message: &[u8], taken_key: Option<RemoteKey>) {
        if let Some(key) = taken_key {
            self.books.borrow_mut().shut(Access::Key(key));
        }
        if let Ok((header, _)) = MessageHeader::parse(message)
            && header.epoch == OUR_EPOCH
            && let MessageKind::Ats { transfer, .. } = header.kind
        {
            self.books.borrow_mut().shut(Access::Transfer(transfer));
        }
        self.handle(Event::Message { bytes: message, taken_key });
    }

    fn lie(&mut self, input: &mut Input<'_>) {
        let message = self.peer.lie(input.bytes(12));
        let keys = self.books.borrow().keys();
        let taken_key = match input.byte() % 4 {
            0 => input.pick(keys.len()).map(|at| keys[at]),
            _ => None,
        };
        // Before it is heard: what goes out by that follows what the connection believes.
        self.peer.has_lied = true;
        self.hear(&message, taken_key);
    }

    fn peer_offers(&mut self, input: &mut Input<'_>) {
        let transfer = self.peer.next_transfer();
        let count = 1 + usize::from(input.byte() % 2);
        let segment = |at: usize| {
            let memory = RemoteMemory { address: 4096 * at as u64, key: RemoteKey(9) };
            RtsSegment { memory, len: 1 + 300 * u64::from(input.byte()) }
        };
        // A header of a request whose call is in the first byte of its number.
        let mut head = vec![0; HEADER_LEN];
        head[0] = 1;
        head[8] = input_call(transfer);
        let offer = Rts { head, segments: (0..count).map(segment).collect() };
        let mut body = [0; RTS_LEN_MAX];
        let len = offer.write(&mut body);
        let message = self.peer.say(MessageKind::Rts { transfer }, &body[..len]);
        if let Some(message) = message {
            self.peer.offering.push(transfer);
            self.hear(&message, None);
        }
    }

    fn peer_proves(&mut self, input: &mut Input<'_>) {
        let transfer = self.peer.next_transfer();
        let memory = RemoteMemory { address: 4096, key: RemoteKey(9) };
        let segment = RtsSegment { memory, len: 1 + 100 * u64::from(input.byte()) };
        let segments = vec![segment; 1 + usize::from(input.byte() % 2)];
        let offer = Rts { head: vec![0; PROOF_HEAD_LEN], segments };
        let mut body = [0; RTS_LEN_MAX];
        let len = offer.write(&mut body);
        if let Some(message) = self.peer.say(MessageKind::Proof { transfer }, &body[..len]) {
            self.peer.offering.push(transfer);
            self.hear(&message, None);
        }
    }

    /// The owner has memory for our part of the path's proof.
    pub(super) fn send_proof(&mut self) {
        let (slot, permit) = (Slot::new(&self.books, SLOT_LEN), Token::new(&self.books));
        let payload = OfferedFrame::proof(&self.books);
        let sent =
            self.state().send(Outgoing::Rts { payload, slot, permit, call: 0, is_given_up: false });
        drop(sent);
    }

    fn peer_releases(&mut self, input: &mut Input<'_>) {
        let Some(at) = input.pick(self.peer.offers.len()) else { return };
        let OfferedToPeer { transfer, key, is_withdrawn } = self.peer.offers[at];
        let outcome = match (is_withdrawn, input.byte() % 2) {
            (true, 0) => AtsStatus::Stopped,
            (_, 1) => AtsStatus::Read,
            _ => AtsStatus::Refused,
        };
        let message = self.peer.say(MessageKind::Ats { transfer, outcome }, &[]);
        let Some(message) = message else { return };
        self.peer.offers.remove(at);
        // A release may come without the key; a key that was revoked is not there to be taken.
        let taken_key = key.filter(|key| {
            !input.byte().is_multiple_of(4) && self.books.borrow().keys().contains(key)
        });
        self.hear(&message, taken_key);
    }

    fn peer_grants(&mut self, input: &mut Input<'_>) {
        self.peer.grant(u32::from(input.byte() % 4) + 1);
        self.peer_says(MessageKind::Grant, &[]);
    }

    fn peer_withdraws(&mut self, input: &mut Input<'_>) {
        if let Some(at) = input.pick(self.peer.offering.len()) {
            let transfer = self.peer.offering[at];
            self.peer_says(MessageKind::Cancel { transfer }, &[]);
        }
    }

    fn peer_answers(&mut self, input: &mut Input<'_>) {
        if self.peer.is_reclaimed && input.byte().is_multiple_of(2) {
            if let Some(message) = self.peer.give_back() {
                self.hear(&message, None);
            }
        } else if self.peer.is_probed {
            self.peer_says(MessageKind::ProbeAnswer, &[]);
        } else {
            self.peer_says(MessageKind::Reclaim { keep: 1 }, &[]);
        }
    }

    /// The handler takes what has arrived first.
    fn arrive(&mut self, input: &mut Input<'_>) {
        match self.arrivals.pop_front() {
            None => {}
            Some(Arrival::Small(_)) => self.seen.frames_received += 1,
            Some(Arrival::Large(sink)) => drop(sink),
            Some(Arrival::Proof { sink, .. }) => {
                drop(sink);
                let is_good = !input.byte().is_multiple_of(8);
                self.handle(Event::ProofChecked { is_good });
            }
            Some(Arrival::Cancelled { transfer }) => self.handle(Event::Cancelled { transfer }),
            Some(Arrival::Rts { transfer, .. }) if input.byte().is_multiple_of(8) => {
                self.handle(Event::Refuse { transfer });
            }
            Some(Arrival::Rts { transfer, offer }) => {
                let deadline = match input.byte() % 4 {
                    0 => Some(Deadline(now() + Duration::from_secs(1))),
                    _ => None,
                };
                let wanted = GetRequest {
                    call: u64::from(input_call(transfer)),
                    prefix: offer.prefix(),
                    head: offer.head.clone(),
                    deadline,
                    memory_by: Deadline::after(now(), TIMEOUTS.memory()),
                    segments: offer.segments.into(),
                };
                self.handle(Event::Accept { transfer, wanted });
            }
        }
    }

    fn give_memory(&mut self, input: &mut Input<'_>) {
        let Some(at) = input.pick(self.memory_wanted.len()) else { return };
        let Due { transfer, len, .. } = self.memory_wanted.swap_remove(at);
        if len > SINK_LEN_MAX || input.byte().is_multiple_of(8) {
            let why = Withheld::NoMemory("the script has none".into());
            return self.handle(Event::NoMemory { transfer, why });
        }
        let len = usize::try_from(len).expect("it is short");
        if self.state().head(transfer, len).is_some() {
            let sink = Rc::new((Token::new(&self.books), len));
            self.handle(Event::Memory { transfer, sink });
        }
    }

    fn give_turn(&mut self) {
        let has_room = |len| self.share.taken.get() + u64::from(len) <= READ_BYTES;
        if let Some(len) = self.turn_wanted.filter(|len| has_room(*len)) {
            self.turn_wanted = None;
            let turn = self.share.turn(len.into());
            self.handle(Event::Turn(turn));
        }
    }

    /// Time passes, to the next deadline or not so far.
    fn pass_time(&mut self, input: &mut Input<'_>) {
        let deadline = self.state().next_deadline();
        let later = now() + Duration::from_millis(10 * u64::from(input.byte()));
        let at =
            deadline.filter(|_| !input.byte().is_multiple_of(4)).map_or(later, |at| at.max(now()));
        set_now(at);
        if let Some(deadline) = deadline.filter(|deadline| *deadline <= at) {
            self.seen.timeouts += 1;
            let (has_unread, late_by) = (input.byte().is_multiple_of(4), at - deadline);
            self.handle(Event::Timeout(Look { now: at, has_unread, late_by }));
        }
    }

    /// Checks the invariants that hold after every step.
    fn check(&mut self) {
        let is_halting = self.state().is_halting();
        assert_eq!(is_halting, self.is_halted, "an end that the queue pairs know of");
        // Nothing that was due is due for ever: a timer would never sleep again.
        for _ in 0..8 {
            let Some(at) = self.state().next_deadline().filter(|at| *at <= now()) else { return };
            let look = Look { now: now(), has_unread: false, late_by: now() - at };
            self.handle(Event::Timeout(look));
        }
        let next = self.state().next_deadline();
        assert!(next.is_none_or(|at| at > now()), "a deadline stays due");
    }

    /// The connection fails, if it has not, the device gives everything back, and the queue pairs
    /// are destroyed.
    pub(super) fn end(mut self) -> Seen {
        self.handle(Event::Fail(CloseReason::Peer));
        assert!(self.is_halted);
        for queue in 0..=self.reads.len() {
            loop {
                let of = match queue.checked_sub(1) {
                    Some(queue) => &mut self.reads[queue],
                    None => &mut self.messages,
                };
                let Some(request) = of.posted.pop_front() else { break };
                self.done(request, queue.saturating_sub(1), false);
            }
        }
        self.arrivals.clear();
        let (share, books) = (Rc::clone(&self.share.taken), Rc::clone(&self.books));
        assert_eq!(share.get(), 0, "READ bytes are not given back");
        books.borrow_mut().is_gone = true;
        self.state = None;
        let (live, promised) = (books.borrow().live_count(), self.quota.quota().promised());
        assert_eq!((live, promised), (0, 0), "buffers and receive slots that are not back");
        self.seen
    }
}

/// The call of what the peer offers.
fn input_call(transfer: u32) -> u8 {
    u8::try_from(transfer % 4).unwrap_or(0)
}
