//! The channel: a cheap handle that makes calls over one connection, which is renewed when it ends.

mod channel_call;
mod encoded;
mod ready;
mod retry;

use std::future::{Future, Ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;
use tonic::service::Interceptor;
use tower::Layer;

pub use self::channel_call::ChannelCall;
use self::ready::ReadyWhen;
use self::retry::Replays;
pub(in crate::client) use self::retry::log_replay;
use super::call::begun::Begun;
use super::call::deadline::within;
use super::connection_manager::ConnectionManager;
use super::{
    Call, CallDeadline, CallDefaults, Caller, ClientReply, Connect, Established, Intercepted,
    LayeredChannel, Path, PathCounts,
};
use crate::balance::Connectivity;
use crate::connect::{ConnectError, ConnectionInfo, with_retry};
use crate::payload::buffer::buffer_of;
use crate::{Buffer, Deadline, Method, NotExecuted, Readiness};

/// A cheap handle that makes calls; clones share one connection.
///
/// The connection is made at the first call, and made anew when it has ended: calls in flight
/// then end with `UNAVAILABLE`, the next one connects. Calls that come meanwhile wait for the same
/// attempt and fail with it, and one whose deadline passes leaves it to the others. It is closed
/// with the last clone and the last stream of responses.
///
/// After an attempt that failed the channel backs off ([`crate::ConnectBackoff`]): calls fail at
/// once with `UNAVAILABLE`, the reason of that attempt and the time of the next one, or wait
/// ([`Readiness`]). A connection over which no call was answered counts as a failed attempt too,
/// from the second in a row on: a server that accepts and closes, or sends its clients away at
/// once, is not asked more often than one that is not there.
///
/// A server that shuts down, or has had the connection for long enough, says so: calls in flight
/// then go on, and the next one connects. A call that crossed the server's word comes back marked
/// as not executed, and is started once more, unless its requests are a stream, which is partly
/// sent by then: that one ends with `UNAVAILABLE`, marked with [`NotExecuted`].
///
/// When an upgraded path under a connection dies (RDMA, where TCP still works) the channel goes on
/// without it, at once, and tries in the background to win it back; [`Channel::path`] tells. Where
/// the path is required, calls fail with `UNAVAILABLE` and the reason until it is back. A call
/// that was in flight on a connection that ended is made once more if its method is idempotent by
/// its `.proto` and nothing of its answer was seen; any other ends with `UNAVAILABLE`, marked with
/// [`crate::MayHaveExecuted`].
#[derive(Clone, Debug)]
pub struct Channel {
    pub(in crate::client) manager: Arc<ConnectionManager>,
    /// Set where connections speak another protocol, and take encoded calls.
    is_encoded: bool,
    /// What calls have that set nothing themselves.
    pub(super) defaults: CallDefaults,
    readiness: Readiness,
    /// What tower is told.
    ready_when: ReadyWhen,
    replays: Replays,
}

impl Channel {
    /// A channel that connects at its first call.
    #[must_use]
    pub fn new(connector: impl Connect) -> Self {
        let manager = Arc::new(ConnectionManager::new(connector));
        Self {
            is_encoded: manager.is_encoded(),
            manager,
            defaults: CallDefaults::default(),
            readiness: Readiness::FailFast,
            ready_when: ReadyWhen::Connected,
            replays: Replays::Here,
        }
    }

    /// Connects now.
    ///
    /// # Errors
    ///
    /// When no connection can be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down.
    pub async fn connect(connector: impl Connect) -> Result<Self, ConnectError> {
        let channel = Self::new(connector);
        channel.manager.connect().await?;
        Ok(channel)
    }

    /// The same channel with a timeout for calls of every kind that set none themselves. A stream
    /// that is still open then ends with `DEADLINE_EXCEEDED`;
    /// [`with_unary_timeout`](Self::with_unary_timeout) leaves streams alone. Zero ends every such
    /// call at once. Calls that a handler makes end with the handler's own call at the latest, see
    /// [`Deadline::detached`].
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.defaults.timeout = Some(timeout);
        self
    }

    /// The same channel with a timeout for unary calls that set none themselves, and none for calls
    /// with a stream in either direction. For unary calls it takes the place of the timeout of
    /// [`with_timeout`](Self::with_timeout), so that the two together give each kind its own. Zero
    /// ends every such call at once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farcall::Channel;
    ///
    /// /// A lookup is a matter of seconds, and a subscription may go on for ever.
    /// fn patient(channel: Channel) -> Channel {
    ///     channel.with_unary_timeout(Duration::from_secs(5))
    /// }
    /// ```
    #[must_use]
    pub fn with_unary_timeout(mut self, timeout: Duration) -> Self {
        self.defaults.unary_timeout = Some(timeout);
        self
    }

    /// The same channel with another rule for calls that are made while there is no connection and
    /// the channel backs off; [`Readiness::FailFast`] by default.
    #[must_use]
    pub fn with_readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// The same channel with or without a line in the log for each call that fails; with it by
    /// default. The line has the target `farcall::call`, and names the method, the server's address
    /// as the user wrote it, the status and how long the call took. Its level is WARN where
    /// something does not work, and DEBUG where the status is an answer of the application.
    #[must_use]
    pub fn with_log_failed_calls(mut self, is_logged: bool) -> Self {
        self.defaults.log.failures = is_logged;
        self
    }

    /// What the channel gives the calls that set nothing themselves.
    #[must_use]
    pub fn defaults(&self) -> &CallDefaults {
        &self.defaults
    }

    /// Puts a tower layer around calls of every kind; [`LayeredChannel`] tells how it is used. The
    /// outermost layer of a `tower::ServiceBuilder` is the one that is added first.
    ///
    /// tower's own layers work as they are: a timeout ends a call with `DEADLINE_EXCEEDED`, load
    /// shedding with `RESOURCE_EXHAUSTED`; an error of another layer becomes the call's status as
    /// [`crate::layer::into_status`] says. For a layer, a call is over with its first answer, the
    /// headers of a stream included.
    ///
    /// Under these layers the channel is always ready, connected or not: there is no other one to
    /// choose, and its calls wait or fail as their [`Readiness`] says.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rpc_core::client::ClientCall;
    /// use rpc_core::{Caller, Channel};
    /// use tower::ServiceBuilder;
    ///
    /// fn careful(channel: Channel) -> impl Caller + Clone {
    ///     let layers = ServiceBuilder::new()
    ///         .load_shed()
    ///         .concurrency_limit(100)
    ///         .timeout(Duration::from_secs(5))
    ///         .map_request(|mut call: ClientCall| {
    ///             let value = tonic::metadata::MetadataValue::from_static("berlin");
    ///             call.metadata_mut().insert("x-site", value);
    ///             call
    ///         });
    ///     channel.layer(layers)
    /// }
    /// ```
    #[must_use]
    pub fn layer<L: Layer<Self>>(self, layer: L) -> LayeredChannel<L::Service> {
        LayeredChannel::new(layer.layer(self.always_ready()))
    }

    /// The same channel as the innermost service of layers, where each call finds out for itself
    /// whether there is a connection, as its [`Readiness`] says.
    #[must_use]
    pub fn always_ready(mut self) -> Self {
        self.ready_when = ReadyWhen::Always;
        self
    }

    /// The same channel as one to an endpoint of several, whose channel makes calls again that may
    /// have been executed.
    pub(in crate::client) fn of_endpoint(mut self) -> Self {
        self.replays = Replays::ByEndpoints;
        self
    }

    /// Shows every request to one of tonic's interceptors before the call is made.
    ///
    /// # Examples
    ///
    /// ```
    /// use rpc_core::{Caller, Channel, Request, Status};
    ///
    /// fn authorized(channel: Channel) -> impl Caller + Clone {
    ///     channel.intercept(|mut request: Request<()>| -> Result<Request<()>, Status> {
    ///         let token = tonic::metadata::MetadataValue::from_static("Bearer letmein");
    ///         request.metadata_mut().insert("authorization", token);
    ///         Ok(request)
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn intercept<F: Interceptor>(self, interceptor: F) -> Intercepted<Self, F> {
        Intercepted::new(self, interceptor)
    }

    /// A connection for a call that found none.
    pub(super) async fn connection(
        &self,
        readiness: Readiness,
        limit: Option<&CallDeadline>,
    ) -> Result<Established, Status> {
        loop {
            let error = match self.manager.connection().await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            let due = Instant::from_std(self.manager.next_connect());
            if readiness == Readiness::FailFast || !error.may_pass() {
                let retry_in = due.saturating_duration_since(Instant::now());
                let retry_in = error.may_pass().then_some(retry_in);
                return Err(error.into_status(retry_in));
            }
            if let Some(limit) = limit
                && let Deadline(deadline) = limit.deadline()
                && deadline <= due
            {
                // No attempt begins before it is due, whichever call asks for it.
                tokio::time::sleep_until(deadline).await;
                let retry_in = due.saturating_duration_since(Instant::now());
                let error = with_retry(&error.reason(), retry_in);
                return Err(NotExecuted::mark(limit.exceeded_unconnected(&error)));
            }
            tokio::time::sleep_until(due).await;
        }
    }

    /// Whether tower may make a call now.
    pub(super) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let polled = self.ready_when.poll(&self.manager, cx);
        polled.map_err(|error| error.into_status(None))
    }

    /// Memory for a long `bytes` field of a request: as [`crate::buffer()`], and right for this
    /// channel. It belongs to the device of the current connection; before the first one, and over
    /// a transport without a device, it is plain memory.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: no memory stays taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use rpc_core::Channel;
    ///
    /// /// A page to be uploaded, which a peer over RDMA reads from where it was written.
    /// async fn page(channel: &Channel, number: u8) -> Bytes {
    ///     let mut buffer = channel.buffer(1 << 20).await;
    ///     buffer.fill(number);
    ///     buffer.freeze()
    /// }
    /// ```
    pub async fn buffer(&self, len: usize) -> Buffer {
        let source = self.manager.open().and_then(|connection| connection.buffers());
        buffer_of(source, len).await
    }

    /// Describes the current connection; `None` when there is none.
    #[must_use]
    pub fn info(&self) -> Option<ConnectionInfo> {
        self.manager.info()
    }

    /// Which path calls take at this moment, and why not a better one.
    #[must_use]
    pub fn path(&self) -> Path {
        self.manager.path()
    }

    /// Where the connection stands.
    #[must_use]
    pub fn connectivity(&self) -> Connectivity {
        self.manager.connectivity()
    }

    /// Waits until [`connectivity`](Self::connectivity) is another than `state`, and returns it. A
    /// wait that begins while the channel is idle has it connect.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn connectivity_changed(&self, state: Connectivity) -> Connectivity {
        self.manager.connectivity_changed(state).await
    }

    /// How often the upgraded path has failed and come back.
    #[must_use]
    pub fn path_counts(&self) -> PathCounts {
        self.manager.path_counts()
    }
}

