//! One RDMA connection: its state under a lock, and what happens when the lock is released.
//!
//! Senders push and post in their own task. Everything that arrives is handled by the worker's task
//! alone, so that calls of the [`Handler`] never overlap, but for user code that blocks.

pub(crate) mod batching;
pub(crate) mod buffers;
mod commands;
mod flight_recorder;
pub(crate) mod live;
mod posting;
pub(crate) mod proof;
pub(crate) mod proof_plan;
pub(crate) mod queue_pairs;
mod rndv_get;

use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use rpc_core::Reason;
use rpc_core::connect::PathBinding;
use rpc_core::handoff::Handoff;
use rpc_core::quota::PeerKey;
use rpc_core::transport::{CloseReason, Counters, Delivery, Handler, TransportError};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::buffers::{Action, Arrival, Event, Outgoing, State};
use crate::connection::live::{Live, Obeyed, clock};
use crate::connection::proof_plan::ProofPlan;
use crate::lane::{Command, WorkerShared};
use crate::memory::PoolShare;
use crate::proto::clock::Clock;
use crate::proto::connection::{Look, ProofStage};
use crate::quota::semaphore::PeerShare;
use crate::sys::provider::LocalAddress;
use crate::sys::provider::commands::on_lane;
use crate::verbs::{Completion, ReceiveError, RemoteKey, WorkKind};
/// Send slots that one connection may hold at a time, so that a peer which grants nothing takes
/// at most a quarter of a worker's default 256.
pub(crate) const SLOTS_MAX: usize = 64;

/// One connection of a worker.
pub(crate) struct Connection {
    pub(crate) tag: u32,
    /// The number of the queue pair that carries its messages.
    number: u32,
    /// The numbers of those that carry READs alone.
    read_numbers: Vec<u32>,
    /// Address at which the peer reaches it.
    pub(crate) reach: LocalAddress,
    pub(crate) worker: Arc<WorkerShared<Self>>,
    /// Memory that large frames are sent from, and are read into, as this peer may have it.
    pub(crate) sources: PoolShare,
    sinks: PoolShare,
    /// The READ bytes of the device that this peer may have outstanding.
    reads: PeerShare,
    pub(crate) counters: Arc<Counters>,
    pub(crate) frames: Arc<Semaphore>,
    /// The longest frame that travels whole.
    pub(crate) frame_len_max: usize,
    proof_plan: ProofPlan,
    /// The stage that the proof of the path had reached when the connection ended.
    last_stage: OnceLock<ProofStage>,
    /// Set when the path is proven.
    pub(crate) proven: CancellationToken,
    /// Set when the connection has begun to end, so that no transfer waits for memory any more.
    pub(crate) ending: CancellationToken,
    /// Set when the queue pair is gone.
    pub(crate) ended: CancellationToken,
    /// Wakes the tasks that wait for a transfer's memory, when one is stopped.
    stopped: Notify,
    /// Taken when the connection ends, because the handler owns the transport that owns this.
    handler: Mutex<Option<Arc<dyn Handler>>>,
    life: Mutex<Life>,
}

enum Life {
    Alive(Box<Live>),
    Ended {
        reason: CloseReason,
        /// The rest of it if its queue pairs were being halted at its end: kept until their
        /// command gives them back.
        halting: Option<Box<Live>>,
    },
}

impl Connection {
    pub(crate) fn new(
        tag: u32,
        worker: Arc<WorkerShared<Self>>,
        live: Live,
        limits: ConnectionLimits,
    ) -> Self {
        Self {
            tag,
            number: live.queues.number(),
            read_numbers: live.queues.read_numbers(),
            reach: LocalAddress::of(live.queues.port()),
            sources: worker.sources.share(limits.peer),
            sinks: worker.sinks.share(limits.peer),
            reads: worker.reads.share(limits.peer),
            worker,
            counters: limits.counters,
            frames: Arc::new(Semaphore::new(SLOTS_MAX)),
            frame_len_max: limits.frame_len_max,
            proof_plan: limits.proof_plan,
            last_stage: OnceLock::new(),
            proven: CancellationToken::new(),
            ending: CancellationToken::new(),
            ended: CancellationToken::new(),
            stopped: Notify::new(),
            handler: Mutex::new(None),
            life: Mutex::new(Life::Alive(Box::new(live))),
        }
    }

