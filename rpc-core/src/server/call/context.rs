//! The call that is being handled: its request's head, its deadline, and what code that runs inside
//! its handler can ask.
//!
//! Metadata and extensions are decoded on demand. The context lies in a cell of the thread while
//! the handler is polled or dropped, its stream included. Nothing is allocated for it unless a
//! handler asks: the token by which work elsewhere learns of the call's end is made at that moment.

use std::cell::{OnceCell, RefCell};
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use crate::call::refusal;
use crate::deadline::Inherited;
use crate::payload::buffer::{Buffer, any_buffer, buffer_of};
use crate::server::PeerInfo;
use crate::server::peer::InsertPeer;
use crate::wire::metadata;
use crate::{CallKind, Deadline, MethodDescriptor};

thread_local! {
    /// The call whose handler runs on this thread.
    static CURRENT: RefCell<Option<CallScope>> = const { RefCell::new(None) };
}

/// The context of a handler's call, beside the request.
///
/// When the client gives the call up, its deadline passes or the connection ends, the handler is
/// dropped where it waits. [`CallContext::cancellation`] is for what the handler has started
/// elsewhere, a thread or a task of its own, which is not dropped with the call.
///
/// # Examples
///
/// ```
/// use farcall::{CallContext, Code, Status};
///
/// async fn search() -> Result<u64, Status> {
///     let call = CallContext::current().ok_or_else(|| Status::internal("not in a handler"))?;
///     let searching = tokio::task::spawn_blocking(move || {
///         // Stops once the call has been given up.
///         (0..1_000_000).take_while(|_| !call.is_cancelled()).sum()
///     });
///     searching.await.map_err(|error| Status::new(Code::Internal, error.to_string()))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct CallContext {
    method: &'static MethodDescriptor,
    deadline: Option<Deadline>,
    peer: Arc<PeerInfo>,
    cancellation: CancellationToken,
}

impl CallContext {
    /// The call that is being handled; `None` outside of a handler. The first time that a call is
    /// asked for its context costs an allocation.
    #[must_use]
    pub fn current() -> Option<Self> {
        Self::with_current(CallScope::context)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'static MethodDescriptor {
        self.method
    }

    /// Returns the deadline of the call.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// The connection that the call came in on.
    #[must_use]
    pub fn peer(&self) -> &Arc<PeerInfo> {
        &self.peer
    }

    /// Fires when the handler, or the stream that it returned, is given up before it has ended: by
    /// the client, the deadline, the end of the connection, a layer, or a panic. A handler that
    /// ends by itself does not fire it.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Returns true if the call was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Waits until the call is given up; for ever when its handler ends by itself.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.cancellation.cancelled()
    }

    pub(in crate::server) fn with_current<T>(look: impl FnOnce(&CallScope) -> T) -> Option<T> {
        // A thread that is ending has none.
        CURRENT.try_with(|current| current.borrow().as_ref().map(look)).ok().flatten()
    }
}

impl PeerInfo {
    /// The connection of the call that is being handled; `None` outside of one. Costs nothing but
    /// a count of references.
    #[must_use]
    pub fn current() -> Option<Arc<Self>> {
        CallContext::with_current(|running| Arc::clone(running.peer()))
    }
}

/// The call that a task handles, as [`CallContext::current`] finds it.
#[derive(Debug)]
pub(in crate::server) struct CallScope {
    method: &'static MethodDescriptor,
    time_limit: TimeLimit,
    peer: Arc<PeerInfo>,
    cancellation: OnceCell<CancellationToken>,
}

impl CallScope {
    pub(in crate::server) fn new(
        method: &'static MethodDescriptor,
        time_limit: TimeLimit,
        peer: Arc<PeerInfo>,
    ) -> Self {
        Self { method, time_limit, peer, cancellation: OnceCell::new() }
    }

    pub(in crate::server) fn method(&self) -> &'static MethodDescriptor {
        self.method
    }

    pub(in crate::server) fn time_limit(&self) -> TimeLimit {
        self.time_limit
    }

    pub(in crate::server) fn deadline(&self) -> Option<Deadline> {
        self.time_limit.deadline()
    }

    pub(in crate::server) fn peer(&self) -> &Arc<PeerInfo> {
        &self.peer
    }

    /// Runs a handler as this call's; calls that it makes inherit the call's deadline.
    pub(in crate::server) fn scope<F: Future<Output = ()>>(self, handler: F) -> Scoped<F> {
        Scoped::new(Some(self), handler)
    }

    fn context(&self) -> CallContext {
        CallContext {
            method: self.method,
            deadline: self.deadline(),
            peer: Arc::clone(&self.peer),
            cancellation: self.cancellation.get_or_init(CancellationToken::new).clone(),
        }
    }
}

