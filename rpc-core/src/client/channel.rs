//! The channel: a cheap handle that makes calls to one server, or each to one of many, with
//! credentials in their metadata.
//!
//! tower picks among services by `poll_ready`: its `Balance` passes over a service that is pending
//! until it wakes the task that asked. A channel without a connection is therefore pending, and
//! makes the connection itself. Were it ready as soon as its backoff is over, the balancer would
//! try a dead server with a call after each delay, and the call would fail.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::ReusableBoxFuture;
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tower::Layer;

use super::subchannel::{CallFuture, Subchannel};
use super::target::{RuledTarget, Target, TargetRules, Watched};
use super::{
    Call, CallRules, Caller, ClientCall, ClientReply, Connect, Intercepted, LayeredChannel, Path,
};
use crate::balance::{Connectivity, EndpointStatus};
use crate::client::call::MeteredCall;
use crate::client::connection_manager::ConnectionManager;
use crate::connect::{ConnectError, ConnectionInfo};
use crate::metrics::ChannelMeters;
use crate::payload::buffer::buffer_of;
use crate::{Buffer, Method};

/// A cheap handle that makes calls to one server, or each call to one of many. Clones share its
/// connections.
///
/// The connection is made at the first call, and made anew when it has ended: calls in flight
/// then end with `UNAVAILABLE`, the next one connects. Calls that come meanwhile wait for the same
/// attempt and fail with it, and one whose deadline passes leaves it to the others. It is closed
/// with the last clone and the last stream of responses.
///
/// After an attempt that failed the channel backs off ([`crate::Backoff`]): calls fail at
/// once with `UNAVAILABLE`, the reason of that attempt and the time of the next one, or wait
/// ([`Readiness`](crate::Readiness)). A connection over which no call was answered counts as a
/// failed attempt too, from the second in a row on: a server that accepts and closes, or sends its
/// clients away at once, is not asked more often than one that is not there.
///
/// A server that shuts down, or has had the connection for long enough, says so: calls in flight
/// then go on, and the next one connects. A call that crossed the server's word comes back marked
/// as not executed, and is started again, three times in all. One whose requests are a stream is
/// partly sent by then: it ends with `UNAVAILABLE`, marked with [`crate::NotExecuted`].
///
/// When an upgraded path under a connection dies (RDMA, where TCP still works) the channel goes on
/// without it, at once, and tries in the background to win it back; [`Channel::path`] tells. Where
/// the path is required, calls fail with `UNAVAILABLE` and the reason until it is back. A call
/// that was in flight on a connection that ended is made once more if its method is idempotent by
/// its `.proto` and nothing of its answer was seen; any other ends with `UNAVAILABLE`, marked with
/// [`crate::MayHaveExecuted`].
#[derive(Clone, Debug)]
pub struct Channel {
    state: Arc<ChannelState>,
    /// Readiness for tower.
    ready_when: ReadyWhen,
}

/// The target of a channel, and what its calls have that set nothing themselves.
#[derive(Debug, Clone)]
struct ChannelState {
    target: Target,
    rules: TargetRules,
    /// Rules that may change, in place of `rules`.
    watched: Option<Watched>,
    credentials: Credentials,
    meters: ChannelMeters,
    /// Set if a stub's call needs no more than the session of the one server.
    is_direct: bool,
}

/// The parts of a channel beside its target. The default sets nothing.
#[derive(Debug, Clone, Default)]
pub struct ChannelParts {
    /// Rules for calls, and policies for those of single methods.
    pub rules: TargetRules,
    /// Rules that may change, in place of `rules`.
    pub watched: Option<Watched>,
    /// Credentials in the metadata of calls.
    pub credentials: Credentials,
    /// The metrics of calls.
    pub meters: ChannelMeters,
}

impl Channel {
    /// A channel that connects at its first call.
    #[must_use]
    pub fn new(connector: impl Connect) -> Self {
        let target = Target::Direct(Subchannel::new(connector));
        Self::from_parts(target, ChannelParts::default())
    }

    /// Connects now.
    ///
    /// # Errors
    ///
    /// Returns `ConnectError` if no connection can be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down.
    pub async fn connect(connector: impl Connect) -> Result<Self, ConnectError> {
        let address = connector.address();
        let channel = Self::new(connector);
        channel.connected(&address).await?;
        Ok(channel)
    }

