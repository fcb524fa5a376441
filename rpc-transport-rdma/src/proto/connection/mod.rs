//! The state of one RDMA connection: what waits to be sent, what is on its way, what the peer may
//! read, and every deadline. Events go in; messages and READs to post, deliveries and actions come
//! out.
//!
//! ```text
//!   Proving ──Open──> Open ──Close──> Closing ──everything sent and released──┐
//!      │               │                │ or its bound of time                v
//!      └───────────────┴────────────────┴── Fail ─────────────────────────> Halting
//! ```
//! No queue pair, no lock and no task is here: the owner of the queue pairs turns [`Transmit`]s
//! into posts, carries [`Action`]s out, and tells of what completes. Buffers are opaque
//! ([`Buffers`]); they are owned here or by the owner's queues, and by no future of a caller. What
//! a peer may READ stays in `offered` until it is released, or until the owner drops the state,
//! which it does when the queue pairs are gone.
//!
//! | event | file |
//! |---|---|
//! | a message of the peer | `message` |
//! | what goes out | `transmit` |
//! | the proof of the path | `proof`, `path_proof` |
//! | what the device says | here, `handle_device` |
//! | keys of what is offered | `transmit` |
//! | what is fetched | `fetch` |
//! | a call is given up | `cancel` |
//! | a deadline | `timers` |

mod cancel;
mod deadlines;
mod event;
mod fetch;
mod message;
mod path_proof;
mod proof;
#[cfg(test)]
mod tests;
pub(crate) mod timers;
mod transmit;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rpc_core::connect::{PROOF_LEN, PathBinding};
use rpc_core::transport::{CloseReason, Counters};
use rpc_core::wire::HEADER_LEN;
use tokio::time::Instant;

use crate::proto::clock::Clock;
use crate::proto::flow::window::FlowWindow;
use crate::proto::remote_memory::RemoteKey;
use crate::proto::rndv::get::RndvGet;
use crate::proto::rndv::memory_windows::MemoryWindowPool;
use crate::proto::rndv::send::RndvSends;
use crate::proto::rndv::throttle::ReadThrottle;
use crate::proto::wire::{MESSAGE_HEADER_LEN, MessageKind};
use crate::stats::lane::Cancellations;
use deadlines::TimerTable;
pub(crate) use deadlines::{Timeouts, memory_timeout};
pub(crate) use event::{
    Action, Arrival, Buffers, Event, Look, MemoryWindowOf, Outgoing, Payload, Transmit,
};
use path_proof::PathProof;
pub(crate) use path_proof::{PROOF_HEAD_LEN, PROOF_MEMORY_TIMEOUT, ProofStage};

/// The length of a control slot: a header, and a frame that is a header alone.
pub(crate) const CONTROL_SLOT_LEN: usize = MESSAGE_HEADER_LEN + HEADER_LEN;

/// Control slots of a connection: the window of a default connection's releases and cancels, half
/// of it in flight and half being filled, in one page of memory.
pub(crate) const CONTROL_SLOTS: u32 = 32;

// A probe with its proof fits the same slots.
const _: () = assert!(PROOF_LEN == HEADER_LEN);

/// An arrival on a connection with these buffers.
pub(crate) type ArrivalOf<B> = Arrival<<B as Buffers>::Sink>;

/// The phase of a connection's life.
#[derive(Debug)]
pub(crate) enum Phase<S> {
    /// The connection is joined; nothing is delivered yet, and what arrives is kept.
    Proving(Vec<Arrival<S>>),
    Open,
    /// Nothing new is taken; what was taken goes out.
    Closing,
    /// It ends: nothing goes out any more, and what is in flight comes back.
    Halting(CloseReason),
}

