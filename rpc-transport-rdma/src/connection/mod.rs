//! One RDMA connection: its state under a lock, and what happens when the lock is released.
//!
//! Senders push and post in their own task. Everything that arrives is handled by the worker's task
//! alone, so that calls of the [`Handler`] never overlap, but for user code that blocks.

pub(crate) mod batching;
pub(crate) mod memory_windows;
pub(crate) mod read_queues;
pub(crate) mod read_throttle;
mod rndv_get;
pub(crate) mod rndv_payload;
pub(crate) mod state;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpc_core::handoff::Handoff;
use rpc_core::peer_key::PeerKey;
use rpc_core::transport::{CloseReason, Counters, Delivery, Handler, TransportError};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::state::timers::Look;
use crate::connection::state::{Action, Arrival, ConnectionState, Outgoing, Phase};
use crate::device::open::LocalAddress;
use crate::memory::PoolShare;
use crate::verbs::{Completion, RemoteKey, WorkKind};
use crate::worker::{Command, WorkerShared};
pub(crate) use batching::BatchEnd;

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
    /// How the peer reaches it.
    pub(crate) reach: LocalAddress,
    pub(crate) worker: Arc<WorkerShared>,
    /// Memory that large frames are sent from, and are read into, as this peer may have it.
    pub(crate) sources: PoolShare,
    sinks: PoolShare,
    pub(crate) counters: Counters,
    pub(crate) frames: Arc<Semaphore>,
    /// The longest frame that travels whole.
    pub(crate) frame_len_max: usize,
    /// Set when the peer answered our probe.
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
    Alive(Box<ConnectionState>),
    Ended(CloseReason),
}

impl Connection {
    pub(crate) fn new(
        tag: u32,
        worker: Arc<WorkerShared>,
        state: ConnectionState,
        limits: ConnectionLimits,
    ) -> Self {
        Self {
            tag,
            number: state.queue_pair.number(),
            read_numbers: state.read_queues.numbers(),
            reach: LocalAddress::of(state.queue_pair.port()),
            sources: worker.sources.share(limits.peer),
            sinks: worker.sinks.share(limits.peer),
            worker,
            counters: Counters::default(),
            frames: Arc::new(Semaphore::new(SLOTS_MAX)),
            frame_len_max: limits.frame_len_max,
            proven: CancellationToken::new(),
            ending: CancellationToken::new(),
            ended: CancellationToken::new(),
            stopped: Notify::new(),
            handler: Mutex::new(None),
            life: Mutex::new(Life::Alive(Box::new(state))),
        }
    }

