//! Single events and their effects on a connection's state. The scripts (`crate::testing::script`)
//! check what holds after any sequence.

mod life;
mod proof;
mod timers;
mod traffic;

use std::rc::Rc;
use std::time::Duration;

use rpc_core::Deadline;
use rpc_core::transport::Withheld;

use super::*;
use crate::proto::flow::window::HeldQuota;
use crate::proto::remote_memory::RemoteMemory;
use crate::proto::rndv::get::{Due, GetRequest, ReadLimits};
use crate::proto::wire::{AtsStatus, Grant, MessageHeader, RTS_LEN_MAX, Rts, RtsSegment};
use crate::quota::slots::{SharedQuota, SlotQuota};
use crate::stats::lane::ActivityCounters;
use crate::testing::script::buffers::{
    BindState, Binding, Books, OfferedFrame, ScriptBuffers, Share, Slot, Token, Window,
};
use crate::testing::script::input::{TIMEOUTS, clock, now, set_now};

const OUR_EPOCH: u32 = 1;
const PEER_EPOCH: u32 = 2;
const PEER_KEY: RemoteKey = RemoteKey(9);
const CHUNK_LEN: u32 = 1000;
const READ_BYTES: u64 = 2000;

fn pass(time: Duration) {
    set_now(now() + time);
}

/// An outgoing message, simplified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Message(MessageKind),
    Invalidate,
    Read { len: u32 },
}

/// A connection whose device and peer are the test.
struct Alone {
    state: ConnectionState<ScriptBuffers>,
    books: Books,
    counters: Arc<Counters>,
    cancellations: Arc<Cancellations>,
    activity: Arc<ActivityCounters>,
    /// The device's READ bytes, for this connection and others.
    share: Share,
    /// Credits that the peer has granted, and the number of reserve messages that it has seen.
    granted: u32,
    seen: u16,
    /// Work that the device has and has not completed.
    posted: VecDeque<Transmit<ScriptBuffers>>,
}