/// Makes a call the one that its thread handles, until this is dropped.
pub(in crate::server) struct Entered<'a> {
    /// The call that the thread handled before, while this lives.
    scope: &'a mut Option<CallScope>,
    _inherited: Inherited,
}

impl<'a> Entered<'a> {
    #[inline(always)]
    pub(in crate::server) fn new(scope: &'a mut Option<CallScope>) -> Self {
        // Before the exchange, which moves the scope out of here.
        let inherited = Inherited::enter(scope.as_ref().and_then(CallScope::deadline));
        exchange(scope);
        Self { scope, _inherited: inherited }
    }
}

impl Drop for Entered<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Also on a panic: the next call that this thread polls must not find this one's scope.
        exchange(self.scope);
    }
}

#[inline(always)]
fn exchange(scope: &mut Option<CallScope>) {
    // On a thread that is ending, the handler runs without a context. Nothing else fails: no code
    // of others runs while the cell is borrowed.
    let _ = CURRENT.try_with(|current| mem::swap(&mut *current.borrow_mut(), scope));
}

pin_project! {
    /// A handler that is polled and dropped as the one of its call.
    pub(in crate::server) struct Scoped<F> {
        scope: Option<CallScope>,
        #[pin]
        handler: Option<F>,
    }

    impl<F> PinnedDrop for Scoped<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.handler.is_some() {
                let _entered = Entered::new(this.scope);
                this.handler.set(None);
            }
        }
    }
}

impl<F> Scoped<F> {
    /// Runs the rest of the handler of a call that [`Entered`] has run the beginning of.
    pub(in crate::server) fn new(scope: Option<CallScope>, handler: F) -> Self {
        Self { scope, handler: Some(handler) }
    }
}

impl<F: Future<Output = ()>> Future for Scoped<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let _entered = Entered::new(this.scope);
        // Polled after its end, it has nothing to poll.
        let Some(handler) = this.handler.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = handler.poll(context);
        if polled.is_ready() {
            // Still inside the scope: destructors in the handler may ask for the call.
            this.handler.set(None);
        }
        polled
    }
}

/// The drop guard of a handler. Dropped before the handler has ended, it fires the call's
/// cancellation token.
#[derive(Debug)]
#[must_use]
pub(in crate::server) struct CancelOnDrop {
    is_finished: bool,
}

impl CancelOnDrop {
    pub(in crate::server) fn new() -> Self {
        Self { is_finished: false }
    }

    /// Records that the handler has ended by itself.
    pub(in crate::server) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.is_finished {
            // Handlers are dropped inside their scope. The token is cancelled outside of the cell,
            // since it wakes tasks, and a waker may be anything.
            let token = CallContext::with_current(|running| running.cancellation.get().cloned());
            token.flatten().inspect(CancellationToken::cancel);
        }
    }
}

/// The bound on the time of a call. The side that set it and its length are kept, because the
/// status of a call that is over its time names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum TimeLimit {
    /// The call may take as long as it likes.
    None,
    /// The client's deadline and timeout.
    Client(Deadline, Duration),
    /// The server's own limit for unary calls, which passes before any deadline of the client.
    UnaryTimeout(Deadline, Duration),
}

impl TimeLimit {
    /// The limit of a call that has arrived now, from the microseconds that the client allows it,
    /// of which 0 stands for no limit, and from the server's timeout for unary calls. The clock is
    /// read only where there is one of them.
    #[inline(always)]
    pub(in crate::server) fn new(
        client_us: u64,
        kind: CallKind,
        unary_timeout: Option<Duration>,
    ) -> Self {
        let client = (client_us > 0).then(|| Duration::from_micros(client_us));
        let own = unary_timeout.filter(|_| kind == CallKind::Unary);
        let from_now = |timeout| Deadline::after(Instant::now(), timeout);
        match (client, own) {
            (Some(client), Some(own)) if own < client => Self::UnaryTimeout(from_now(own), own),
            (Some(client), _) => Self::Client(from_now(client), client),
            (None, Some(own)) => Self::UnaryTimeout(from_now(own), own),
            (None, None) => Self::None,
        }
    }

