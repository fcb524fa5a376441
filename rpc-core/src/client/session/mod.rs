//! The client's driver of one connection: it joins the call table with a transport.
//!
//! Requests are encoded and sent in the caller's task. What comes back is `incoming`'s business.

mod incoming;
mod phase;
mod places;
mod request;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::{fmt, mem};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::phase::{Draining, Phase};
use self::phase::{WatchRules, keep_alive};
use super::{ClientSetup, Connection, MethodTable, Reply};
use crate::call::refusal;
use crate::calls::client::Calls;
use crate::calls::line::Line;
use crate::calls::receiving::ReceiveBudget;
use crate::calls::window::ReceiveWindow;
use crate::connect::ConnectionInfo;
use crate::limits::memory::MemoryShare;
use crate::payload::tail_field::Detacher;
use crate::session::{Role, SessionCore, Settled};
use crate::stream::{RecvStream, SendStream, SessionIo, WindowMemory};
use crate::transport::{CloseReason, Handler, Transport, TransportError};
use crate::wire::{FrameHeader, FrameKind};
use crate::{BufferSource, Explain, ExplainedFrame, Method, MethodDescriptor};

/// The client's end of a connection that speaks farcall's protocol. It starts calls and keeps
/// them.
pub struct Session {
    core: SessionCore,
    methods: Arc<MethodTable>,
    /// The budget of the windows of responses, from the first stream on.
    windows: OnceLock<MemoryShare>,
    /// The server's address as the user wrote it.
    pub(super) server: Arc<str>,
    state: Mutex<State>,
    /// False once the phase is another than `Open`, for callers that look for a connection.
    is_open: AtomicBool,
    /// Set when the connection has ended.
    pub(super) ended: CancellationToken,
}

pub(super) struct State {
    pub(super) calls: Calls<InFlight>,
    pub(super) receive_budget: ReceiveBudget<()>,
    pub(super) phase: Phase,
    pub(super) answered_count: u64,
    /// Callers that wait for a place. While there are any, every place is taken or held.
    line: Line<oneshot::Sender<()>>,
}

impl State {
    /// Returns true if no more calls are started here, and the last has ended.
    fn is_done(&self) -> bool {
        self.phase.draining().is_some() && self.calls.in_flight_count() == 0
    }

    /// Ends a call with a status of this side. It sends the server nothing.
    fn fail(&mut self, id: u64, status: Status) -> Option<Ended> {
        match &self.calls.value(id)?.route {
            Route::Stream(_) => match self.calls.finish(id)?.route {
                Route::Stream(recv_stream) => Some(Ended::Stream(recv_stream, status)),
                Route::Waiting(_) | Route::Answered(_) => None,
            },
            Route::Waiting(_) | Route::Answered(_) => self.answer(id, Err(status)),
        }
    }

    /// Ends a call with the one message that its caller waits for, or with a status.
    #[inline(always)]
    fn answer(&mut self, id: u64, answer: Result<Reply, Status>) -> Option<Ended> {
        let call = self.calls.answer(id)?;
        match mem::replace(&mut call.route, Route::Answered(answer)) {
            Route::Waiting(waker) => Some(Ended::Caller(waker)),
            Route::Answered(_) | Route::Stream(_) => None,
        }
    }
}

/// A call that has ended, for its caller to be told without the lock of the state.
#[must_use]
enum Ended {
    /// Its caller is woken.
    Caller(Option<Waker>),
    /// The stream of its responses fails.
    Stream(Arc<RecvStream>, Status),
}

impl Ended {
    fn tell(self) {
        match self {
            Self::Caller(waker) => drop(waker.map(Waker::wake)),
            Self::Stream(recv_stream, status) => recv_stream.fail(status),
        }
    }
}

/// The session's entry of a call in flight.
pub(super) struct InFlight {
    pub(super) route: Route,
    pub(super) send_stream: Option<Arc<SendStream>>,
    /// The account that its caller has asked for.
    pub(super) explain: Option<Explain>,
    /// Absent where the method is not of generated code.
    pub(super) method: Option<&'static MethodDescriptor>,
}

impl InFlight {
    /// Accessors of the fields of the message that answers the call; `None` for streams.
    fn detacher(&self) -> Option<Detacher> {
        match self.route {
            Route::Waiting(_) | Route::Answered(_) => self.method?.detach.response,
            Route::Stream(_) => None,
        }
    }
}

