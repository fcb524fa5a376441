//! The state of one RDMA connection under its lock: what waits to be posted, and what is on its
//! way.
//!
//! ```text
//!   Proving ──start──> Open ──close──> Closing ──everything sent and released──┐
//!      │                │                 │ or its bound of time               v
//!      └────────────────┴─────────────────┴── fail ──────────────────────> Halting ──> Ended
//!                                                                       (drained)
//! ```
//! Buffers are owned here or, once posted, by the queue pair; no future of a caller ever owns or
//! borrows one. What a peer may READ stays in `offered` until it is released, or until the queue
//! pair is gone. What arrives becomes an [`Arrival`], which is delivered when the lock is released.

mod action;
mod advertise;
mod cancel;
mod post;
pub(crate) mod timers;

use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use rpc_core::transport::{CloseReason, Counters};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::connection::memory_windows::{Exposed, MemoryWindowPool};
use crate::connection::read_queues::ReadQueues;
use crate::connection::read_throttle::ReadThrottle;
use crate::connection::rndv_payload::RndvPayload;
use crate::memory::{LargeBuffer, Sink, Slot, SlotPool};
use crate::proto::conn_params::ConnParams;
use crate::proto::flow::window::FlowWindow;
use crate::proto::rndv::get::{Due, GetRequest, Outcome, RndvGet};
use crate::proto::rndv::send::RndvSends;
use crate::proto::wire::{AtsStatus, MESSAGE_HEADER_LEN, MessageHeader, MessageKind, Rts};
use crate::stats::cancellations::Cancellations;
use crate::verbs::{
    Completion, ConnectError, ConnectOptions, Done, QueuePair, RemoteKey, VerbsError, Work,
};
pub(crate) use action::Action;
use timers::{Timeouts, Timer, TimerTable};

/// The length of a control slot: a header, and a frame that is a header alone.
pub(crate) const CONTROL_SLOT_LEN: usize = MESSAGE_HEADER_LEN + HEADER_LEN;

/// The most control messages that wait. A release answers an offer, which costs its sender a
/// credit; far more means that the peer takes without ever granting.
const CONTROL_MAX: usize = 16 << 10;

/// The most frames that wait. Those with a body have slots, of which there are few; the others
/// give up calls, of which a client has at most `max_calls`, and grant windows to streams. Far more
/// means that the peer goes on with its streams without ever granting.
const OUTGOING_MAX: usize = 256 << 10;

/// Something to be sent that needs a send slot of its own, and whose order matters.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A frame that lies in its slot, behind room for the header.
    Frame { slot: Slot, len: usize, permit: OwnedSemaphorePermit },
    /// A frame to be offered, and the slot for the offer.
    Rts {
        memory: RndvPayload,
        slot: Slot,
        permit: OwnedSemaphorePermit,
        /// The call that the frame is of.
        call: u64,
        /// Whether the call was given up while the offer waited. It goes out all the same, since
        /// what follows it may name it, and is taken back at once.
        is_given_up: bool,
    },
    /// A frame that is a header alone. It waits here for its turn, so that what gives up a call
    /// does not come before the call; its slot is a control slot.
    Control([u8; HEADER_LEN]),
}

/// What came in.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A frame that travelled whole.
    Small(Bytes),
    /// A frame that was fetched.
    Large(LargeBuffer),
    /// A frame that the peer offers.
    Rts { transfer: u32, offer: Rts },
    /// The peer takes an offer back, which may have come just before and wait to be handed out.
    Cancelled { transfer: u32 },
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// The connection is joined; nothing is delivered yet, and what arrives is kept.
    Proving(Vec<Arrival>),
    Open,
    /// Nothing new is taken; what was taken goes out.
    Closing,
    Halting(CloseReason),
}

/// Whether the end of a connection waits for the device to say that it takes no more receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastReceives {
    Awaited,
    GivenUp,
}

/// What is fixed for the life of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// What every message to us has to carry.
    pub(crate) our_epoch: u32,
    /// What every message to the peer has to carry.
    pub(crate) peer_epoch: u32,
    /// The most messages of an earlier connection that can still arrive.
    pub(crate) stale_max: u32,
    /// How many windows the connection may have; none means that offers go without.
    pub(crate) windows_max: usize,
    /// Whether the peer wants its keys taken away with releases, and we can do that.
    pub(crate) takes_keys_away: bool,
    pub(crate) timeouts: Timeouts,
}

