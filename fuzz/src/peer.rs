//! The peer of a session: carries out what a script says, as a transport would.

use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use bytes::Bytes;
use rpc_core::calls::window::Window;
use rpc_core::handoff::Handoff;
use rpc_core::transport::{Admission, CloseReason, Delivery, Handler, Withheld};
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN, ProtocolError};
use rpc_core::{Compression, Limits};

use crate::craft::{Craft, Rarely, stuck_call};
use crate::flood::{Flood, Target};
use crate::heap::Heap;
use crate::ledger::{Ledger, View};
use crate::scripted::Scripted;

/// The most steps of one script.
pub(crate) const STEPS_MAX: usize = 100;

/// Number of turns that tasks get between two steps: enough to finish everything that a step
/// causes.
const TURNS: usize = 12;

/// Frames from this length on are announced.
const LARGE_LEN: usize = 256;

/// Both sides' limits, small so that scripts meet them.
const NARROW: Limits = Limits::DEFAULTS
    .with_max_message_len(8 << 10)
    .with_max_metadata_len(256)
    .with_max_calls(8)
    .with_max_receiving_bytes(16 << 10)
    .with_max_stream_messages(4)
    .with_max_stream_bytes(1 << 10);

/// Limits with windows that are wide for the memory that a call has otherwise, so that what a
/// window does not count shows.
const WIDE: Limits = Limits::DEFAULTS
    .with_max_message_len(2 << 10)
    .with_max_metadata_len(1 << 10)
    .with_max_calls(2)
    .with_max_receiving_bytes(8 << 10)
    .with_max_stream_messages(1024)
    .with_max_stream_bytes(24 << 10);

/// The limits of a script, by its first byte.
pub(crate) fn limits_of(script: &[u8]) -> Limits {
    if script.first().is_some_and(|byte| byte % 2 == 1) { WIDE } else { NARROW }
}

/// Returns the compression that both sides of a script agree on, by the script's first byte. Half
/// of all scripts have one; without it, a compressed message is a violation.
pub(crate) fn compression_of(script: &[u8]) -> Compression {
    match script.first().is_some_and(|byte| byte & 2 != 0) {
        // Short messages, too, so that what scripts send is compressed.
        true => Compression::ON.with_min_len(24),
        false => Compression::OFF,
    }
}

/// One step of the peer's, or of the world's.
#[derive(Debug, Arbitrary)]
pub(crate) enum Move {
    /// A frame arrives whole.
    Frame(Craft),
    /// Two of them, since what frames do is the point.
    Frames([Craft; 2]),
    /// One of them again and again.
    Flood(Flood),
    /// A frame is announced, rarely also a short one; its end comes later, if it is admitted.
    Announce(Rarely, Craft),
    /// An admitted frame arrives.
    Arrive(u8),
    /// An admitted frame will not come.
    Withhold(u8, bool),
    /// Bytes that are no frame.
    Garbage(Rarely, Vec<u8>),
    /// A header announced with a length that may not be its frame's.
    Lie(Rarely, Craft, u64),
    /// There is memory for frames, or none.
    Full(bool),
    /// Time passes.
    Wait(u8),
    /// The link ends.
    End(Rarely, bool),
}

/// After so many frames of a flood, tasks get their turn, as transports see to it that they do.
const BURST: u64 = 64;

/// The kinds of frames that a peer may send next for a call. `None` stands for a call that never
/// began.
pub(crate) type Kinds = fn(Option<View>) -> &'static [FrameKind];

/// The peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) link: Scripted,
    pub(crate) ledger: Ledger,
    pub(crate) heap: Heap,
    pub(crate) limits: Limits,
    /// Callers that have not ended: what has come for them may wait although its call is over.
    pub(crate) caller_count: usize,
    kinds: Kinds,
    /// Frames that the session has admitted.
    admitted: Vec<Vec<u8>>,
}

impl Peer {
    /// A peer of `what`, which mostly sends what `kinds` says. Both sides have `limits`.
    pub(crate) fn new(what: &'static str, limits: Limits, link: Scripted, kinds: Kinds) -> Self {
        let window =
            Window { messages: limits.max_stream_messages, bytes: limits.max_stream_bytes };
        let (ledger, heap) = (Ledger::new(window), Heap::new(what, &limits));
        Self { link, ledger, heap, limits, caller_count: 0, kinds, admitted: Vec::new() }
    }

    /// Makes a move; `id` names a frame's call.
    pub(crate) async fn make(&mut self, step: Move, id: impl Fn(&Ledger, u8) -> u64) {
        let (kinds, limits) = (self.kinds, self.limits);
        let frame = |craft: &Craft, ledger: &Ledger| {
            let id = id(ledger, craft.call);
            let view = ledger.view(id);
            craft.frame(id, view.map_or(0, |view| view.place), kinds(view), &limits)
        };
        match step {
            Move::Flood(flood) => self.flood(&flood.shaped(), id).await,
            Move::Frame(craft) => {
                let frame = frame(&craft, &self.ledger);
                self.begin(frame);
                self.arrive(u8::MAX);
            }
            Move::Frames(crafts) => {
                for craft in &crafts {
                    let frame = frame(craft, &self.ledger);
                    self.begin(frame);
                    self.arrive(u8::MAX);
                }
            }
            Move::Announce(rarely, craft) => {
                let frame = frame(&craft, &self.ledger);
                if rarely.is_now() {
                    let len = frame.len() as u64;
                    self.announce(frame, len);
                } else {
                    self.begin(frame);
                }
            }
            Move::Lie(rarely, craft, len) if rarely.is_now() => {
                self.announce(frame(&craft, &self.ledger), len);
            }
            Move::Garbage(rarely, bytes) if rarely.is_now() => self.deliver(bytes, Delivery::Whole),
            Move::Arrive(pick) => self.arrive(pick),
            Move::Withhold(pick, is_late) => self.withhold(pick, is_late),
            Move::Full(is_full) => self.link.set_full(is_full),
            Move::Wait(ms) => tokio::time::advance(Duration::from_millis(ms.into())).await,
            Move::End(rarely, true) if rarely.is_now() => self.link.end(CloseReason::Peer),
            Move::End(rarely, false) if rarely.is_now() => {
                self.link.end(CloseReason::Failed("the cable".into()));
            }
            Move::Garbage(..) | Move::Lie(..) | Move::End(..) => {}
        }
        self.settle().await;
    }