    /// Returns a channel to `target` that connects at its first call.
    #[must_use]
    pub fn from_parts(target: Target, parts: ChannelParts) -> Self {
        let ChannelParts { rules, watched, credentials, meters } = parts;
        let has_sessions = match &target {
            Target::Direct(subchannel) => subchannel.has_sessions(),
            Target::Balanced(_) => false,
        };
        // One flag in place of four tests, since each call looks at it.
        let is_direct = has_sessions && rules.policies.is_none() && watched.is_none();
        let state = ChannelState { target, rules, watched, credentials, meters, is_direct };
        Self { state: Arc::new(state), ready_when: ReadyWhen::Connected }
    }

    /// Connects a new channel now; to many servers, until one is connected. `address` names them
    /// in errors.
    ///
    /// # Errors
    ///
    /// Returns the reason of the last attempt if no connection can be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: an attempt at one server is torn down, and a channel to many
    /// goes on to connect.
    pub async fn connected(&self, address: &str) -> Result<(), ConnectError> {
        self.state.target.connect(address).await
    }

    /// Returns the same channel with other rules for calls that set nothing themselves.
    #[must_use]
    pub fn with_rules(self, rules: CallRules) -> Self {
        // A channel with clones keeps its state, and this one gets its own: clones share
        // connections only.
        let mut state = Arc::unwrap_or_clone(self.state);
        state.rules.calls = rules;
        Self { state: Arc::new(state), ..self }
    }

    /// Puts a tower layer around calls of every kind; [`LayeredChannel`] tells how it is used.
    /// Under layers the channel is always ready.
    #[must_use]
    pub fn layer<L: Layer<Self>>(self, layer: L) -> LayeredChannel<L::Service> {
        LayeredChannel::new(layer.layer(self.always_ready()))
    }

    /// The same channel as the innermost service of layers, where each call finds out for itself
    /// whether there is a connection, as its [`crate::Readiness`] says.
    #[must_use]
    pub fn always_ready(mut self) -> Self {
        self.ready_when = ReadyWhen::Always;
        self
    }

    /// Shows every request to one of tonic's interceptors before the call is made.
    #[must_use]
    pub fn intercept<F: Interceptor>(self, interceptor: F) -> Intercepted<Self, F> {
        Intercepted::new(self, interceptor)
    }

    /// Returns true if tower may make a call now.
    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        match &self.state.target {
            Target::Direct(subchannel) => {
                let polled = self.ready_when.poll(&subchannel.here().manager, cx);
                polled.map_err(|error| error.into_status(None))
            }
            Target::Balanced(_) => Poll::Ready(Ok(())),
        }
    }

    /// Memory for a long `bytes` field of a request: as [`crate::buffer()`], and right for this
    /// channel. It belongs to the device of the current connection; before the first one, and over
    /// a transport without a device, it is plain memory.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: no memory stays taken.
    pub async fn buffer(&self, len: usize) -> Buffer {
        let connection = self.state.target.connected().and_then(|it| it.manager.open());
        let source = connection.and_then(|connection| connection.buffers());
        buffer_of(source, len).await
    }

    /// Describes the current connection; `None` when there is none.
    #[must_use]
    pub fn info(&self) -> Option<ConnectionInfo> {
        self.state.target.connected()?.manager.info()
    }

    /// Returns the label `grpc.target` of its metrics.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics_target(&self) -> &str {
        self.state.meters.target()
    }

    /// Returns the path that calls take at this moment, with the reason if it is not the upgraded
    /// one.
    #[must_use]
    pub fn path(&self) -> Path {
        self.state.target.path()
    }

    /// Returns the state of the connection, or the best state of many.
    #[must_use]
    pub fn connectivity(&self) -> Connectivity {
        self.state.target.connectivity()
    }

    /// Waits until [`connectivity`](Self::connectivity) is another than `state`, and returns it. A
    /// wait that begins while the channel is idle has it connect.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub async fn connectivity_changed(&self, state: Connectivity) -> Connectivity {
        self.state.target.connectivity_changed(state).await
    }

    /// Describes each server, in the order of the list. Empty before a resolver's first answer.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        self.state.target.status()
    }
}