impl Alone {
    /// A connection without memory windows, whose READs go with its messages.
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Rules)) -> Self {
        set_now(Instant::now());
        let mut rules = Rules {
            our_epoch: OUR_EPOCH,
            peer_epoch: PEER_EPOCH,
            stale_max: 2,
            memory_windows_max: 0,
            takes_keys_away: false,
            send_depth: 8,
            reads_with_messages: true,
            proves_fully: false,
            timeouts: TIMEOUTS,
        };
        change(&mut rules);
        let quota = Arc::new(SharedQuota::new(SlotQuota::new(32, 4, 8)));
        let (books, granted) = (Books::default(), 4);
        let (counters, cancellations) = (Arc::default(), Arc::default());
        let activity = Arc::default();
        let taken = Rc::default();
        let [share, state_share] =
            [(); 2].map(|()| Share { max: READ_BYTES, taken: Rc::clone(&taken) });
        let limits = ReadLimits { queues: 1, per_queue: 2, total: 2 };
        let held = HeldQuota::take(&quota).expect("there are slots");
        let state = ConnectionState::new(Parts {
            rules,
            flow: FlowWindow::new(held, granted, Arc::clone(&activity)),
            control_slots: (0..4).map(|_| Slot::new(&books, CONTROL_SLOT_LEN)).collect(),
            rndv_get: RndvGet::new(limits, CHUNK_LEN),
            read_throttle: ReadThrottle::new(state_share, CHUNK_LEN, 1),
            counters: Arc::clone(&counters),
            cancellations: Arc::clone(&cancellations),
        });
        let (seen, posted) = (0, VecDeque::new());
        Self { state, books, counters, cancellations, activity, share, granted, seen, posted }
    }

    /// The same, open.
    fn open(change: impl FnOnce(&mut Rules)) -> Self {
        let mut alone = Self::with(change);
        alone.handle(Event::Open);
        alone
    }

    fn handle(&mut self, event: Event<'_, ScriptBuffers>) {
        self.state.handle(event, &mut clock());
    }

    /// Returns the outgoing work and hands it to the device.
    fn sent(&mut self) -> Vec<Out> {
        let mut sent = Vec::new();
        while let Some(transmit) = self.state.poll_transmit(&mut clock()) {
            sent.push(match &transmit {
                Transmit::Message { slot, .. } | Transmit::Offer { slot, .. } => {
                    let (header, _) = MessageHeader::parse(slot).expect("it begins with a header");
                    assert_eq!(header.epoch, PEER_EPOCH);
                    self.seen += u16::from(header.kind.is_reserved());
                    Out::Message(header.kind)
                }
                Transmit::Invalidate(_) => Out::Invalidate,
                Transmit::Read(chunk) => Out::Read { len: chunk.len },
            });
            self.posted.push_back(transmit);
        }
        sent
    }

    /// The device is done with what it has had for longest.
    fn complete(&mut self) {
        let event = match self.posted.pop_front().expect("the device has something") {
            Transmit::Message { slot, permit: None, .. } => Event::SentControl(slot),
            Transmit::Message { .. } | Transmit::Offer { binding: None, .. } => Event::Sent,
            Transmit::Offer { binding: Some(mut binding), .. } => {
                self.handle(Event::Sent);
                binding.state = BindState::Bound;
                Event::Bound(binding)
            }
            Transmit::Invalidate(mut binding) => {
                binding.state = BindState::Dead;
                Event::Invalidated(binding)
            }
            Transmit::Read(chunk) => {
                Event::Read { queue: 0, len: chunk.len, sink: chunk.sink, is_read: true }
            }
        };
        self.handle(event);
    }

    fn complete_all(&mut self) {
        while !self.posted.is_empty() {
            self.complete();
        }
    }

    /// The peer says something, and what it is granted for that goes out.
    fn say(&mut self, kind: MessageKind, body: &[u8]) {
        self.say_with(kind, body, None);
    }

    fn say_with(&mut self, kind: MessageKind, body: &[u8], taken_key: Option<RemoteKey>) {
        let grant = Grant { count: self.granted, control_seen: self.seen, wants_more: false };
        let header = MessageHeader { kind, epoch: OUR_EPOCH, grant };
        let message = [&header.to_bytes()[..], body].concat();
        self.handle(Event::Message { bytes: &message, taken_key });
    }

    /// The peer wants more credit.
    fn ask_for_credit(&mut self) {
        let grant = Grant { count: self.granted, control_seen: self.seen, wants_more: true };
        let header = MessageHeader { kind: MessageKind::Grant, epoch: OUR_EPOCH, grant };
        self.handle(Event::Message { bytes: &header.to_bytes(), taken_key: None });
    }

    /// The peer grants so much more.
    fn grant(&mut self, more: u32) {
        self.granted += more;
        self.say(MessageKind::Grant, &[]);
    }

    fn send(&mut self, outgoing: Outgoing<ScriptBuffers>) {
        self.state.send(outgoing).expect("it is open");
    }

    fn send_frame(&mut self) {
        let (slot, permit) = (Slot::new(&self.books, 256), Token::new(&self.books));
        self.send(Outgoing::Frame { slot, len: 100, permit });
    }

    fn send_large(&mut self, call: u64) {
        let (slot, permit) = (Slot::new(&self.books, 256), Token::new(&self.books));
        let payload = OfferedFrame::frame(&self.books);
        self.send(Outgoing::Rts { payload, slot, permit, call, is_given_up: false });
    }

    /// The peer offers a frame of so many bytes behind its header, which the handler wants.
    fn accept(&mut self, transfer: u32, len: u64, deadline: Option<Duration>) {
        let memory = RemoteMemory { address: 4096, key: PEER_KEY };
        let offer = Rts { head: vec![1; HEADER_LEN], segments: vec![RtsSegment { memory, len }] };
        let mut body = [0; RTS_LEN_MAX];
        let body_len = offer.write(&mut body);
        self.say(MessageKind::Rts { transfer }, &body[..body_len]);
        let arrival = self.state.poll_delivery();
        assert!(matches!(arrival, Some(Arrival::Rts { transfer: of, .. }) if of == transfer));
        let wanted = GetRequest {
            call: 7,
            prefix: offer.prefix(),
            head: offer.head,
            deadline: deadline.map(|after| Deadline(now() + after)),
            memory_by: Deadline(now() + TIMEOUTS.memory()),
            segments: offer.segments.into(),
        };
        self.handle(Event::Accept { transfer, wanted });
    }

    /// The owner takes memory for the transfers that are due.
    fn give_memory(&mut self) {
        while let Some(Due { transfer, len, .. }) = self.state.next_memory() {
            let len = usize::try_from(len).expect("it is short");
            let sink = Rc::new((Token::new(&self.books), len));
            self.handle(Event::Memory { transfer, sink });
        }
    }

    fn actions(&mut self) -> Vec<Action<ScriptBuffers>> {
        std::iter::from_fn(|| self.state.poll_action()).collect()
    }

    fn deliveries(&mut self) -> usize {
        std::iter::from_fn(|| self.state.poll_delivery()).count()
    }

    /// The next deadline passes, and nothing is unread.
    fn time_out(&mut self) {
        self.time_out_with(false, Duration::ZERO);
    }

    fn time_out_with(&mut self, has_unread: bool, late_by: Duration) {
        let at = self.state.next_deadline().expect("a deadline is armed");
        set_now(at);
        self.handle(Event::Timeout(Look { now: at, has_unread, late_by }));
    }

    /// Returns the time until the next deadline.
    fn left(&mut self) -> Option<Duration> {
        self.state.next_deadline().map(|at| at - now())
    }

    fn end(&self) -> Option<CloseReason> {
        self.state.end_reason().cloned()
    }

    fn has_violation(&self) -> bool {
        matches!(self.end(), Some(CloseReason::Protocol(_)))
    }
}

/// The bytes of a message that went out, as far as it says that it is long.
fn bytes_of(transmit: &Transmit<ScriptBuffers>) -> &[u8] {
    match transmit {
        Transmit::Message { slot, len, .. } | Transmit::Offer { slot, len, .. } => {
            &slot[..*len as usize]
        }
        Transmit::Invalidate(_) | Transmit::Read(_) => panic!("{transmit:?} is no message"),
    }
}