/// The destination of a call's answer.
pub(super) enum Route {
    /// One message. The caller that waits for it is woken, if it was polled.
    Waiting(Option<Waker>),
    /// The message, which the caller has not taken yet.
    Answered(Result<Reply, Status>),
    Stream(Arc<RecvStream>),
}

impl Session {
    /// Starts the session and its transport.
    pub(crate) fn start(transport: Box<dyn Transport>, setup: ClientSetup) -> Arc<Self> {
        let peer_limits = setup.peer.limits();
        let methods = MethodTable::new(setup.peer.methods, setup.peer.method_kinds);
        let settled = Settled {
            limits: setup.limits,
            peer_limits,
            compression: setup.compression,
            addresses: setup.addresses,
            fallback: setup.fallback,
            is_upgraded: setup.is_upgraded,
        };
        let session = Arc::new(Self {
            core: SessionCore::new(Role::Client, transport, settled, MemoryShare::default()),
            methods: Arc::new(methods),
            windows: OnceLock::new(),
            server: setup.server,
            state: Mutex::new(State {
                calls: Calls::new(peer_limits.max_calls),
                receive_budget: ReceiveBudget::new(setup.limits.max_receiving_bytes),
                phase: Phase::Open,
                answered_count: 0,
                line: Line::default(),
            }),
            is_open: AtomicBool::new(true),
            ended: CancellationToken::new(),
        });
        tracing::debug!(
            target: "farcall::path",
            transport = session.core.transport.name(),
            addresses = %session.core.settled.addresses,
            "connected",
        );
        // From here on frames arrive, and they find the session whole.
        session.core.transport.start(Arc::clone(&session) as Arc<dyn Handler>);
        let rules =
            WatchRules { keepalive: setup.keepalive, progress_timeout: setup.progress_timeout };
        if rules.watch_anything() {
            // Weakly, so that the watch does not keep a connection that its channel has dropped.
            let watch = keep_alive(Arc::downgrade(&session) as _, rules);
            tokio::spawn(session.ended.clone().run_until_cancelled_owned(watch));
        }
        session
    }

    /// The id that the server has given a method.
    #[inline(always)]
    fn method_id(&self, method: &Method) -> Result<u16, Status> {
        let id = self.methods.call_id(method);
        id.ok_or_else(|| refusal::no_such_method(&self.server, method.path()))
    }