    /// The limit of a unary call whose message has not come; of any other kind the client's.
    pub(in crate::server) fn early(
        client: Option<(Deadline, Duration)>,
        kind: CallKind,
        unary_timeout: Option<Duration>,
    ) -> Self {
        let own = unary_timeout.filter(|_| kind == CallKind::Unary);
        match (client, own) {
            (Some((deadline, client)), own) if own.is_none_or(|own| client <= own) => {
                Self::Client(deadline, client)
            }
            (_, Some(own)) => Self::UnaryTimeout(Deadline::after(Instant::now(), own), own),
            (_, None) => Self::None,
        }
    }

    /// The instant, if there is one.
    pub(in crate::server) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::None => None,
            Self::Client(deadline, _) | Self::UnaryTimeout(deadline, _) => Some(deadline),
        }
    }

    /// The status of a call that is over this limit.
    pub(in crate::server) fn exceeded(self) -> Status {
        match self {
            Self::None => refusal::deadline_exceeded(),
            Self::Client(_, timeout) => refusal::over_time(timeout, "the client's deadline"),
            Self::UnaryTimeout(_, timeout) => {
                refusal::over_time(timeout, "the server's unary_timeout")
            }
        }
    }
}

/// A request's head: as it came, or as a layer left it.
#[derive(Debug)]
pub(in crate::server) enum Head {
    /// The block of the frame.
    Encoded {
        block: Bytes,
        /// Connection details to add when it is decoded.
        peer: Option<InsertPeer>,
    },
    /// The decoded metadata and extensions. Boxed, so that calls without layers do not carry their
    /// size along.
    Decoded(Box<(MetadataMap, Extensions)>),
}

impl Head {
    /// Decodes the head, if that has not been done, and adds what the runtime tells a handler.
    #[inline(always)]
    pub(in crate::server) fn decode(
        self,
        running: &CallScope,
    ) -> Result<(MetadataMap, Extensions), Status> {
        let (block, peer) = match self {
            Self::Decoded(decoded) => return Ok(*decoded),
            Self::Encoded { block, peer } => (block, peer),
        };
        let metadata = if block.is_empty() {
            MetadataMap::new()
        } else {
            metadata::decode(block).map_err(|error| undecodable("metadata", &error))?
        };
        let mut extensions = Extensions::new();
        if let Some(deadline) = running.deadline() {
            extensions.insert(deadline);
        }
        if let Some(insert) = peer {
            insert(running.peer(), &mut extensions);
        }
        Ok((metadata, extensions))
    }
}

/// Memory of exactly `len` bytes that a message's `bytes` field can be sent from, with unspecified
/// contents.
///
/// On a host with RDMA, and once a connection uses it, the memory is registered, and a field of at
/// least 64 KiB that lies in it is read by the peer from where it lies. Applications are lent at
/// most half of what a device may send from (`rdma.max_source_bytes`); beyond that, before the
/// first connection, and everywhere else the memory is plain, and the field is copied once.
/// [`Buffer::is_registered`] tells.
///
/// Where the keys of a device reach a whole buffer (`RkeyScope::Region`), a peer that is sent any
/// slice of it can read all of it, and what its next user writes, for as long as it stays
/// registered. There a buffer is zero when it is lent, so that it never shows an earlier user's
/// bytes; slices for peers that must not see each other's belong in buffers of their own. Where
/// windows are used (`RkeyScope::Window`), a peer reads the slice alone.
///
/// In a handler the memory belongs to the device of the connection that its call came in on, so
/// that it is right for the answer; elsewhere to the one with the most connections. What goes out
/// by another device, or under other rules on the same one, is copied.
/// `Channel::buffer` is right for requests.
///
/// The memory is in use until the last `Bytes` made from it are gone and the peer has read them.
///
/// # Cancel safety
///
/// This function is cancel safe: no memory stays taken. It never waits for memory to become free;
/// registering a long buffer for the first time takes milliseconds, on another thread.
///
/// # Examples
///
/// ```
/// # async fn example() {
/// let mut buffer = farcall::buffer(1 << 20).await;
/// buffer.fill(7);
/// let payload: bytes::Bytes = buffer.freeze();
/// // A message with `payload` in a `bytes` field goes out without a copy.
/// # }
/// ```
pub async fn buffer(len: usize) -> Buffer {
    match PeerInfo::current().and_then(|peer| peer.buffers.source()) {
        Some(source) => buffer_of(Some(source), len).await,
        None => any_buffer(len).await,
    }
}

/// The status of the call that is being handled, when its time is over.
pub(in crate::server) fn time_exceeded() -> Status {
    let exceeded = CallContext::with_current(|running| running.time_limit.exceeded());
    exceeded.unwrap_or_else(refusal::deadline_exceeded)
}

pub(in crate::server) fn undecodable(what: &str, error: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("the request's {what} does not decode: {error}"))
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