    pub(crate) fn has_number(&self, number: u32) -> bool {
        self.number == number || self.read_numbers.contains(&number)
    }

    /// The numbers of its queue pairs.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.number).chain(self.read_numbers.iter().copied())
    }

    /// Records that the device took the last receive for the queue pair of this number. An event
    /// that is read before its queue pair is gone may be told to the next of that number, whose end
    /// then waits for less than it should.
    pub(crate) fn handle_last_receive(self: &Arc<Self>, number: u32) {
        if let Life::Alive(live) = &mut *self.life() {
            live.queues.handle_last_receive(number);
        }
        self.worker.send(Command::Check(Arc::clone(self)));
    }

    /// Lock order: this lock is taken before those of the worker and of pools, and never under one
    /// of them. No code of a handler or an application runs under it.
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock()
    }

    /// Changes the connection, posts what became possible, and does what the state asks for.
    ///
    /// # Errors
    ///
    /// Returns [`TransportError::Closed`] if the connection ends: before the change, which is not
    /// made then, or by it.
    pub(crate) fn with_live<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Live, &mut Clock) -> R,
    ) -> Result<R, TransportError> {
        let _on_lane = on_lane();
        let mut clock = clock();
        let mut life = self.life();
        let live = match &mut *life {
            Life::Alive(live) => live,
            Life::Ended { reason, .. } => {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
        };
        // The change is not made on an end that halts: it would queue what never goes out.
        let value = if live.state.is_halting() {
            None
        } else {
            let value = change(live, &mut clock);
            let obeyed = live.transmit(&mut clock);
            self.note_obeyed(live, obeyed);
            self.arm(live);
            Some(value)
        };
        let ended = live.state.end_reason().cloned();
        // Taken under the lock and carried out without it: they take it again, or run code of the
        // application.
        let actions = std::mem::take(&mut live.after);
        drop(life);
        self.carry_out(actions);
        match (value, ended) {
            (Some(value), None) => Ok(value),
            (_, reason) => {
                let reason = reason.unwrap_or(CloseReason::Local);
                Err(TransportError::Closed { reason })
            }
        }
    }

    /// Gives the state an event. A connection that has ended ignores it.
    fn handle(self: &Arc<Self>, event: Event<'_>) {
        let mut event = Some(event);
        // An event that is ignored is dropped after the lock is released: it may own memory, and
        // dropping that may run code of the application.
        let _ = self.with_live(|live, clock| {
            event.take().into_iter().for_each(|event| live.state.handle(event, clock));
        });
    }

    /// Does what the connection has asked for, with its lock released.
    fn carry_out(self: &Arc<Self>, actions: Vec<Action>) {
        if actions.is_empty() {
            return;
        }
        self.worker.note_woken();
        for action in actions {
            match action {
                Action::OfferProof => self.offer_proof(),
                Action::Proven => self.proven.cancel(),
                Action::Free(memory) => drop(memory),
                Action::TakeTurn { len } => self.take_turn(len),
                Action::TakeMemory => self.take_memory(),
                Action::Withhold { prefix, reason } => {
                    self.stopped.notify_waiters();
                    self.worker.send(Command::Withheld(Arc::clone(self), prefix, reason));
                }
                Action::LogStall(stall) => {
                    let (tag, device) = (self.tag, self.worker.attachment.device().name());
                    rpc_core::limited_log!(
                        target: "farcall::rdma",
                        process_wide, WARN, "an RDMA connection stalls", tag, device, %stall
                    );
                }
                Action::LogRequests(requests) => {
                    let (tag, device) = (self.tag, self.worker.attachment.device().name());
                    rpc_core::limited_log!(
                        target: "farcall::rdma",
                        process_wide, WARN, "the last work of an RDMA connection",
                        tag, device, ?requests
                    );
                }
                Action::GiveUpLastReceives => {
                    self.worker.send(Command::Check(Arc::clone(self)));
                }
                Action::Destroy => {
                    rpc_core::limited_log!(
                        target: "farcall::rdma",
                        process_wide,
                        WARN,
                        "a queue pair does not drain: destroying it",
                        connection = ?self
                    );
                    self.worker.send(Command::End(Arc::clone(self)));
                }
                Action::Halt => self.halt(),
                Action::AllocateMemoryWindows { count } => self.allocate_windows(count),
                Action::Revoke(binding) => self.revoke(binding),
                Action::TellEnd => self.worker.send(Command::TellEnd(Arc::clone(self))),
            }
        }
    }

    /// Arms the worker's timer for the next deadline, if that is earlier than the armed one.
    fn arm(&self, live: &mut Live) {
        if let Some(at) = live.state.next_deadline()
            && live.armed.is_none_or(|armed| at < armed)
        {
            live.armed = Some(at);
            self.worker.timers.arm(at, self.tag);
        }
    }

    /// Does what is due at the deadline `at`, which the worker's timer was told of; it may be that
    /// of an earlier connection with the same tag.
    pub(crate) fn handle_timeout(self: &Arc<Self>, at: Instant) {
        let _on_lane = on_lane();
        let mut clock = clock();
        // Before the lock is taken: it may be a system call.
        let (now, has_unread) = (clock.now(), self.worker.has_unread());
        let look = Look { now, has_unread, late_by: now.saturating_duration_since(at) };
        let actions = {
            let mut life = self.life();
            let Life::Alive(live) = &mut *life else { return };
            // A timer of an earlier connection with this tag must not disarm ours.
            live.armed.take_if(|armed| *armed == at);
            live.state.handle(Event::Timeout(look), &mut clock);
            let obeyed = live.transmit(&mut clock);
            self.note_obeyed(live, obeyed);
            self.arm(live);
            std::mem::take(&mut live.after)
        };
        self.carry_out(actions);
    }

    /// Looks at the connection, unless it has ended.
    pub(crate) fn look<R>(&self, at: impl FnOnce(&State) -> R) -> Option<R> {
        match &*self.life() {
            Life::Alive(live) => Some(at(&live.state)),
            Life::Ended { .. } => None,
        }
    }

    /// Sees to it that a connection ends whose queue pairs were halted. Called with its lock held:
    /// only the worker's task, which the command reaches, and its timer take it again.
    fn note_obeyed(self: &Arc<Self>, live: &mut Live, obeyed: Obeyed) {
        if obeyed != Obeyed::Halt {
            return;
        }
        self.worker.note_woken();
        self.ending.cancel();
        // Senders that wait for a permit learn of the end by this, and never get one.
        self.frames.close();
        self.arm(live);
    }

    /// Sends a frame or offers one.
    pub(crate) fn send(self: &Arc<Self>, outgoing: Outgoing) -> Result<(), TransportError> {
        // A frame that is refused is dropped after the lock is released: dropping memory that was
        // lent may run code of the application.
        let mut outgoing = Some(outgoing);
        self.with_live(|live, _| {
            outgoing = outgoing.take().and_then(|outgoing| live.state.send(outgoing).err());
        })?;
        match outgoing {
            None => Ok(()),
            Some(_) => Err(TransportError::Closed { reason: CloseReason::Local }),
        }
    }

    pub(crate) fn send_control(
        self: &Arc<Self>,
        header: [u8; HEADER_LEN],
    ) -> Result<(), TransportError> {
        self.send(Outgoing::Control(header))
    }

    /// Makes the probes of both sides carry proofs of the TLS session. Returns false if the
    /// connection has ended, or an unbound probe has arrived.
    pub(crate) fn bind(self: &Arc<Self>, binding: PathBinding) -> bool {
        self.with_live(|live, _| live.state.bind(binding)).unwrap_or(false)
    }

    /// Asks the peer to answer, to prove the connection.
    pub(crate) fn probe(self: &Arc<Self>) -> Result<(), TransportError> {
        self.with_live(|live, clock| live.state.handle(Event::Probe, clock))
    }

    /// Begins to deliver to `handler`; what came before is delivered by the worker's task.
    pub(crate) fn start(self: &Arc<Self>, handler: Arc<dyn Handler>) {
        // Before the life is looked at: an end between the two finds the handler and tells it.
        *self.handler_slot() = Some(handler);
        let ended = match &*self.life() {
            Life::Ended { reason, .. } => Some(reason.clone()),
            Life::Alive(_) => None,
        };
        match ended {
            // The peer may have gone between the proof and now, before there was a handler to hear
            // it.
            Some(reason) => self.tell_end(reason),
            None => self.worker.send(Command::Open(Arc::clone(self))),
        }
    }

    /// Tells the handler, if there is one, that it is over. The handler is told once, by the caller
    /// that takes it out of its slot.
    fn tell_end(&self, reason: CloseReason) {
        // Taken out first: a handler that drops the transport comes back here.
        let handler = self.handler_slot().take();
        if let Some(handler) = handler {
            handler.handle_closed(reason);
        }
    }

    fn handler_slot(&self) -> MutexGuard<'_, Option<Arc<dyn Handler>>> {
        self.handler.lock()
    }

    fn handler(&self) -> Option<Arc<dyn Handler>> {
        self.handler_slot().clone()
    }

    /// Ends in order: everything that was sent goes out first, within bounds.
    pub(crate) fn close(self: &Arc<Self>) {
        self.handle(Event::Close);
    }

    /// Ends at once.
    pub(crate) fn fail(self: &Arc<Self>, reason: CloseReason) {
        self.handle(Event::Fail(reason));
    }

    /// Why nothing can be sent any more.
    pub(crate) fn closed(&self) -> TransportError {
        let reason = match &*self.life() {
            Life::Ended { reason, .. } => reason.clone(),
            Life::Alive(live) => live.state.end_reason().cloned().unwrap_or(CloseReason::Local),
        };
        TransportError::Closed { reason }
    }

    /// Returns true if a probe of the peer has arrived and the connection has not ended since.
    pub(crate) fn is_probed(&self) -> bool {
        matches!(&*self.life(), Life::Alive(live) if live.state.is_probed())
    }

    /// Opens the connection, and gives what came before, to be delivered. For the worker's task.
    pub(crate) fn open(self: &Arc<Self>) -> Vec<Arrival> {
        let early = self.with_live(|live, clock| {
            live.state.handle(Event::Open, clock);
            std::iter::from_fn(|| live.state.poll_delivery()).collect()
        });
        early.unwrap_or_default()
    }

    /// Takes a message of the peer that came on the queue pair of that number, and the key that it
    /// took away. Gives what is to be delivered once the message's slot is free. For the worker's
    /// task.
    pub(crate) fn handle_message(
        self: &Arc<Self>,
        number: u32,
        message: &[u8],
        taken_key: Option<RemoteKey>,
    ) -> Option<Arrival> {
        if number != self.number {
            let what = "a message on a queue pair for READs";
            self.fail(ProtocolError::Invalid { what, value: number.into() }.into());
            return None;
        }
        let mut clock = clock();
        let mut life = self.life();
        let Life::Alive(live) = &mut *life else { return None };
        live.state.handle(Event::Message { bytes: message, taken_key }, &mut clock);
        let arrival = live.state.poll_delivery();
        // Only these wake a caller that may send at once; see `batching`.
        if matches!(arrival, Some(Arrival::Small(_))) {
            live.batching.count_frame();
        }
        let obeyed = live.obey(&mut clock);
        self.note_obeyed(live, obeyed);
        arrival
    }

    /// Takes a receive that failed or makes no sense. For the worker's task.
    pub(crate) fn handle_bad_receive(self: &Arc<Self>, error: ReceiveError) {
        self.fail(CloseReason::Failed(Reason::new(error.to_string(), error)));
    }

    /// Takes a completion of the queue pair, and gives the frames that are whole with it, to be
    /// delivered. For the worker's task.
    pub(crate) fn handle_completion(self: &Arc<Self>, completion: Completion) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        if self.may_wake(completion.kind()) {
            self.worker.note_woken();
        }
        let mut clock = clock();
        let mut life = self.life();
        let Life::Alive(live) = &mut *life else { return arrivals };
        let Live { state, queues, .. } = &mut **live;
        queues.handle_completion(completion, state, &mut clock);
        arrivals.extend(std::iter::from_fn(|| state.poll_delivery()));
        let obeyed = live.obey(&mut clock);
        self.note_obeyed(live, obeyed);
        arrivals
    }

    /// Returns true if a completion of this kind may end a task's wait: for a slot, for room, for a
    /// READ.
    fn may_wake(&self, kind: WorkKind) -> bool {
        kind != WorkKind::Send
            || self.frames.available_permits() == 0
            || self.worker.send_slots.available() == 0
    }

    /// Hands out what has arrived. User code that it starts may block, for which the handler
    /// releases `handoff`. For the worker's task.
    pub(crate) fn deliver(self: &Arc<Self>, arrival: Arrival, handoff: &mut Handoff) {
        if let Arrival::Proof { sink, head_len, count } = arrival {
            return self.check_proof(sink, head_len, count);
        }
        let Some(handler) = self.handler() else { return };
        let result = match arrival {
            // Checked above: it comes before there is a handler.
            Arrival::Proof { .. } => Ok(()),
            Arrival::Small(frame) => handler.handle_frame(frame, Delivery::Whole, handoff),
            Arrival::Large(sink) => {
                // The last READ that filled it gave it back, and the state has no other handle.
                let Some(sink) = Arc::into_inner(sink) else {
                    return self.fail(CloseReason::Failed("a READ still fills a frame".into()));
                };
                self.counters.large_received.add(1);
                let frame = self.worker.leases.lease(sink.into_buffer());
                handler.handle_frame(frame, Delivery::Announced, handoff)
            }
            Arrival::Rts { transfer, offer } => {
                handoff.woke();
                self.handle_offer(&*handler, transfer, offer)
            }
            Arrival::Cancelled { transfer } => {
                handoff.woke();
                self.handle(Event::Cancelled { transfer });
                Ok(())
            }
        };
        if let Err(error) = result {
            self.fail(error.into());
        }
    }

    /// Asks the peer for credits that it does not use. For the worker's task.
    pub(crate) fn reclaim(self: &Arc<Self>) {
        self.handle(Event::Reclaim);
    }

    /// Destroys the queue pairs and tells the handler; false when that was done before. For the
    /// worker's task.
    pub(crate) fn end(self: &Arc<Self>) -> bool {
        let (armed, reason) = {
            let mut life = self.life();
            let Life::Alive(live) = &mut *life else { return false };
            let _ = self.last_stage.set(live.state.proof_stage());
            let (armed, reason) = (live.armed, live.end_reason());
            live.take_back_halting();
            let is_halting = live.queues.is_being_halted();
            let ended = Life::Ended { reason: reason.clone(), halting: None };
            if let Life::Alive(live) = std::mem::replace(&mut *life, ended) {
                match &mut *life {
                    Life::Ended { halting, .. } if is_halting => *halting = Some(live),
                    _ => self.push_destruction(live),
                }
            }
            (armed, reason)
        };
        // The tag may be another connection's as soon as this one is out of the table.
        if let Some(at) = armed {
            self.worker.timers.disarm(at, self.tag);
        }
        self.ending.cancel();
        self.frames.close();
        self.serve_bulk();
        self.tell_end(reason);
        true
    }

    /// Tells the handler of an end whose queue pairs the device has not halted yet. What arrives
    /// after that is dropped. For the worker's task.
    pub(crate) fn tell_end_early(&self) {
        let reason = match &*self.life() {
            Life::Alive(live) => live.end_reason(),
            Life::Ended { .. } => return,
        };
        rpc_core::limited_log!(
            target: "farcall::rdma",
            process_wide,
            WARN,
            "an RDMA device does not halt a queue pair in time: its firmware may hang",
            device = self.worker.attachment.device().name(),
            tag = self.tag
        );
        self.tell_end(reason);
    }
}

/// The parts that a connection is made with, besides its state.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    /// Peer whose share of the worker's memory it takes.
    pub(crate) peer: PeerKey,
    pub(crate) frame_len_max: usize,
    pub(crate) proof_plan: ProofPlan,
    /// Counters of the connection.
    pub(crate) counters: Arc<Counters>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Connection");
        match &*self.life() {
            Life::Alive(live) => debug.field("path", live),
            Life::Ended { reason, .. } => debug.field("ended", reason),
        };
        debug.field("tag", &self.tag).finish_non_exhaustive()
    }
}