// Not listed at the trait, which farcall's users read: their channel is farcall's.
#[doc(hidden)]
impl Caller for Channel {
    fn call(&self, mut call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        let state = &*self.state;
        // Before the credentials: a call that they refuse counts as well.
        call.metered = MeteredCall::whole(state.meters.method(call.method()));
        let refused = state.credentials.apply(&mut call).err();
        let call = match (&state.target, refused) {
            (Target::Direct(subchannel), None) if state.is_direct && !call.is_untyped() => {
                let route = subchannel.route(&state.rules.calls, None);
                CallFuture::over_session(route, call)
            }
            (_, refused) => CallFuture::boxed(state.call_otherwise(call, refused)),
        };
        call.make()
    }

    fn described(&self, path: &str) -> Option<Method> {
        // A connection of another protocol has no description. A method that the server does not
        // have is refused by the call, which has a status for it.
        match &self.state.target {
            Target::Direct(subchannel) if self.state.is_direct => {
                subchannel.here().manager.open()?.into_session().ok()?.method(path).ok()
            }
            Target::Direct(_) | Target::Balanced(_) => None,
        }
    }
}

impl ChannelState {
    /// Makes a call that is not simply a stub's over the session of the one server.
    async fn call_otherwise(
        &self,
        mut call: Call<'_>,
        refused: Option<Status>,
    ) -> Result<ClientReply, Status> {
        // The whole call is counted here, and its attempts where they are made.
        let mut meter = call.metered.split();
        let mut made = self.call_by_rules(call, refused).await;
        match &mut made {
            Ok(reply) => reply.count_whole(meter),
            Err(_) => meter.finish(&made),
        }
        made
    }

    /// Makes it by the rules and policies of its method.
    async fn call_by_rules(
        &self,
        call: Call<'_>,
        refused: Option<Status>,
    ) -> Result<ClientReply, Status> {
        // Here, and not before: a refused call is counted, too.
        if let Some(status) = refused {
            return Err(status);
        }
        let now = self.watched.as_ref().map(|watched| watched.now(&self.rules));
        let TargetRules { calls: rules, policies } = now.as_ref().unwrap_or(&self.rules);
        let target = RuledTarget { target: &self.target, rules };
        match policies {
            Some(policies) => policies.call(&target, rules, call).await,
            None => target.call(call).await,
        }
    }
}