    /// Sends a frame many times.
    async fn flood(&mut self, flood: &Flood, id: impl Fn(&Ledger, u8) -> u64) {
        let max_calls = u8::try_from(self.limits.max_calls).unwrap_or(u8::MAX);
        if flood.has_stuck_calls && (self.kinds)(None) == [FrameKind::Request] {
            for call in flood.known_calls(max_calls) {
                let id = id(&self.ledger, call);
                for frame in stuck_call(id, call.is_multiple_of(2)) {
                    self.begin(frame);
                }
            }
            self.settle().await;
        }
        for number in 0..flood.frame_count() {
            let id = match flood.target(max_calls, number) {
                Target::Known(call) => id(&self.ledger, call),
                Target::New(id) => id,
            };
            let view = self.ledger.view(id);
            let place = view.map_or(0, |view| view.place) + flood.ahead(number);
            let frame = flood.craft.frame(id, place, (self.kinds)(view), &self.limits);
            if flood.is_announced {
                let len = frame.len() as u64;
                self.announce(frame, len);
            } else {
                self.begin(frame);
                self.arrive(u8::MAX);
            }
            if flood.is_cancelled {
                let cancel = FrameHeader::bare(FrameKind::Cancel, id).to_bytes();
                self.deliver(cancel.to_vec(), Delivery::Whole);
            }
            if number % BURST == BURST - 1 {
                self.settle().await;
            }
            if self.link.is_ended() {
                return;
            }
        }
    }

    /// Lets tasks run, obeys the session, and reads what it sent.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        self.read_sent();
        if let Some(reason) = self.link.close_wanted() {
            self.link.end(reason);
        }
        // Tasks of calls that have ended are gone: only calls that are open hold something.
        let open_count = self.ledger.open_count().max(self.caller_count);
        self.heap.check(open_count, self.caller_count);
    }

    /// A frame begins to arrive: small ones come whole, large ones are announced.
    fn begin(&mut self, frame: Vec<u8>) {
        if frame.len() >= LARGE_LEN {
            let len = frame.len() as u64;
            return self.announce(frame, len);
        }
        self.read_sent();
        self.heap.apart(|| self.ledger.announce(&frame));
        self.deliver(frame, Delivery::Whole);
    }

    fn arrive(&mut self, pick: u8) {
        if let Some(frame) = self.take_admitted(pick) {
            self.deliver(frame, Delivery::Announced);
        }
    }

    fn deliver(&mut self, frame: Vec<u8>, delivery: Delivery) {
        self.read_sent();
        self.heap.apart(|| self.ledger.deliver(&frame));
        self.with_handler(|handler| {
            handler.handle_frame(Bytes::from(frame), delivery, &mut Handoff::none())
        });
        self.read_sent();
        self.heap.check(self.limits.max_calls as usize, self.caller_count);
    }

    fn announce(&mut self, frame: Vec<u8>, len: u64) {
        let Some(prefix) = frame.first_chunk::<HEADER_LEN>().copied() else { return };
        self.read_sent();
        self.heap.apart(|| self.ledger.announce(&frame));
        let mut admission = Admission::Refuse;
        self.with_handler(|handler| {
            admission = handler.handle_announced(&prefix, len)?;
            Ok(())
        });
        if admission == Admission::Refuse {
            return;
        }
        assert_eq!(frame.len() as u64, len, "a frame is admitted with its length");
        self.admitted.push(frame);
        let bytes: usize = self.admitted.iter().map(Vec::len).sum();
        let is_bounded =
            bytes as u64 <= self.limits.max_receiving_bytes || self.admitted.len() == 1;
        assert!(is_bounded, "{bytes} bytes are admitted at once");
    }

    fn withhold(&mut self, pick: u8, is_late: bool) {
        let Some(frame) = self.take_admitted(pick) else { return };
        let Some(prefix) = frame.first_chunk::<HEADER_LEN>().copied() else { return };
        let reason =
            if is_late { Withheld::Expired } else { Withheld::NoMemory("no memory".into()) };
        self.with_handler(|handler| handler.handle_withheld(&prefix, reason));
    }

    fn take_admitted(&mut self, pick: u8) -> Option<Vec<u8>> {
        let count = self.admitted.len();
        (count > 0).then(|| self.admitted.swap_remove(usize::from(pick) % count))
    }

    /// Reads everything that was sent before the next frame arrives, so that the ledger sees both
    /// in order.
    fn read_sent(&mut self) {
        for frame in self.link.take_sent() {
            self.heap.apart(|| self.ledger.sent(&frame));
        }
    }

    /// Tells the session something; a violation ends the link, as on any transport.
    fn with_handler(&self, tell: impl FnOnce(&Arc<dyn Handler>) -> Result<(), ProtocolError>) {
        if self.link.is_ended() {
            return;
        }
        if let Some(handler) = self.link.handler()
            && let Err(error) = tell(&handler)
        {
            self.link.end(error.into());
        }
    }
}
