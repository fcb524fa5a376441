//! The channel: a handle that makes calls to the server at an address.

mod builder;
mod calls;
mod encryption;
#[cfg_attr(not(feature = "settings"), expect(dead_code, reason = "settings alone change"))]
mod live;
mod resolvers;

pub use builder::ChannelBuilder;
#[cfg(feature = "settings")]
pub(crate) use live::LiveTarget;
pub use rpc_core::client::CallCredentials;
use rpc_core::client::{Intercepted, LayeredChannel};
use tonic::service::Interceptor;
use tower::Layer;

use crate::balance::{Connectivity, EndpointStatus};
use crate::{AddressError, Buffer, ConnectError, IntoAddress, Path};

/// A cheap handle that makes calls to one server, or each call to one of many
/// ([`crate::balance`]); clones share its connections. A generated stub takes one.
///
/// The connection is made by [`Channel::connect`], or at the first call after
/// [`ChannelBuilder::connect_lazy`], and made anew when it has ended: calls in flight then end with
/// `UNAVAILABLE`, the next one connects. Calls that come meanwhile wait for the same attempt and
/// fail with it. One whose deadline passes leaves the attempt to the others. The connection is
/// closed with the last clone and the last stream of responses.
///
/// After an attempt that failed the channel backs off ([`crate::Backoff`]): calls fail at
/// once with `UNAVAILABLE`, the reason of that attempt and the time of the next one, or wait
/// ([`crate::Readiness`]). A connection over which no call was answered counts as a failed attempt
/// too, from the second in a row on.
///
/// A server that shuts down, or that has had the connection for long enough, says so: calls in
/// flight then go on, and the next one connects. A call that the server refused for that reason is
/// marked as not executed, and the channel starts it again, three times in all. One whose requests
/// are a stream is partly sent by then: it ends with `UNAVAILABLE`, marked with
/// [`crate::NotExecuted`].
///
/// When RDMA fails under an `auto://` channel, and TCP works, the channel goes on over TCP at once
/// and tries in the background to have RDMA back. Under `rdma://` calls fail with `UNAVAILABLE` and
/// the reason until it is back. [`Channel::path`] tells. A call that was in flight on a connection
/// that ended is made once more if its method is idempotent by its `.proto` and nothing of its
/// answer was seen; any other ends with `UNAVAILABLE`, marked with [`crate::MayHaveExecuted`].
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), farcall::ConnectError> {
/// let channel = farcall::Channel::connect("auto://10.0.0.1:7000").await?;
/// println!("calls go over {}", channel.path());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Channel(rpc_core::Channel);

impl Channel {
    /// Connects to `address` under the default rules.
    ///
    /// # Errors
    ///
    /// Returns [`ConnectError`] if the text is not an address, no server accepts there, the
    /// handshake fails, or RDMA is required but not possible.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: cancelled, it closes what it has opened.
    pub async fn connect(address: impl IntoAddress) -> Result<Self, ConnectError> {
        Self::builder(address)?.connect().await
    }

    /// A builder of a channel to `address`, for settings of its own.
    ///
    /// # Errors
    ///
    /// Returns [`AddressError`] if the text is not an address.
    pub fn builder(address: impl IntoAddress) -> Result<ChannelBuilder, AddressError> {
        Ok(ChannelBuilder::new(address.into_address()?))
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
    /// choose, and its calls wait or fail as their [`crate::Readiness`] says.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farcall::client::ClientCall;
    /// use farcall::{Caller, Channel};
    /// use tower::ServiceBuilder;
    ///
    /// fn careful(channel: Channel) -> impl Caller + Clone {
    ///     let layers = ServiceBuilder::new()
    ///         .load_shed()
    ///         .concurrency_limit(100)
    ///         .timeout(Duration::from_secs(5))
    ///         .map_request(|mut call: ClientCall| {
    ///             let value = farcall::metadata::MetadataValue::from_static("berlin");
    ///             call.metadata_mut().insert("x-site", value);
    ///             call
    ///         });
    ///     channel.layer(layers)
    /// }
    /// ```
    #[must_use]
    pub fn layer<L: Layer<Self>>(self, layer: L) -> LayeredChannel<L::Service> {
        LayeredChannel::new(layer.layer(Self(self.0.always_ready())))
    }

    /// Shows every request to one of tonic's interceptors before the call is made.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::{Caller, Channel, Request, Status};
    ///
    /// fn authorized(channel: Channel) -> impl Caller + Clone {
    ///     channel.intercept(|mut request: Request<()>| -> Result<Request<()>, Status> {
    ///         let token = farcall::metadata::MetadataValue::from_static("Bearer letmein");
    ///         request.metadata_mut().insert("authorization", token);
    ///         Ok(request)
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn intercept<F: Interceptor>(self, interceptor: F) -> Intercepted<Self, F> {
        Intercepted::new(self, interceptor)
    }

    /// Memory for a long `bytes` field of a request: as [`crate::buffer()`], and right for this
    /// channel. It belongs to the device of the present connection; before the first one, and over
    /// a transport without a device, it is plain memory.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: cancelled, it takes no memory.
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use farcall::Channel;
    ///
    /// /// A page to be uploaded, which a peer over RDMA reads from where it was written.
    /// async fn page(channel: &Channel, number: u8) -> Bytes {
    ///     let mut buffer = channel.buffer(1 << 20).await;
    ///     buffer.fill(number);
    ///     buffer.freeze()
    /// }
    /// ```
    pub async fn buffer(&self, len: usize) -> Buffer {
        self.0.buffer(len).await
    }

    /// Returns the label `grpc.target` of its metrics.
    #[cfg(feature = "metrics")]
    pub(crate) fn metrics_target(&self) -> &str {
        self.0.metrics_target()
    }

    /// Returns the path that calls take at this moment, with the reason if it is not RDMA.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::{Channel, Path};
    ///
    /// fn warn(channel: &Channel) {
    ///     match channel.path() {
    ///         Path::Fallback { reason, .. } => eprintln!("not over RDMA: {reason}"),
    ///         Path::Broken { reason, retry_in, .. } => {
    ///             eprintln!("RDMA failed ({reason}); next attempt in {retry_in:?}");
    ///         }
    ///         path => println!("{path}"),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn path(&self) -> Path {
        self.0.path()
    }

    /// Returns gRPC's connectivity state of the channel. With many endpoints it is the best of
    /// theirs, and `TransientFailure` before the first answer of the resolver.
    #[must_use]
    pub fn connectivity(&self) -> Connectivity {
        self.0.connectivity()
    }

    /// Waits until [`connectivity`](Self::connectivity) is another than `state`, and returns it. A
    /// wait that begins while the channel is idle has it connect, so that a program that waits
    /// again and again keeps it connected. States that last less than the program takes to look
    /// may be missed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe. An attempt to connect goes on.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::Channel;
    /// use farcall::balance::Connectivity;
    ///
    /// /// Tells a dashboard, for as long as the channel lives.
    /// async fn watch(channel: Channel, tell: impl Fn(Connectivity)) {
    ///     let mut state = channel.connectivity();
    ///     loop {
    ///         tell(state);
    ///         state = channel.connectivity_changed(state).await;
    ///     }
    /// }
    /// ```
    pub async fn connectivity_changed(&self, state: Connectivity) -> Connectivity {
        self.0.connectivity_changed(state).await
    }

    /// Describes each server: its connection with counters, its path and state. In the order of the
    /// address's list, or of the resolver's; one entry for the channel to one server. Empty before
    /// the first answer of a resolver.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::Channel;
    ///
    /// fn report(channel: &Channel) {
    ///     for server in channel.endpoints() {
    ///         let Some(info) = server.info else { continue };
    ///         let address = server.endpoint.address;
    ///         println!("{address}: {} calls over {}", info.calls_in_flight, info.transport);
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointStatus> {
        self.0.endpoints()
    }
}

/// A channel over a connector that knows no address, as tests of transports have it.
#[doc(hidden)]
impl From<rpc_core::Channel> for Channel {
    fn from(channel: rpc_core::Channel) -> Self {
        Self(channel)
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceBuilder;

    use super::*;
    use crate::client::unary;
    use crate::{CallKind, Code, Idempotency, MethodDescriptor, Request, Response};

    static METHOD: MethodDescriptor =
        MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

    /// A load shedder would refuse calls of a channel that is not ready, and other layers would
    /// keep them waiting.
    #[tokio::test]
    async fn calls_fail_under_layers_while_the_channel_backs_off() {
        let channel = Channel::builder("inproc://no-server-has-this-name").unwrap();
        let layers = ServiceBuilder::new().load_shed().concurrency_limit(8);
        let layered = channel.connect_lazy().layer(layers);
        for _ in 0..3 {
            let response: Result<Response<()>, _> =
                unary(&layered, &METHOD, Request::new(())).await;
            assert_eq!(response.unwrap_err().code(), Code::Unavailable);
        }
    }
}