    /// The responses of a new call. Their window widens for as long as the windows of all calls
    /// have room in a budget: a server that fills them is as hostile as one that sends much else.
    fn responses(&self) -> RecvStream {
        let limits = &self.core.settled.limits;
        let first = limits.first_response_window();
        // Made for the first stream: most connections have unary calls alone.
        let share = || MemoryShare::whole(limits.max_receiving_bytes);
        let memory = WindowMemory::beyond(self.windows.get_or_init(share), first);
        RecvStream::responses(ReceiveWindow::widening(first, limits.window()), memory)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the phase, which leaves `Open` by that. Callers that wait for a place look for
    /// another connection.
    fn leave_open<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state);
        debug_assert!(!state.phase.is_open(), "{:?}", state.phase);
        self.is_open.store(false, Ordering::Release);
        let (is_done, line) = (state.is_done(), mem::take(&mut state.line));
        drop(state);
        drop(line);
        self.close_if(is_done);
        changed
    }

    /// Leaves the lock after a change by which a place may have become free, or the last call may
    /// have ended.
    #[inline(always)]
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let next = if state.calls.has_room() { state.line.pop() } else { None };
        if next.is_some() {
            state.calls.hold();
        }
        let is_done = state.is_done();
        drop(state);
        if let Some(next) = next {
            self.hand_over(next);
        }
        // Outside of the lock: closing the transport may end the session at once, which takes it.
        self.close_if(is_done);
    }

    /// Describes a frame of `len` bytes.
    pub(super) fn explained(&self, len: u64, is_large: bool) -> ExplainedFrame {
        ExplainedFrame { len, protocol: self.core.transport.frame_protocol(), is_large }
    }

    /// The bytes that the transport has copied.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.core.transport.stats().copied_bytes
    }

    /// Takes a call out of the table that the server has ended, or does not know.
    fn finish(&self, id: u64) {
        let mut state = self.state();
        // One whose request was not sent may have been answered all the same, by the end of the
        // connection.
        let ended = state.calls.finish(id).or_else(|| state.calls.take(id));
        self.unlock(state);
        drop(ended);
    }

    /// Tells transport and server that no caller waits for a call any more. Its place, which is
    /// held, is free behind the cancel: a server ends the connection of a client that exceeds its
    /// `max_calls`.
    fn give_up(&self, id: u64) {
        // Before the cancel: what the transport still has of the call's large frames is taken
        // back.
        self.core.transport.abandon(id);
        // A connection that is closed needs no cancel.
        let _ =
            self.core.transport.send_control(FrameHeader::bare(FrameKind::Cancel, id).to_bytes());
        let mut state = self.state();
        state.calls.release();
        self.unlock(state);
    }

    /// Closes a connection whose work is done. It is this side that closes, because only this side
    /// knows of requests on their way.
    fn close_if(&self, is_done: bool) {
        if is_done {
            self.core.transport.close();
        }
    }

    /// Describes the method at `path`.
    ///
    /// # Errors
    ///
    /// Returns `UNIMPLEMENTED` if the server has no such method, or is of a version that does not
    /// describe its methods.
    pub(super) fn method(&self, path: &str) -> Result<Method, Status> {
        let known = self.methods.entry(path);
        let (path, id) = known.ok_or_else(|| refusal::no_such_method(&self.server, path))?;
        let description = self.methods.kind(id);
        let description = description.ok_or_else(|| refusal::kind_unknown(&self.server, path))?;
        Ok(Method::described(Arc::clone(path), description))
    }

    /// Returns the server's methods.
    pub(super) fn method_table(&self) -> Weak<MethodTable> {
        Arc::downgrade(&self.methods)
    }

    /// Takes the one message that answers a call, or waits for it.
    #[inline(always)]
    pub(super) fn poll_reply(&self, id: u64, cx: &mut Context<'_>) -> Poll<Result<Reply, Status>> {
        let lost = || Poll::Ready(Err(Status::internal("the call is not in flight")));
        let mut state = self.state();
        if let Some(call) = state.calls.take(id) {
            drop(state);
            return match call.route {
                Route::Answered(answer) => Poll::Ready(answer),
                Route::Waiting(_) | Route::Stream(_) => lost(),
            };
        }
        let Some(InFlight { route: Route::Waiting(waker), .. }) = state.calls.value_mut(id) else {
            return lost();
        };
        let is_known = waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        let before = if is_known { None } else { waker.replace(cx.waker().clone()) };
        // Without the lock: a waker may run anything when it is dropped.
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Cancels a call. One that has ended is left alone; its answer is dropped.
    pub(super) fn cancel(&self, id: u64) {
        let mut state = self.state();
        let cancelled = state.calls.cancel(id);
        let answered = state.calls.take(id);
        drop(state);
        if cancelled.is_some() {
            self.give_up(id);
        }
        drop((cancelled, answered));
    }

    /// Ends a call because of a failure on this side, which becomes its status.
    pub(super) fn fail(&self, id: u64, status: Status) {
        let mut state = self.state();
        let ended = state.fail(id, status);
        if ended.is_some() {
            state.calls.hold();
        }
        drop(state);
        if let Some(ended) = ended {
            // The cancel goes out before the caller gets the status and can make another call.
            self.give_up(id);
            ended.tell();
        }
    }
}

impl Connection for Session {
    fn is_open(&self) -> bool {
        // A caller that comes at the same time is refused under the lock of the state.
        self.is_open.load(Ordering::Acquire)
    }

    fn closed(&self) -> Option<CloseReason> {
        self.state().phase.closed().cloned()
    }

    fn answered_count(&self) -> u64 {
        self.state().answered_count
    }

    fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    fn retire(&self) {
        self.leave_open(|state| state.phase.drain(Draining::Replaced));
    }

    fn close(&self) {
        self.core.transport.close();
    }

    fn buffers(&self) -> Option<Arc<dyn BufferSource>> {
        self.core.transport.buffers()
    }

    fn info(&self) -> ConnectionInfo {
        let calls_in_flight = self.state().calls.in_flight_count();
        self.core.info(calls_in_flight)
    }
}

impl SessionIo for Session {
    fn core(&self) -> &SessionCore {
        &self.core
    }

    fn unsendable(&self, error: &TransportError) -> Status {
        let TransportError::Closed { reason } = error else { return refusal::unsendable(error) };
        // The transport knows of its end before it reports it to its handler. New calls go to
        // another connection from now on.
        self.leave_open(|state| state.phase.cut(reason));
        refusal::lost(&self.server, reason)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Session")
            .field("transport", &self.core.transport)
            .field("in_flight_count", &state.calls.in_flight_count())
            .field("phase", &state.phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