/// The rules that are fixed for the life of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Number that every message to this side must carry.
    pub(crate) our_epoch: u32,
    /// Number that every message to the peer must carry.
    pub(crate) peer_epoch: u32,
    /// The most messages of an earlier connection that can still arrive.
    pub(crate) stale_max: u32,
    /// Maximum number of memory windows. With 0, offers go without.
    pub(crate) memory_windows_max: usize,
    /// Set if the peer wants releases to invalidate its keys, and this device can do that.
    pub(crate) takes_keys_away: bool,
    /// Capacity of the message queue pair, in work requests.
    pub(crate) send_depth: usize,
    /// Set if READs use that queue pair, too.
    pub(crate) reads_with_messages: bool,
    /// Set if both ends prove the path by more than a probe.
    pub(crate) proves_fully: bool,
    pub(crate) timeouts: Timeouts,
}

/// The parts of a connection.
#[derive(Debug)]
pub(crate) struct Parts<B: Buffers> {
    pub(crate) rules: Rules,
    pub(crate) flow: FlowWindow,
    pub(crate) control_slots: Vec<B::Slot>,
    pub(crate) rndv_get: RndvGet<B::Sink>,
    pub(crate) read_throttle: ReadThrottle<B::Share>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) cancellations: Arc<Cancellations>,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionState<B: Buffers> {
    phase: Phase<B::Sink>,
    /// Set when the peer has answered a probe.
    is_proven: bool,
    /// Set when a probe of the peer has arrived.
    is_probed: bool,
    proof: PathProof,
    /// Proof that the probes of both sides carry, where the path is bound to a TLS session.
    binding: Option<PathBinding>,
    rules: Rules,
    flow: FlowWindow,
    /// Messages without a body, which take their turn before frames.
    control: VecDeque<MessageKind>,
    /// Slots for these, and for frames that are a header alone.
    control_slots: Vec<B::Slot>,
    outgoing: VecDeque<Outgoing<B>>,
    /// Requests of the messages' queue pair that have not completed, posted or not.
    in_flight: usize,
    offered: RndvSends<B::Payload>,
    memory_windows: MemoryWindowPool<B::Binding, B::Payload>,
    /// Transfers whose keys were revoked, and whose releases may come late.
    revoked: HashSet<u32>,
    /// The keys of what the peer offers, which our releases take away.
    peer_keys: HashMap<u32, RemoteKey>,
    rndv_get: RndvGet<B::Sink>,
    /// Set while the owner takes memory for due transfers.
    is_taking: bool,
    read_throttle: ReadThrottle<B::Share>,
    counters: Arc<Counters>,
    cancellations: Arc<Cancellations>,
    deliveries: VecDeque<ArrivalOf<B>>,
    actions: VecDeque<Action<B>>,
    timers: TimerTable,
    /// Messages of an earlier connection that came.
    stale_count: u32,
}

impl<B: Buffers> ConnectionState<B> {
    pub(crate) fn new(parts: Parts<B>) -> Self {
        let Parts { rules, flow, control_slots, .. } = parts;
        Self {
            phase: Phase::Proving(Vec::new()),
            is_proven: false,
            is_probed: false,
            proof: PathProof::new(),
            binding: None,
            rules,
            flow,
            control: VecDeque::new(),
            control_slots,
            outgoing: VecDeque::new(),
            in_flight: 0,
            offered: RndvSends::default(),
            memory_windows: MemoryWindowPool::new(rules.memory_windows_max),
            revoked: HashSet::new(),
            peer_keys: HashMap::new(),
            rndv_get: parts.rndv_get,
            is_taking: false,
            read_throttle: parts.read_throttle,
            counters: parts.counters,
            cancellations: parts.cancellations,
            deliveries: VecDeque::new(),
            actions: VecDeque::new(),
            timers: TimerTable::default(),
            stale_count: 0,
        }
    }

