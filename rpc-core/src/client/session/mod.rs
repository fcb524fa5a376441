//! The client's driver of one connection: it joins the call table with a transport.
//!
//! Requests are encoded and sent in the caller's task. What comes back is `incoming`'s business.

mod incoming;
mod phase;
mod request;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::phase::{Draining, Phase};
use self::phase::{WatchRules, keep_alive};
use super::connection::ReplySender;
use super::{ClientSetup, Connection, MethodTable, Outgoing, SessionCalls, Started};
use crate::call::refusal;
use crate::calls::client::Calls;
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

/// The client's end of a connection.
pub(crate) struct Session {
    core: SessionCore,
    methods: Arc<MethodTable>,
    permits: Arc<Semaphore>,
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
}

impl State {
    /// Returns true if no more calls are started here, and the last has ended.
    pub(super) fn is_done(&self) -> bool {
        self.phase.draining().is_some() && self.calls.in_flight_count() == 0
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
            Route::Reply(_) => self.method?.detach.response,
            Route::Stream(_) => None,
        }
    }
}

/// The destination of a call's answer.
pub(super) enum Route {
    Reply(ReplySender),
    Stream(Arc<RecvStream>),
}

impl Route {
    /// Ends a call with a status. The caller may have gone at this very moment.
    pub(super) fn fail(self, status: Status) {
        match self {
            Self::Reply(sender) => drop(sender.send(Err(status))),
            Self::Stream(recv_stream) => recv_stream.fail(status),
        }
    }
}

impl Session {
    /// Starts the session and its transport.
    pub(crate) fn start(transport: Box<dyn Transport>, setup: ClientSetup) -> Arc<Self> {
        let peer_limits = setup.peer.limits();
        // The peer's number may be beyond what a semaphore can hold.
        let permit_count = (peer_limits.max_calls as usize).min(Semaphore::MAX_PERMITS);
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
            permits: Arc::new(Semaphore::new(permit_count)),
            windows: OnceLock::new(),
            server: setup.server,
            state: Mutex::new(State {
                calls: Calls::default(),
                receive_budget: ReceiveBudget::new(setup.limits.max_receiving_bytes),
                phase: Phase::Open,
                answered_count: 0,
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
        // No code between lock and unlock can leave the tables half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the phase, which leaves `Open` by that.
    fn leave_open<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state);
        debug_assert!(!state.phase.is_open(), "{:?}", state.phase);
        self.is_open.store(false, Ordering::Release);
        changed
    }

    /// Describes a frame of `len` bytes.
    pub(super) fn explained(&self, len: u64, is_large: bool) -> ExplainedFrame {
        ExplainedFrame { len, protocol: self.core.transport.frame_protocol(), is_large }
    }

    /// The bytes that the transport has copied.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.core.transport.stats().copied_bytes
    }

    fn closed_status(&self) -> Status {
        // The phase changes before the permits are closed, so that it says why.
        let refusal = self.state().phase.refusal(&self.server);
        refusal.unwrap_or_else(|| refusal::lost(&self.server, &CloseReason::Local))
    }

    /// Takes a call out of the table.
    pub(super) fn finish(&self, id: u64) -> Option<InFlight> {
        let (ended, is_done) = {
            let mut state = self.state();
            (state.calls.finish(id), state.is_done())
        };
        // Outside of the lock: closing the transport may end the session at once, which takes it.
        self.leave_if(is_done);
        ended
    }

    /// Tells transport and server that no caller waits for a call any more.
    fn give_up(&self, id: u64) {
        // Before the cancel: what the transport still has of the call's large frames is taken
        // back.
        self.core.transport.abandon(id);
        // A connection that is closed needs no cancel.
        let _ =
            self.core.transport.send_control(FrameHeader::bare(FrameKind::Cancel, id).to_bytes());
    }

    /// Closes a connection whose work is done. It is this side that closes, because only this side
    /// knows of requests on their way.
    fn leave_if(&self, is_done: bool) {
        if is_done {
            self.core.transport.close();
        }
    }
}

impl SessionCalls for Session {
    fn try_start(self: Arc<Self>, call: Outgoing<'_>) -> Result<Option<Started>, Status> {
        self.try_send_request(call)
    }

    fn start<'a>(self: Arc<Self>, call: Outgoing<'a>) -> BoxFuture<'a, Result<Started, Status>> {
        Box::pin(self.send_request(call))
    }

    fn method(&self, path: &str) -> Result<Method, Status> {
        let known = self.methods.entry(path);
        let (path, id) = known.ok_or_else(|| refusal::no_such_method(&self.server, path))?;
        let description = self.methods.kind(id);
        let description = description.ok_or_else(|| refusal::kind_unknown(&self.server, path))?;
        Ok(Method::described(Arc::clone(path), description))
    }

    fn method_table(&self) -> Weak<MethodTable> {
        Arc::downgrade(&self.methods)
    }

    fn cancel(&self, id: u64) {
        let (was_in_flight, is_done) = {
            let mut state = self.state();
            (state.calls.cancel(id), state.is_done())
        };
        if was_in_flight {
            self.give_up(id);
        }
        self.leave_if(is_done);
    }

    fn fail(&self, id: u64, status: Status) {
        let (ended, is_done) = {
            let mut state = self.state();
            (state.calls.finish(id), state.is_done())
        };
        if let Some(InFlight { route, .. }) = ended {
            // The cancel goes out before the caller gets the status and can make another call.
            self.give_up(id);
            route.fail(status);
        }
        self.leave_if(is_done);
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
        let is_done = self.leave_open(|state| {
            state.phase.drain(Draining::Replaced);
            state.is_done()
        });
        // Callers that wait for a permit start their calls on another connection.
        self.permits.close();
        self.leave_if(is_done);
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