/// What a connection reads with.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) rndv_get: RndvGet<Arc<Sink>>,
    pub(crate) turns: ReadThrottle,
    pub(crate) queues: ReadQueues,
}

#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// Carries messages, and READs where there are no queue pairs for them.
    pub(crate) queue_pair: QueuePair,
    pub(crate) read_queues: ReadQueues,
    pub(crate) phase: Phase,
    last_receives: LastReceives,
    pub(crate) is_proven: bool,
    /// Whether a probe of the peer has come.
    pub(crate) is_probed: bool,
    /// Set while the worker handles a batch, at whose end everything is posted at once.
    pub(crate) is_batching: bool,
    /// Frames that came since it was set.
    batched_frames: usize,
    /// Whether it is batching for the sake of callers, all slots of the batch being posted again.
    is_held: bool,
    rules: Rules,
    pub(crate) credits: FlowWindow,
    /// Messages without a body, which take their turn before frames.
    control: VecDeque<MessageKind>,
    control_slots: Arc<SlotPool>,
    outgoing: VecDeque<Outgoing>,
    offered: RndvSends<Exposed<RndvPayload>>,
    windows: MemoryWindowPool<RndvPayload>,
    /// Transfers whose keys were revoked, and whose releases may come late.
    revoked: HashSet<u32>,
    /// The keys of what the peer offers, which our releases take away.
    peer_keys: HashMap<u32, RemoteKey>,
    rndv_get: RndvGet<Arc<Sink>>,
    /// Whether a caller takes memory for transfers that are due.
    is_taking: bool,
    read_throttle: ReadThrottle,
    actions: Vec<Action>,
    timers: TimerTable,
    /// The deadline that the worker has been told of.
    pub(crate) armed: Option<Instant>,
    cancellations: Arc<Cancellations>,
    batch: VecDeque<Work>,
    /// For every send in `batch` or posted, in order, what comes back with its completion.
    permits: VecDeque<Option<OwnedSemaphorePermit>>,
    done: Vec<Done>,
    stale_count: u32,
}

impl ConnectionState {
    pub(crate) fn new(
        queue_pair: QueuePair,
        rules: Rules,
        credits: FlowWindow,
        control_slots: Arc<SlotPool>,
        reading: Reading,
        cancellations: Arc<Cancellations>,
    ) -> Self {
        let Reading { rndv_get, turns: read_throttle, queues: read_queues } = reading;
        Self {
            queue_pair,
            read_queues,
            phase: Phase::Proving(Vec::new()),
            last_receives: LastReceives::Awaited,
            is_proven: false,
            is_probed: false,
            is_batching: false,
            batched_frames: 0,
            is_held: false,
            rules,
            credits,
            control: VecDeque::new(),
            control_slots,
            outgoing: VecDeque::new(),
            offered: RndvSends::default(),
            windows: MemoryWindowPool::new(rules.windows_max),
            revoked: HashSet::new(),
            peer_keys: HashMap::new(),
            rndv_get,
            is_taking: false,
            read_throttle,
            actions: Vec::new(),
            timers: TimerTable::default(),
            armed: None,
            cancellations,
            batch: VecDeque::new(),
            permits: VecDeque::new(),
            done: Vec::new(),
            stale_count: 0,
        }
    }

    /// Connects the queue pairs to the peer's. It may block while the system looks up the peer's
    /// address.
    pub(crate) fn connect(
        &mut self,
        peer: &ConnParams,
        options: &ConnectOptions,
    ) -> Result<(), ConnectError> {
        // Connect the READ QPs first: after the message QP reaches RTR the peer may use any of
        // them.
        self.read_queues.connect(&peer.read_ends, options)?;
        self.queue_pair.connect(&peer.endpoint, options)?;
        Ok(())
    }