    /// Takes an event. One that the connection cannot go on after halts it.
    pub(crate) fn handle(&mut self, event: Event<'_, B>, clock: &mut Clock) {
        let handled = match event {
            Event::Fail(reason) => Err(reason),
            Event::Message { bytes, taken_key } => self.handle_message(bytes, taken_key, clock),
            Event::MemoryWindow(window) => self.handle_memory_window(window),
            Event::Timeout(look) => self.handle_timeout(look),
            Event::SentControl(_)
            | Event::Sent
            | Event::Unsent
            | Event::Read { .. }
            | Event::Unposted { .. }
            | Event::Bound(_)
            | Event::Invalidated(_)
            | Event::Revoked(_)
            | Event::Halted
            | Event::PostRefused => {
                self.handle_device(event, clock);
                Ok(())
            }
            // Requests to a connection that ends. Dropping one may free memory of the application,
            // which the owner does with its lock released.
            event if self.is_halting() => {
                drop(event);
                Ok(())
            }
            event => self.handle_request(event, clock),
        };
        // One place ends a connection, so that the first reason is the one that is told.
        if let Err(reason) = handled {
            self.halt(reason, clock.now());
        }
    }

    /// Takes what the device says, which gives back what it had whatever the phase is.
    fn handle_device(&mut self, event: Event<'_, B>, clock: &mut Clock) {
        match event {
            Event::Sent => {
                self.in_flight -= 1;
                self.proof.handle_sent();
            }
            Event::Unsent => self.in_flight -= 1,
            Event::SentControl(slot) => {
                self.in_flight -= 1;
                self.control_slots.push(slot);
            }
            Event::Read { queue, len, sink, is_read } => {
                self.handle_read(queue, is_read.then_some(len), sink, clock);
            }
            Event::Unposted { queue } => self.read_throttle.retract(queue),
            Event::Bound(binding) => self.handle_bound(binding),
            Event::Invalidated(binding) => self.handle_invalidated(binding),
            Event::Revoked(key) => {
                let payload = self.memory_windows.handle_revoked(key);
                self.free(payload);
            }
            Event::Halted => self.arm_drain(clock.now()),
            Event::PostRefused => self.retry_post(clock.now()),
            _ => {}
        }
    }

    /// Takes what this side asks for, which means nothing to a connection that ends.
    fn handle_request(
        &mut self,
        event: Event<'_, B>,
        clock: &mut Clock,
    ) -> Result<(), CloseReason> {
        match event {
            Event::Probe => self.control.push_back(MessageKind::Probe),
            Event::Open => self.open()?,
            Event::Close => self.close(clock.now()),
            Event::Abandon { call } => self.abandon(call, clock),
            Event::Reclaim if matches!(self.phase, Phase::Open) => self.flow.reclaim(),
            Event::Accept { transfer, wanted } => self.accept(transfer, wanted)?,
            Event::Refuse { transfer } => self.refuse(transfer),
            Event::Cancelled { transfer } => self.handle_cancelled(transfer),
            Event::Memory { transfer, sink } => drop(self.rndv_get.begin(transfer, sink)),
            Event::NoMemory { transfer, why } => self.withhold(transfer, why),
            Event::Turn(turn) => self.read_throttle.grant(turn),
            Event::NoProof(reason) => self.handle_no_proof(reason)?,
            Event::ProofChecked { is_good } => self.handle_proof_checked(is_good)?,
            _ => {}
        }
        Ok(())
    }

    /// Takes a frame to be sent.
    ///
    /// # Errors
    ///
    /// Returns the frame if nothing new is taken any more. Dropping it may run code of the
    /// application.
    pub(crate) fn send(&mut self, outgoing: Outgoing<B>) -> Result<(), Outgoing<B>> {
        // Given back and not dropped: the owner holds its lock, and the frame may be a loan.
        if !self.is_open() {
            return Err(outgoing);
        }
        self.outgoing.push_back(outgoing);
        Ok(())
    }

    /// The next action, in the order in which they have to be carried out.
    pub(crate) fn poll_action(&mut self) -> Option<Action<B>> {
        self.actions.pop_front()
    }

    /// The next of what came in, in the order of its arrival.
    pub(crate) fn poll_delivery(&mut self) -> Option<ArrivalOf<B>> {
        self.deliveries.pop_front()
    }

