//! The channel: a cheap handle that makes calls to one server, or each to one of many.

mod credentials;
mod ready;
mod target;
mod watched;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::service::Interceptor;
use tower::Layer;

pub use self::credentials::{CallCredentials, Credentials};
use self::ready::ReadyWhen;
use self::target::RuledTarget;
pub use self::target::Target;
pub use self::watched::{TargetRules, Watched, WatchedRules};
use super::subchannel::{CallFuture, Subchannel};
use super::{Call, CallRules, Caller, ClientReply, Connect, Intercepted, LayeredChannel, Path};
use crate::balance::{Connectivity, EndpointStatus};
use crate::client::call::meter::MeteredCall;
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
/// After an attempt that failed the channel backs off ([`crate::ConnectBackoff`]): calls fail at
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
    /// What tower is told.
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
    /// When no connection can be made.
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
    pub(super) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        match &self.state.target {
            Target::Direct(Subchannel { manager, .. }) => {
                self.ready_when.poll(manager, cx).map_err(|error| error.into_status(None))
            }
            Target::Balanced(_) => Poll::Ready(Ok(())),
        }
    }

    /// Returns the transport of the current connection, or of the last one.
    pub(super) fn transport(&self) -> Option<&'static str> {
        self.state.target.connected()?.manager.transport()
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

    /// Which path calls take at this moment, and why not a better one.
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
                subchannel.manager.open()?.into_session().ok()?.method(path).ok()
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