    /// Whether something new may be sent.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Proving(_))
    }

    /// Whether every frame that was taken has been sent, and released where it was offered.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.offered.is_empty()
    }

    /// Whether everything that was taken has been sent and released.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_flushed()
            && self.control.is_empty()
            && self.windows.is_idle()
            && self.rndv_get.transfer_count() == 0
            && self.queue_pair.in_flight_len() == 0
            && self.read_queues.is_idle()
    }

    /// Whether the connection is halted, its queue pairs have given everything back, and the device
    /// has said that it takes no more receives for them, or is not waited for any longer.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue_pair.is_drained()
            && self.read_queues.is_drained()
            && (self.last_receives == LastReceives::GivenUp || !self.awaits_last_receive())
    }

    fn awaits_last_receive(&self) -> bool {
        self.queue_pair.awaits_last_receive() || self.read_queues.awaits_last_receive()
    }

    /// Records that the device took the last receive for the queue pair of this number.
    pub(crate) fn handle_last_receive(&mut self, number: u32) {
        if self.queue_pair.number() == number {
            self.queue_pair.handle_last_receive();
        }
        self.read_queues.handle_last_receive(number);
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.outgoing.push_back(outgoing);
    }

    pub(crate) fn push_probe(&mut self) {
        self.control.push_back(MessageKind::Probe);
    }

    /// Refuses what the peer offered under `transfer`.
    pub(crate) fn push_refusal(&mut self, transfer: u32) {
        self.push_release(transfer, AtsStatus::Refused);
    }

    fn push_release(&mut self, transfer: u32, outcome: AtsStatus) {
        self.control.push_back(MessageKind::Ats { transfer, outcome });
    }

    /// Asks an idle peer for the credits that it does not use.
    pub(crate) fn reclaim(&mut self) {
        if matches!(self.phase, Phase::Open) {
            self.credits.reclaim();
        }
    }

    /// Queues what the peer offered under `transfer`, which is wanted.
    pub(crate) fn accept(
        &mut self,
        transfer: u32,
        wanted: GetRequest,
    ) -> Result<(), ProtocolError> {
        let until = wanted.deadline.map_or(wanted.memory_by, |it| it.min(wanted.memory_by)).0;
        self.rndv_get.accept(transfer, wanted)?;
        self.timers.arm(Timer::Memory, until);
        Ok(())
    }

    /// The next transfer to take memory for.
    pub(crate) fn next_due(&mut self) -> Option<Due> {
        let due = self.rndv_get.next_due();
        self.is_taking = due.is_some();
        due
    }

    /// Starts the GET of an accepted transfer. One that was stopped meanwhile needs no memory, and
    /// one of another length needs other memory, for which it waits itself.
    pub(crate) fn start_get(&mut self, transfer: u32, mut sink: LargeBuffer, counters: &Counters) {
        let Some(head) = self.rndv_get.head(transfer, sink.len()) else { return };
        // Before it is a sink, which gives no access to its bytes.
        sink[..head.len()].copy_from_slice(head);
        counters.copied_bytes.add(head.len() as u64);
        self.rndv_get.begin(transfer, Arc::new(Sink::new(sink)));
    }

    /// Gives what arrived before the connection was open, and opens it.
    pub(crate) fn open(&mut self) -> Result<Vec<Arrival>, ProtocolError> {
        let early = match std::mem::replace(&mut self.phase, Phase::Open) {
            Phase::Proving(early) => early,
            other => {
                self.phase = other;
                return Ok(Vec::new());
            }
        };
        for _ in &early {
            self.credits.handle_message()?;
        }
        Ok(early)
    }

    /// Takes a message from the peer. A frame is copied here, since its slot goes back at once.
    pub(crate) fn handle_message(
        &mut self,
        message: &[u8],
        taken_key: Option<RemoteKey>,
        counters: &Counters,
    ) -> Result<Option<Arrival>, ProtocolError> {
        let (header, body) = MessageHeader::parse(message)?;
        counters.received_bytes.add(message.len() as u64);
        if header.epoch != self.rules.our_epoch {
            return self.handle_stale(header.epoch);
        }
        self.credits.handle_grant(header.grant)?;
        self.check_backlog()?;
        self.check_taken_key(header.kind, taken_key)?;
        let arrival = match header.kind {
            MessageKind::Frame => {
                counters.small_received.add(1);
                counters.copied_bytes.add(body.len() as u64);
                Some(Arrival::Small(Bytes::copy_from_slice(body)))
            }
            MessageKind::Rts { transfer } => {
                let offer = Rts::parse(body)?;
                self.note_peer_key(transfer, &offer);
                Some(Arrival::Rts { transfer, offer })
            }
            MessageKind::Cancel { transfer } => {
                // Its release may come so late that the peer has revoked the key itself.
                self.peer_keys.remove(&transfer);
                self.credits.handle_control(header.kind)?;
                return Ok(Some(Arrival::Cancelled { transfer }));
            }
            kind => {
                self.handle_control(kind, taken_key)?;
                None
            }
        };
        self.batched_frames += usize::from(matches!(arrival, Some(Arrival::Small(_))));
        let Some(arrival) = arrival else {
            self.credits.handle_control(header.kind)?;
            return Ok(None);
        };
        let Phase::Proving(early) = &mut self.phase else {
            self.credits.handle_message()?;
            return Ok(Some(arrival));
        };
        // Counted when the connection opens, so until then nothing of what was promised is renewed;
        // it may have grown, because the peer wanted more.
        if early.len() >= self.credits.outstanding() as usize {
            let value = early.len() as u64;
            return Err(ProtocolError::Invalid { what: "messages before the path opens", value });
        }
        early.push(arrival);
        Ok(None)
    }

    /// Ignores a message to an earlier queue pair that had the same number: its completion was
    /// still queued when that one was gone. There were at most as many as it had been promised.
    fn handle_stale(&mut self, epoch: u32) -> Result<Option<Arrival>, ProtocolError> {
        self.stale_count += 1;
        if self.stale_count > self.rules.stale_max {
            let value = epoch.into();
            return Err(ProtocolError::Invalid { what: "epoch of an RDMA message", value });
        }
        tracing::debug!(target: "farcall::rdma", epoch, "ignored a message of an earlier path");
        Ok(None)
    }

    fn handle_control(
        &mut self,
        kind: MessageKind,
        taken_key: Option<RemoteKey>,
    ) -> Result<(), ProtocolError> {
        match kind {
            MessageKind::Ats { transfer, outcome } => {
                self.handle_release(transfer, outcome, taken_key)?;
            }
            MessageKind::Probe => {
                self.is_probed = true;
                self.control.push_back(MessageKind::ProbeAnswer);
            }
            MessageKind::ProbeAnswer => self.is_proven = true,
            MessageKind::Reclaim { keep } => self.credits.handle_reclaim(keep),
            MessageKind::Return { .. }
            | MessageKind::Grant
            | MessageKind::Cancel { .. }
            | MessageKind::Frame
            | MessageKind::Rts { .. } => {}
        }
        Ok(())
    }

    /// Whether what waits for the peer's credit is what may, whatever it was that the peer has made
    /// this side say.
    fn check_backlog(&self) -> Result<(), ProtocolError> {
        let backlogs = [
            ("control messages that wait for credit", self.control.len(), CONTROL_MAX),
            ("frames that wait for credit", self.outgoing.len(), OUTGOING_MAX),
        ];
        for (what, len, max) in backlogs {
            if len > max {
                return Err(ProtocolError::Invalid { what, value: len as u64 });
            }
        }
        Ok(())
    }

    /// Takes a completion of one of the queue pairs, and gives the frames that are now whole.
    pub(crate) fn handle_completion(
        &mut self,
        completion: Completion,
        counters: &Counters,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), CloseReason> {
        let mut done = std::mem::take(&mut self.done);
        let position = self.read_queues.position(completion.queue_pair_number());
        let handled = match position {
            Some(position) => self.read_queues.handle_completion(position, completion, &mut done),
            None => self.queue_pair.handle_completion(completion, &mut done),
        };
        // READs that go with the messages are those of a single queue.
        let queue = position.unwrap_or(0);
        if let Err(error) = handled {
            // A late completion of an earlier queue pair with the same tag frees nothing here.
            tracing::debug!(target: "farcall::rdma", %error, "ignored a completion");
        }
        let mut result = Ok(());
        for Done { work, outcome } in done.drain(..) {
            if let Err(error) = outcome {
                tracing::debug!(
                    target: "farcall::rdma", ?work, %error, "an RDMA work request failed"
                );
                let is_cause = result.is_ok() || !error.is_flush();
                if is_cause {
                    result = Err(CloseReason::Failed(format!("the RDMA path failed: {error}")));
                }
            }
            if matches!(work, Work::Read { .. }) {
                self.read_throttle.handle_read(queue, Instant::now());
            }
            match work {
                Work::Send { .. } => drop(self.permits.pop_front()),
                Work::Read { sink, len, .. } if outcome.is_ok() => {
                    counters.received_bytes.add(len.into());
                    self.handle_read(queue, sink, arrivals);
                }
                Work::Bind(binding) if outcome.is_ok() => {
                    let memory = self.windows.handle_bound(binding);
                    self.free(memory);
                }
                Work::Invalidate(binding) if outcome.is_ok() => {
                    let memory = self.windows.handle_dead(binding);
                    self.free(memory);
                }
                // What a failed connection has exposed stays until its queue pair is gone.
                Work::Read { .. } | Work::Bind(_) | Work::Invalidate(_) => {}
            }
        }
        self.done = done;
        result
    }

    fn handle_read(&mut self, queue: usize, sink: Arc<Sink>, arrivals: &mut Vec<Arrival>) {
        let Some(ended) = self.rndv_get.handle_read(queue) else { return };
        if ended.outcome != Outcome::Whole {
            return self.settle(ended);
        }
        // The GET dropped its handle to the sink with the transfer, so this READ holds the last
        // one.
        if let Some(sink) = Arc::into_inner(sink) {
            self.push_release(ended.transfer, AtsStatus::Read);
            arrivals.push(Arrival::Large(sink.into_buffer()));
        }
    }

    /// Stops the queue pairs; what is in flight comes back through their completions. What was not
    /// posted is dropped here, what was offered stays until the queue pairs are gone.
    pub(crate) fn halt(&mut self, reason: CloseReason, now: Instant) {
        if matches!(self.phase, Phase::Halting(_)) {
            return;
        }
        self.phase = Phase::Halting(reason);
        self.arm_drain(now);
        self.control.clear();
        for outgoing in self.outgoing.drain(..) {
            if let Outgoing::Rts { memory, .. } = outgoing {
                self.actions.push(Action::Free(memory));
            }
        }
        self.rndv_get.clear();
        let (mut sends, mut reads) = (0, 0);
        for work in self.batch.drain(..) {
            sends += usize::from(matches!(work, Work::Send { .. }));
            reads += usize::from(matches!(work, Work::Read { .. }));
        }
        self.permits.truncate(self.permits.len() - sends);
        self.read_throttle.retract(0, reads);
        for (queue, count) in self.read_queues.halt().into_iter().enumerate() {
            self.read_throttle.retract(queue, count);
        }
        if let Err(error) = self.queue_pair.halt() {
            // Destroying it, which follows in bounded time, does what halting could not.
            rpc_core::limited_log!(
                target: "farcall::rdma", of_process, WARN, "cannot halt a queue pair", %error
            );
        }
    }

    /// Gives up what the peer may go on to read for as long as the process lives: it would read the
    /// bytes of the memory's next user too.
    fn leak_offered(&mut self, error: &VerbsError) {
        let windows = mem::replace(&mut self.windows, MemoryWindowPool::new(0));
        let offered = mem::take(&mut self.offered);
        let count = offered.len() + windows.exposed_count();
        self.credits.activity().offers_leaked.add(count as u64);
        let number = self.queue_pair.number();
        rpc_core::limited_log!(
            target: "farcall::rdma",
            of_process, ERROR,
            "what a queue pair serves to its peer is leaked",
            %error, number, count
        );
        mem::forget((offered, windows));
    }
}

/// The queue pairs are destroyed before anything is freed that the peer could read, whatever the
/// order of the fields and wherever the connection is dropped: a runtime that is shut down drops it
/// in the place of the blocking work that it refuses.
impl Drop for ConnectionState {
    fn drop(&mut self) {
        // Drop order: queue pairs, then memory. Where destroying fails the device may still read
        // what was offered, so that memory is leaked instead of freed.
        let (messages, reads) = (self.queue_pair.destroy(), self.read_queues.destroy());
        if let Err(error) = messages.and(reads) {
            self.leak_offered(&error);
        }
    }
}
