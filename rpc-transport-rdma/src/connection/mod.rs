//! One RDMA connection: its state under a lock, and what happens when the lock is released.
//!
//! Senders push and post in their own task. Everything that arrives is handled by the worker's task
//! alone, so that calls of the [`Handler`] never overlap, but for user code that blocks.

pub(crate) mod batching;
mod cancel;
pub(crate) mod credit_watchdog;
pub(crate) mod memory_windows;
pub(crate) mod read_queues;
pub(crate) mod read_throttle;
mod rndv_get;
pub(crate) mod rndv_payload;
pub(crate) mod state;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpc_core::handoff::Handoff;
use rpc_core::peer_key::PeerKey;
use rpc_core::transport::{CloseReason, Counters, Delivery, Handler, TransportError};
use rpc_core::wire::{HEADER_LEN, ProtocolError};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::state::{Arrival, ConnectionState, Outgoing, Phase};
use crate::device::open::LocalAddress;
use crate::memory::PoolShare;
use crate::verbs::{Completion, RemoteKey, WorkKind};
use crate::worker::{Command, WorkerShared};
pub(crate) use batching::BatchEnd;

/// Send slots that one connection may hold at a time, so that a peer which grants nothing takes
/// at most a quarter of a worker's default 256.
pub(crate) const SLOTS_MAX: usize = 64;

/// How long an end waits at most for the device to say that a queue pair takes no more receives:
/// far longer than a device takes, and short enough for one that never says it.
const LAST_RECEIVE_TIMEOUT: Duration = Duration::from_secs(1);

/// After how long a post is tried again that the device took only a part of: a few round trips,
/// in which what it took has left its queue.
const RETRY_AFTER: Duration = Duration::from_millis(1);

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
    /// Wakes who watches what the peer was offered, when some of it is taken back.
    withdrawn: Notify,
    /// Whether the task that watches for overdue releases runs.
    is_watching: AtomicBool,
    /// Taken when the connection ends, because the handler owns the transport that owns this.
    handler: Mutex<Option<Arc<dyn Handler>>>,
    life: Mutex<Life>,
    close_timeout: Duration,
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
            close_timeout: worker.config.close_timeout,
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
            withdrawn: Notify::new(),
            is_watching: AtomicBool::new(false),
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
        if state.credits.is_waiting() || state.reads_since().is_some() || state.has_queued() {
            self.worker.watch();
        }
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
        // Effects are collected under the lock and carried out after it: dropping memory that was
        // lent may run code of the application, and most of what follows takes this lock again.
        let (withheld, is_exposed) = (state.take_withheld(), state.is_exposed());
        let (retired, must_retry) = (state.take_retired(), state.take_retry());
        let (read_wait, takes_memory) = (state.take_read_wait(), state.starts_taking());
        drop(life);
        if !retired.is_empty() || !withheld.is_empty() || must_retry || read_wait.is_some() {
            self.worker.note_woken();
        }
        drop(retired);
        if must_retry {
            self.retry_later();
        }
        if let Some((share, len)) = read_wait {
            self.read_later(share, len);
        }
        if takes_memory {
            self.take_memory();
        }
        if is_exposed {
            self.watch();
        }
        self.report_withheld(withheld);
        result.map_err(|reason| TransportError::Closed { reason })
    }

    /// Posts again after a while what the device did not take.
    fn retry_later(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        self.worker.runtime.spawn(async move {
            tokio::time::sleep(RETRY_AFTER).await;
            if let Some(this) = this.upgrade() {
                // A connection that has ended has nothing to post.
                let _ = this.with_state(|_| Ok(()));
            }
        });
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
        // The caller holds the connection's lock. Only the task below and the worker's task, which
        // the command reaches, take it again.
        state.halt(reason);
        self.worker.note_woken();
        self.ending.cancel();
        self.frames.close();
        // A queue pair that had nothing in flight is drained at once, or cannot be halted.
        let this = Arc::clone(self);
        self.worker.runtime.spawn(async move {
            let first = LAST_RECEIVE_TIMEOUT.min(this.close_timeout);
            if tokio::time::timeout(first, this.ended.cancelled()).await.is_ok() {
                return;
            }
            this.give_up_last_receives();
            let rest = this.close_timeout.saturating_sub(first);
            if tokio::time::timeout(rest, this.ended.cancelled()).await.is_err() {
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    of_process, WARN,
                    "a queue pair does not drain: destroying it",
                    connection = ?this
                );
                this.worker.send(Command::End(Arc::clone(&this)));
            }
        });
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

    fn give_up_last_receives(self: &Arc<Self>) {
        if let Life::Alive(state) = &mut *self.life() {
            state.give_up_last_receives();
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
        let closing = self.with_state(|state| {
            if state.is_open() {
                state.phase = Phase::Closing;
            }
            Ok(())
        });
        if closing.is_ok() {
            let this = Arc::clone(self);
            self.worker.runtime.spawn(async move {
                let flushed = this.ending.cancelled();
                if tokio::time::timeout(this.close_timeout, flushed).await.is_err() {
                    this.fail(CloseReason::Local);
                }
            });
        }
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

    /// How long something has waited for credit.
    pub(crate) fn waited(&self, now: Instant) -> Option<Duration> {
        self.look(|state| state.credits.waited(now)).flatten()
    }

    /// How long the peer has taken to answer the READ that is next on its queue pair.
    pub(crate) fn waited_for_read(&self, now: Instant) -> Option<Duration> {
        let since = self.look(ConnectionState::reads_since).flatten()?;
        Some(now.saturating_duration_since(since))
    }

    /// Whether something waits for credit; if so, what to say about a wait of at least `limit`.
    pub(crate) fn stall(&self, now: Instant, limit: Duration) -> Option<Option<String>> {
        match &mut *self.life() {
            Life::Alive(state) if state.credits.is_waiting() => {
                Some(state.credits.stall(now, limit))
            }
            _ => None,
        }
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