    /// The numbers of all its queue pairs.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.number).chain(self.read_numbers.iter().copied())
    }

    pub(crate) fn has_number(&self, number: u32) -> bool {
        self.number == number || self.read_numbers.contains(&number)
    }

    /// Lock order: this lock is taken before those of the worker and of pools, and never under one
    /// of them. No code of a handler or an application runs under it.
    fn life(&self) -> MutexGuard<'_, Life> {
        // Every change to a connection is complete before anything that could panic.
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the connection and posts what became possible. A connection that fails is halted.
    pub(crate) fn with_state<R>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut ConnectionState) -> Result<R, CloseReason>,
    ) -> Result<R, TransportError> {
        let mut life = self.life();
        let state = match &mut *life {
            Life::Alive(state) => state,
            Life::Ended(reason) => {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
        };
        if let Phase::Halting(reason) = &state.phase {
            return Err(TransportError::Closed { reason: reason.clone() });
        }
        let result = change(state).and_then(|value| {
            state.flush(&self.counters)?;
            Ok(value)
        });
        let is_done =
            matches!(state.phase, Phase::Closing) && state.is_idle() && !state.is_batching;
        let reason = match &result {
            Err(reason) => Some(reason.clone()),
            Ok(_) if is_done => Some(CloseReason::Local),
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            self.halt(state, reason);
        }
        self.arm(state);
        let actions = state.take_actions();
        drop(life);
        self.carry_out(actions);
        result.map_err(|reason| TransportError::Closed { reason })
    }

    /// Does what the connection has asked for, with its lock released.
    fn carry_out(self: &Arc<Self>, actions: Vec<Action>) {
        if actions.is_empty() {
            return;
        }
        self.worker.note_woken();
        for action in actions {
            match action {
                Action::Free(memory) => drop(memory),
                Action::TakeTurn { share, len } => self.read_later(share, len),
                Action::TakeMemory => self.take_memory(),
                Action::Withhold { prefix, reason } => {
                    self.stopped.notify_waiters();
                    self.worker.send(Command::Withheld(Arc::clone(self), prefix, reason));
                }
                Action::LogStall(words) => {
                    let (tag, device) = (self.tag, self.worker.attachment.device().name());
                    rpc_core::limited_log!(
                        target: "farcall::rdma",
                        of_process, WARN, "an RDMA connection stalls", tag, device, %words
                    );
                }
                Action::CheckDrained => self.worker.send(Command::Check(Arc::clone(self))),
                Action::Destroy => {
                    rpc_core::limited_log!(
                        target: "farcall::rdma",
                        of_process,
                        WARN,
                        "a queue pair does not drain: destroying it",
                        connection = ?self
                    );
                    self.worker.send(Command::End(Arc::clone(self)));
                }
            }
        }
    }

    /// Has the worker's timer call for the next deadline, if that is before what it knows of.
    fn arm(&self, state: &mut ConnectionState) {
        if let Some(at) = state.next_deadline()
            && state.armed.is_none_or(|armed| at < armed)
        {
            state.armed = Some(at);
            self.worker.timers.arm(at, self.tag);
        }
    }

    /// Does what is due at the deadline `at`, which the worker's timer was told of; it may be that
    /// of an earlier connection with the same tag.
    pub(crate) fn handle_timeout(self: &Arc<Self>, at: Instant) {
        // Before the lock is taken: it may be a system call.
        let (now, has_unread) = (Instant::now(), self.worker.has_unread());
        let look = Look { now, has_unread, late_by: now.saturating_duration_since(at) };
        let actions = {
            let mut life = self.life();
            let Life::Alive(state) = &mut *life else { return };
            state.armed.take_if(|armed| *armed == at);
            if !matches!(state.phase, Phase::Halting(_)) {
                drop(life);
                // A connection that has ended meanwhile has other deadlines.
                let _ = self.with_state(|state| state.handle_timeout(look));
                return;
            }
            // Nothing can make it end but what it is told by these.
            let _ = state.handle_timeout(look);
            self.arm(state);
            state.take_actions()
        };
        self.carry_out(actions);
    }

    /// Looks at the connection, unless it has ended.
    pub(crate) fn look<R>(&self, at: impl FnOnce(&ConnectionState) -> R) -> Option<R> {
        match &*self.life() {
            Life::Alive(state) => Some(at(state)),
            Life::Ended(_) => None,
        }
    }

    /// Stops the connection, and sees to it that it ends within bounds.
    fn halt(self: &Arc<Self>, state: &mut ConnectionState, reason: CloseReason) {
        // The caller holds the connection's lock. Only the worker's task, which the command reaches,
        // and its timer take it again.
        state.halt(reason, Instant::now());
        self.arm(state);
        self.worker.note_woken();
        self.ending.cancel();
        self.frames.close();
        // A queue pair that had nothing in flight is drained at once, or cannot be halted.
        self.worker.send(Command::Check(Arc::clone(self)));
    }

    /// Records that the device took the last receive for one of the queue pairs. By number: an
    /// event that is read before its queue pair is gone may be told to the next of that number,
    /// whose end then waits for less than it should.
    pub(crate) fn handle_last_receive(self: &Arc<Self>, number: u32) {
        if let Life::Alive(state) = &mut *self.life() {
            state.handle_last_receive(number);
        }
        self.worker.send(Command::Check(Arc::clone(self)));
    }

    /// Sends a frame or offers one.
    pub(crate) fn send(self: &Arc<Self>, outgoing: Outgoing) -> Result<(), TransportError> {
        // What is not taken is dropped after the lock is released.
        let mut outgoing = Some(outgoing);
        self.with_state(|state| {
            let taken = outgoing.take_if(|_| state.is_open());
            let may = taken.is_some();
            taken.into_iter().for_each(|outgoing| state.push(outgoing));
            Ok(may)
        })
        .and_then(closed_unless)
    }

    pub(crate) fn send_control(
        self: &Arc<Self>,
        header: [u8; HEADER_LEN],
    ) -> Result<(), TransportError> {
        self.with_state(|state| {
            let may = state.is_open();
            if may {
                state.push(Outgoing::Control(header));
            }
            Ok(may)
        })
        .and_then(closed_unless)
    }

    /// Asks the peer to answer, to prove the connection.
    pub(crate) fn probe(self: &Arc<Self>) -> Result<(), TransportError> {
        self.with_state(|state| {
            state.push_probe();
            Ok(())
        })
    }

    /// Begins to deliver to `handler`; what came before is delivered by the worker's task.
    pub(crate) fn start(self: &Arc<Self>, handler: Arc<dyn Handler>) {
        *self.handler_slot() = Some(handler);
        let ended = match &*self.life() {
            Life::Ended(reason) => Some(reason.clone()),
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
        let handler = self.handler_slot().take();
        if let Some(handler) = handler {
            handler.handle_closed(reason);
        }
    }

    fn handler_slot(&self) -> MutexGuard<'_, Option<Arc<dyn Handler>>> {
        // An `Option` is whole at any time.
        self.handler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handler(&self) -> Option<Arc<dyn Handler>> {
        self.handler_slot().clone()
    }

    /// Ends in order: everything that was sent goes out first, within bounds.
    pub(crate) fn close(self: &Arc<Self>) {
        // A connection that has ended is closed.
        let _ = self.with_state(|state| {
            state.close(Instant::now());
            Ok(())
        });
    }

    /// Ends at once.
    pub(crate) fn fail(self: &Arc<Self>, reason: CloseReason) {
        // A connection that has ended needs no end.
        let _ = self.with_state(|_| Err::<(), _>(reason));
    }

    /// Why nothing can be sent any more.
    pub(crate) fn closed(&self) -> TransportError {
        let reason = match &*self.life() {
            Life::Ended(reason) => reason.clone(),
            Life::Alive(state) => match &state.phase {
                Phase::Halting(reason) => reason.clone(),
                _ => CloseReason::Local,
            },
        };
        TransportError::Closed { reason }
    }

    /// Whether a probe of the peer has come over the connection, and the connection has not ended
    /// since.
    pub(crate) fn is_probed(&self) -> bool {
        matches!(&*self.life(), Life::Alive(state) if state.is_probed)
    }

    /// Opens the connection, and gives what came before, to be delivered. For the worker's task.
    pub(crate) fn open(self: &Arc<Self>) -> Vec<Arrival> {
        let early = self.with_state(|state| Ok(state.open()?));
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
        let mut life = self.life();
        let Life::Alive(state) = &mut *life else { return None };
        let was_proven = state.is_proven;
        let result = state.handle_message(message, taken_key, &self.counters);
        if state.is_proven && !was_proven {
            self.proven.cancel();
            self.worker.note_woken();
        }
        match result {
            Ok(arrival) => arrival,
            Err(error) => {
                self.halt_unless_halting(state, error.into());
                None
            }
        }
    }

    /// Takes a receive that failed or makes no sense. For the worker's task.
    pub(crate) fn handle_bad_receive(self: &Arc<Self>, words: String) {
        self.fail(CloseReason::Failed(words));
    }

    /// Takes a completion of the queue pair, and gives the frames that are whole with it, to be
    /// delivered. For the worker's task.
    pub(crate) fn handle_completion(self: &Arc<Self>, completion: Completion) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        if self.may_wake(completion.kind()) {
            self.worker.note_woken();
        }
        let mut life = self.life();
        let Life::Alive(state) = &mut *life else { return arrivals };
        if let Err(reason) = state.handle_completion(completion, &self.counters, &mut arrivals) {
            self.halt_unless_halting(state, reason);
        }
        arrivals
    }

    /// Whether a completion may end the wait of a task: for a slot, for room, for a READ.
    fn may_wake(&self, kind: WorkKind) -> bool {
        kind != WorkKind::Send
            || self.frames.available_permits() == 0
            || self.worker.send_slots.available() == 0
    }

    fn halt_unless_halting(self: &Arc<Self>, state: &mut ConnectionState, reason: CloseReason) {
        if !matches!(state.phase, Phase::Halting(_)) {
            self.halt(state, reason);
        }
    }

    /// Hands out what has arrived. User code that it starts may block, for which the handler
    /// releases `handoff`. For the worker's task.
    pub(crate) fn deliver(self: &Arc<Self>, arrival: Arrival, handoff: &mut Handoff) {
        let Some(handler) = self.handler() else { return };
        let result = match arrival {
            Arrival::Small(frame) => handler.handle_frame(frame, Delivery::Whole, handoff),
            Arrival::Large(frame) => {
                self.counters.large_received.add(1);
                let frame = self.worker.leases.lease(frame);
                handler.handle_frame(frame, Delivery::Announced, handoff)
            }
            Arrival::Rts { transfer, offer } => {
                handoff.woke();
                self.handle_offer(&*handler, transfer, offer)
            }
            Arrival::Cancelled { transfer } => {
                handoff.woke();
                self.handle_cancelled(transfer);
                Ok(())
            }
        };
        if let Err(error) = result {
            self.fail(error.into());
        }
    }

    /// Asks the peer for credits that it does not use. For the worker's task.
    pub(crate) fn reclaim(self: &Arc<Self>) {
        // A connection that has ended gives everything back.
        let _ = self.with_state(|state| {
            state.reclaim();
            Ok(())
        });
    }

    /// Destroys the queue pairs and tells the handler; false when that was done before. For the
    /// worker's task.
    pub(crate) fn end(self: &Arc<Self>) -> bool {
        let (state, reason) = {
            let mut life = self.life();
            let reason = match &*life {
                Life::Ended(_) => return false,
                Life::Alive(state) => match &state.phase {
                    Phase::Halting(reason) => reason.clone(),
                    _ => CloseReason::Failed("the RDMA lane has ended".into()),
                },
            };
            match std::mem::replace(&mut *life, Life::Ended(reason.clone())) {
                Life::Alive(state) => (state, reason),
                Life::Ended(_) => return false,
            }
        };
        if let Some(at) = state.armed {
            self.worker.timers.disarm(at, self.tag);
        }
        self.ending.cancel();
        self.frames.close();
        self.worker.note_woken();
        // Destroying is a system call that may wait for the device.
        let ended = self.ended.clone().drop_guard();
        self.worker.runtime.spawn_blocking(move || {
            drop(state);
            drop(ended);
        });
        self.tell_end(reason);
        true
    }
}

/// What a connection is made with, besides its state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Whose share of the worker's memory it takes.
    pub(crate) peer: PeerKey,
    pub(crate) frame_len_max: usize,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Connection");
        match &*self.life() {
            Life::Alive(state) => debug.field("path", state),
            Life::Ended(reason) => debug.field("ended", reason),
        };
        debug.field("tag", &self.tag).finish_non_exhaustive()
    }
}

fn closed_unless(may: bool) -> Result<(), TransportError> {
    if may { Ok(()) } else { Err(TransportError::Closed { reason: CloseReason::Local }) }
}