/// The readiness of a channel as a service of tower's.
#[derive(Debug, Default)]
enum ReadyWhen {
    /// While it has a connection.
    #[default]
    Connected,
    /// The same, and it was asked while it had none: this future makes one.
    Connecting(ReusableBoxFuture<'static, Result<(), Arc<ConnectError>>>),
    /// At any time: each call finds out for itself, as its [`crate::Readiness`] says.
    Always,
}

/// A clone is asked by another task, which has to be woken by a future of its own.
impl Clone for ReadyWhen {
    fn clone(&self) -> Self {
        match self {
            Self::Connected | Self::Connecting(_) => Self::Connected,
            Self::Always => Self::Always,
        }
    }
}

impl ReadyWhen {
    /// Returns true if the channel of `manager` is ready.
    pub(in crate::client) fn poll(
        &mut self,
        manager: &Arc<ConnectionManager>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Arc<ConnectError>>> {
        loop {
            match self {
                Self::Always => return Poll::Ready(Ok(())),
                // Without the clock: tower polls before each call.
                Self::Connected if manager.open().is_some() => return Poll::Ready(Ok(())),
                Self::Connected => {
                    let connecting = connect(Arc::clone(manager));
                    *self = Self::Connecting(ReusableBoxFuture::new(connecting));
                }
                Self::Connecting(connecting) => {
                    let outcome = ready!(connecting.poll(cx));
                    *self = Self::Connected;
                    // The connection may have gone since it was made: then another is.
                    if outcome.is_err() {
                        return Poll::Ready(outcome);
                    }
                }
            }
        }
    }
}

/// Adds to the metadata of every call of a channel what shows who makes it, such as a token. A
/// closure that takes a method and metadata is one.
///
/// It runs in the task of the call, before each, and must not block: a token that has to be
/// fetched is kept and renewed by a task of the program's own. A call that the channel makes once
/// more, on another connection, has the metadata that it had.
///
/// # Examples
///
/// ```
/// use farcall::metadata::{AsciiMetadataValue, MetadataMap};
/// use farcall::{Channel, Method, Status};
///
/// /// A channel whose calls carry `token`. It needs `tls`.
/// # use farcall::AddressError;
/// fn with_token(address: &str, mut token: AsciiMetadataValue) -> Result<(), AddressError> {
///     // Its `Debug` does not show it.
///     token.set_sensitive(true);
///     let credentials = move |_: &Method, metadata: &mut MetadataMap| {
///         metadata.insert("authorization", token.clone());
///         Ok::<_, Status>(())
///     };
///     let channel = Channel::builder(address)?.call_credentials(credentials);
/// # drop(channel);
///     Ok(())
/// }
/// ```
pub trait CallCredentials: Send + Sync + 'static {
    /// Adds what shows who makes the call of `method`.
    ///
    /// # Errors
    ///
    /// Returns the status that the call ends with. It is not sent then.
    fn apply(&self, method: &Method, metadata: &mut MetadataMap) -> Result<(), Status>;
}

impl<F> CallCredentials for F
where
    F: Fn(&Method, &mut MetadataMap) -> Result<(), Status> + Send + Sync + 'static,
{
    fn apply(&self, method: &Method, metadata: &mut MetadataMap) -> Result<(), Status> {
        self(method, metadata)
    }
}

/// The credentials of a channel, if it has any. Nothing of them is ever shown.
#[derive(Clone, Default)]
pub struct Credentials(Option<Arc<dyn CallCredentials>>);

impl Credentials {
    /// Returns the credentials of a channel.
    pub fn new(credentials: impl CallCredentials) -> Self {
        Self(Some(Arc::new(credentials)))
    }

    /// Returns true if calls carry credentials.
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.0.is_some()
    }

    /// Adds them to the metadata of a call.
    fn apply(&self, call: &mut Call<'_>) -> Result<(), Status> {
        let Some(credentials) = &self.0 else { return Ok(()) };
        let (method, metadata) = call.head_mut();
        credentials.apply(method, metadata)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.are_there() { "Credentials" } else { "no Credentials" })
    }
}

/// Waits until there is a connection, and makes the attempts that are due meanwhile.
///
/// # Errors
///
/// Returns an error if no attempt can succeed any more.
async fn connect(manager: Arc<ConnectionManager>) -> Result<(), Arc<ConnectError>> {
    loop {
        // Before the attempt, so that no connection made after it is missed.
        let connected = manager.connected();
        match manager.connection().await {
            Ok(_) => return Ok(()),
            Err(error) if !error.may_pass() => return Err(error),
            Err(_) => {}
        }
        tokio::select! {
            () = sleep_until(Instant::from_std(manager.next_connect())) => {}
            () = connected => {}
        }
    }
}

/// A channel among others, of which tower chooses one for each call. [`LayeredChannel`] has an
/// example.
///
/// [`LayeredChannel`]: crate::client::LayeredChannel
impl tower::Service<ClientCall> for Channel {
    type Response = ClientReply;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ClientReply, Status>>;

    /// Ready while there is a connection; a call waits for the server's limit by itself. A channel
    /// to many servers chooses by itself, and is always ready.
    ///
    /// Without a connection it is pending, and connects: at once the first time and after a
    /// connection that was of use, else when the backoff is over, as often as it takes. It wakes
    /// the task when there is a connection. So a balancer sends no call to a server that is not
    /// there, and needs none to find out that it has come back. A call that is made all the same
    /// does as its [`crate::Readiness`] says. Under [`Channel::layer`] the channel is always ready.
    ///
    /// # Errors
    ///
    /// Returns an error if the channel can never connect in this process with this configuration.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.poll_connected(cx)
    }

    fn call(&mut self, call: ClientCall) -> Self::Future {
        // The future outlives this service, which tower may drop or call again.
        let channel = self.clone();
        Box::pin(async move { Caller::call(&channel, call.into_call()).await })
    }
}