// Not listed at the trait, which farcall's users read: their channel is farcall's.
#[doc(hidden)]
impl Caller for Channel {
    fn call(&self, call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        ChannelCall::new(Some(self), call, |call| self.call_otherwise(call)).make()
    }

    fn described(&self, path: &str) -> Option<Method> {
        // A connection of another protocol has no description. A method that the server does not
        // have is refused by the call, which has a status for it.
        self.manager.open()?.into_session().ok()?.method(path).ok()
    }
}

impl Channel {
    /// Makes a call that is not a stub's over a session.
    async fn call_otherwise(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        match self.is_encoded {
            true => self.call_encoded(call).await,
            false => self.call_untyped(call).await,
        }
    }

    /// Makes a call whose request came as a stream, and whose kind may be the server's to say.
    async fn call_untyped(&self, mut call: Call<'_>) -> Result<ClientReply, Status> {
        let (began, has_own_limit) = (Instant::now(), call.has_own_limit());
        let default = |kind| {
            let timeout = self.defaults.timeout_of(kind).filter(|_| !has_own_limit);
            timeout.map(|(timeout, set_by)| CallDeadline::after(began, timeout, set_by))
        };
        // From here on it is an instant, which waiting for the message does not move.
        call.settle_limit(None);
        if let Some(limit) = call.layers_limit().filter(|_| has_own_limit) {
            // So that the channel's timeout does not take its place.
            call.extensions_mut().insert(limit.deadline());
        }
        let limits = [call.layers_limit(), default(call.method().kind())];
        let limit = CallDeadline::earliest(limits.into_iter().flatten());
        let typed = within(limit.as_ref(), self.make_typed(&mut call, limit.as_ref())).await;
        if let Err(status) = typed {
            let begun = Begun::new(&self.defaults, &mut call).since(began);
            return begun.finish(call.method(), &self.manager, Err(status));
        }
        if let Some(limit) = default(call.method().kind()) {
            call.bring_nearer(limit);
        }
        ChannelCall::<Ready<_>>::over_session(self, call).make().await
    }

    /// Asks for the kind of a method that is known by its path alone, and makes one message of a
    /// stream where the method takes one.
    async fn make_typed(
        &self,
        call: &mut Call<'_>,
        limit: Option<&CallDeadline>,
    ) -> Result<(), Status> {
        if !call.method().is_described() {
            let connection = match self.manager.open() {
                Some(connection) => connection,
                None => self.connection(self.readiness_of(call), limit).await?,
            };
            let described = connection.into_session()?.method(call.method().path());
            call.set_method(described.map_err(NotExecuted::mark)?);
        }
        call.make_typed().await
    }

    /// What a call does while there is no connection.
    pub(super) fn readiness_of(&self, call: &Call<'_>) -> Readiness {
        call.extensions().get().copied().unwrap_or(self.readiness)
    }
}