    /// Returns true if new frames may be sent.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Proving(_))
    }

    pub(crate) fn is_halting(&self) -> bool {
        matches!(self.phase, Phase::Halting(_))
    }

    /// Why the connection ends, if it does.
    pub(crate) fn end_reason(&self) -> Option<&CloseReason> {
        match &self.phase {
            Phase::Halting(reason) => Some(reason),
            _ => None,
        }
    }

    /// Requires TLS channel binding on probes. Returns false if an unbound probe was already seen.
    #[must_use]
    pub(crate) fn bind(&mut self, binding: PathBinding) -> bool {
        // Set although it may be too late: a path that fails this check must answer no probe
        // either.
        self.binding = Some(binding);
        !self.is_probed && !self.is_proven
    }

    /// Returns true if a probe of the peer has arrived.
    pub(crate) fn is_probed(&self) -> bool {
        self.is_probed
    }

    /// Returns the number of frames that wait to be sent.
    pub(crate) fn outgoing_len(&self) -> usize {
        self.outgoing.len()
    }

    /// Returns the number of messages that the peer lets this side send now.
    pub(crate) fn credits(&self) -> u32 {
        self.flow.credits()
    }

    /// Returns the bytes of frames that wait for credit, those of large frames not counted.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let len = |outgoing: &Outgoing<B>| match outgoing {
            Outgoing::Frame { len, .. } => *len as u64,
            Outgoing::Control(header) => header.len() as u64,
            Outgoing::Rts { .. } => 0,
        };
        self.outgoing.iter().map(len).sum()
    }

    /// Returns true if every accepted frame has been sent, and released if it was offered.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.offered.is_empty()
    }

    /// Returns true if everything that was accepted has been sent and released. Must be called when
    /// nothing is left to send: a key that has to be invalidated is in flight then.
    fn is_idle(&self) -> bool {
        // Cheap conditions first; the READs of a transfer are in flight or about to be.
        self.is_flushed()
            && self.control.is_empty()
            && self.rndv_get.transfer_count() == 0
            && self.in_flight == 0
    }

    /// Ends a connection that is closed, when everything has gone out.
    fn end_if_flushed(&mut self, clock: &mut Clock) {
        if matches!(self.phase, Phase::Closing) && self.is_idle() {
            self.halt(CloseReason::Local, clock.now());
        }
    }

    /// Halts the connection. What was not posted is dropped here; what was offered stays.
    fn halt(&mut self, reason: CloseReason, now: Instant) {
        if self.is_halting() {
            return;
        }
        self.phase = Phase::Halting(reason);
        self.actions.push_back(Action::Halt);
        self.arm_halt(now);
        // Never to be sent: no peer has been offered it, so that it can be freed while the queue
        // pairs are still being halted. A release among them frees nothing here, and the peer
        // learns of the end by the queue pair or the byte stream.
        self.control.clear();
        for outgoing in self.outgoing.drain(..) {
            if let Outgoing::Rts { payload, .. } = outgoing {
                self.actions.push_back(Action::Free(payload));
            }
        }
        // READs in flight own their sinks, which come back with their completions.
        self.rndv_get.clear();
        // A turn that is kept would count against this peer's other connections.
        self.read_throttle.pass();
    }

    /// Frees memory that the peer is done with.
    fn free(&mut self, payload: Option<B::Payload>) {
        self.actions.extend(payload.map(Action::Free));
    }

    /// Leaks what the peer may go on to read for as long as the process lives, because a queue pair
    /// could not be destroyed: the peer would read the bytes of the memory's next user too. Gives
    /// how many frames that are.
    pub(crate) fn leak_offered(&mut self) -> usize {
        let windows = std::mem::replace(&mut self.memory_windows, MemoryWindowPool::new(0));
        let offered = std::mem::take(&mut self.offered);
        let count = offered.len() + windows.exposed_count();
        self.flow.activity().offers_leaked.add(count as u64);
        // The device may still answer READs of it: freed, it would show the peer another's bytes.
        std::mem::forget((offered, windows));
        count
    }
}
