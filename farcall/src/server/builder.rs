//! What a server is made of, and where it listens.

mod encryption;
mod getters;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "settings")]
mod live;
mod proxy_protocol;
mod unix_socket;

#[cfg(feature = "settings")]
pub(crate) use live::LiveServer;

use std::sync::Arc;
use std::time::Duration;

use rpc_core::connect::Upgrade;
use rpc_core::server::{
    LiveSetting, PeerExtensions, ServerRequest, ServerResponse, ServerStack, Service,
};
use rpc_core::settings::expect_valid;
use rpc_core::{Compression, Keepalive, Limits, MethodCompression};
use rpc_transport_tcp::SocketAccess;
use tower::{BoxError, Layer};

use super::{Authorize, IntoIncoming, Listener, ServeError, Server, SocketListener};
use crate::rdma::Rdma;
use crate::tls::ServerTls;
use crate::{BindError, Config, Endpoint, IntoAddress};

/// Builds a [`Server`].
///
/// # Examples
///
/// ```no_run
/// # async fn example(service: impl farcall::Service) -> Result<(), farcall::ServeError> {
/// use std::time::Duration;
///
/// farcall::Server::builder()
///     .add_service(service)
///     .drain_timeout(Duration::from_secs(5))
///     .serve_with_shutdown("auto://0.0.0.0:7000", async {
///         let _ = tokio::signal::ctrl_c().await;
///     })
///     .await
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ServerBuilder {
    core: rpc_core::server::ServerBuilder,
    config: Config,
    rdma: Option<Rdma>,
    /// In the place of what `config` and `limits` say.
    max_message_len: Option<u64>,
    /// In the place of what `config` says.
    log_failed_calls: Option<bool>,
    rdma_required: Option<bool>,
    socket_access: SocketAccess,
    require_encryption: Option<bool>,
    proxies: Option<Vec<String>>,
    #[cfg(feature = "grpc")]
    grpc_web_origins: Option<Vec<String>>,
    tls: Option<ServerTls>,
    /// The settings whose setters were called. A reload of settings leaves these alone.
    in_code: Vec<LiveSetting>,
}

impl ServerBuilder {
    /// The same builder after `change`.
    fn with(
        mut self,
        change: impl FnOnce(rpc_core::server::ServerBuilder) -> rpc_core::server::ServerBuilder,
    ) -> Self {
        self.core = change(self.core);
        self
    }

    /// Adds a service: what a generated `GreeterService::new(..)` makes.
    #[must_use]
    pub fn add_service(self, service: impl Service) -> Self {
        self.with(|core| core.add_service(service))
    }

    /// Adds a service if there is one, so that a program can choose its services when it starts.
    #[must_use]
    pub fn add_optional_service(self, service: Option<impl Service>) -> Self {
        self.with(|core| core.add_optional_service(service))
    }

    /// Puts a tower layer around the calls of all services, of every kind. The layer that is added
    /// first is the outermost one. [`layered`](crate::server::layered) is the same for one service,
    /// and [`layered_methods`](crate::server::layered_methods) for some of its methods.
    ///
    /// tower's own layers work as they are: a timeout ends a call with `DEADLINE_EXCEEDED`, load
    /// shedding with `RESOURCE_EXHAUSTED`; an error of another layer becomes the call's status as
    /// [`crate::layer::into_status`] says. Each layer added costs every call a few allocations;
    /// a `tower::ServiceBuilder` with many layers counts as one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farcall::server::ServerRequest;
    /// use farcall::{Server, Status};
    /// use tower::ServiceBuilder;
    ///
    /// // An async interceptor: it looks at a request, may wait, and may refuse.
    /// let authorized = |request: ServerRequest| async move {
    ///     match request.metadata().get("authorization") {
    ///         Some(_) => Ok(request),
    ///         None => Err(Status::unauthenticated("no token")),
    ///     }
    /// };
    /// let layers = ServiceBuilder::new()
    ///     .load_shed()
    ///     .concurrency_limit(100)
    ///     .timeout(Duration::from_secs(5))
    ///     .filter_async(authorized);
    /// let server = Server::builder().layer(layers);
    /// # drop(server);
    /// ```
    #[must_use]
    pub fn layer<L>(self, layer: L) -> Self
    where
        L: Layer<ServerStack> + Send + Sync + 'static,
        L::Service: tower::Service<ServerRequest, Response = ServerResponse, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as tower::Service<ServerRequest>>::Error: Into<BoxError>,
    {
        self.with(|core| core.layer(layer))
    }

    /// Sets who may call what, by the client's identity that TLS has verified and the method's full
    /// name. It is asked before a request is received whole, decoded or handled, and before any
    /// layer. A call that is not allowed ends with `PERMISSION_DENIED`, and one of a client without
    /// an identity with `UNAUTHENTICATED`; [`Authorize`](crate::server::Authorize) tells more.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::{Identity, Server};
    ///
    /// let server = Server::builder().authorize(|identity: &Identity, method: &str| {
    ///     identity.has_name("spiffe://example.org/billing") || method == "/shop.Shop/List"
    /// });
    /// # drop(server);
    /// ```
    #[must_use]
    pub fn authorize(self, rules: impl Authorize) -> Self {
        self.with(|core| core.authorize(rules))
    }

    /// How long a unary call may take on this server, from the moment that its request has arrived
    /// whole; as long as its client allows by default. A call that takes longer ends with
    /// `DEADLINE_EXCEEDED`, and its handler's future is dropped where it waits. Calls with a stream
    /// in either direction are left alone: `tower`'s timeout, as a [`layer`](Self::layer), ends
    /// those too.
    ///
    /// The earlier of this and the client's deadline counts. It is the handler's deadline like any
    /// other: the handler finds it in its request, calls that it makes inherit it, and it holds for
    /// layers as well.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let server = farcall::Server::builder().unary_timeout(Duration::from_secs(5)).build();
    /// # drop(server);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn unary_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.in_code.push(LiveSetting::UnaryTimeout);
        self.core = self.core.unary_timeout(timeout);
        self
    }

    /// The rules for the addresses that [`serve`](Self::serve) and [`bind`](Self::bind) are given.
    /// A setting of this builder takes precedence over the same one in `config`, whichever is said
    /// first.
    #[must_use]
    pub fn config(mut self, config: &Config) -> Self {
        self.config = config.clone();
        self
    }

    /// Uses the RDMA devices of this handle, which other servers and channels may share. Without
    /// one the server makes its own, with pinned memory of its own: see [`Rdma`]. Devices are
    /// opened only where the server listens at an `auto://` or `rdma://` address.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = Some(rdma.clone());
        self
    }

    /// Whether each call that fails has a line in the log; on by default. The line has the target
    /// `farcall::call`, and names the method, the client's address, the status and how long the
    /// call took. Its levels and their limits are those of
    /// [`ChannelBuilder::log_failed_calls`](crate::ChannelBuilder::log_failed_calls).
    #[must_use]
    pub fn log_failed_calls(mut self, is_logged: bool) -> Self {
        self.in_code.push(LiveSetting::LogFailedCalls);
        self.log_failed_calls = Some(is_logged);
        self
    }

    /// Whether every call has a line in the log when it ends; off by default. The line is INFO and
    /// has the target `farcall::access`. It names the method, the client's address, the status, how
    /// long the call took, the timeout that the client set, and how many messages it had.
    ///
    /// The number of these lines has no limit: clients decide how many there are.
    #[must_use]
    pub fn access_log(mut self, is_logged: bool) -> Self {
        self.in_code.push(LiveSetting::AccessLog);
        self.with(|core| core.access_log(is_logged))
    }

    /// Whether the server fails to start at an `rdma://` address where RDMA is impossible; on by
    /// default. Without it the server starts, says so in the log, and serves clients that stay on
    /// TCP; once there is a device, clients can have RDMA.
    #[must_use]
    pub fn rdma_required(mut self, is_required: bool) -> Self {
        self.rdma_required = Some(is_required);
        self
    }

    /// What of the connection every request's extensions say; nothing by default.
    #[must_use]
    pub fn peer_extensions(self, extensions: PeerExtensions) -> Self {
        self.with(|core| core.peer_extensions(extensions))
    }

    /// What is accepted of every client. [`Limits::default`] unless the builder or its
    /// [`config`](Self::config) says otherwise.
    ///
    /// # Panics
    ///
    /// When a limit is out of its range: see [`Limits::check`].
    #[must_use]
    #[track_caller]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.in_code.push(LiveSetting::Limits);
        self.core = self.core.limits(limits);
        self.max_message_len = None;
        self
    }

    /// What is done with compressed messages; nothing unless the builder or its
    /// [`config`](Self::config) says otherwise. Responses are compressed where the client accepts
    /// it, and its requests where this side says so and the client compresses. A service's
    /// `compress_from` comes before what is said here of responses. It holds over TCP, and never
    /// over RDMA.
    ///
    /// # Panics
    ///
    /// When the setting needs farcall's feature `compression`: see [`Compression::check`].
    #[must_use]
    #[track_caller]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.in_code.push(LiveSetting::Compression);
        self.core = self.core.compression(compression);
        self
    }

    /// From which length on responses are compressed, by method or by service; nothing by default.
    /// It comes before what [`compression`](Self::compression) says, and behind a service's own
    /// `compress_from`. A name that the server does not have is an error of [`bind`](Self::bind).
    ///
    /// # Panics
    ///
    /// When [`MethodCompression::check`] fails.
    #[must_use]
    #[track_caller]
    pub fn method_compression(mut self, compression: MethodCompression) -> Self {
        self.in_code.push(LiveSetting::MethodCompression);
        self.core = self.core.method_compression(compression);
        self
    }

    /// The longest request message accepted, in bytes of its encoding; 4 MiB by default. The
    /// client's own limit holds for responses.
    ///
    /// # Panics
    ///
    /// When `bytes` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_message_len(mut self, bytes: u64) -> Self {
        self.in_code.push(LiveSetting::Limits);
        expect_valid(Limits::new().with_max_message_len(bytes).check());
        self.max_message_len = Some(bytes);
        self
    }

    /// Adds a path that clients may ask for, beside those that the address names; for tests
    /// of transports.
    #[doc(hidden)]
    #[must_use]
    pub fn upgrade(self, upgrade: Arc<dyn Upgrade>) -> Self {
        self.with(|core| core.upgrade(upgrade))
    }

    /// The bound on a client's handshake; 10 s by default.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[must_use]
    #[track_caller]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.in_code.push(LiveSetting::HandshakeTimeout);
        self.core = self.core.handshake_timeout(timeout);
        self
    }

    /// How long calls in flight may take when the server shuts down; 30 s by default. Zero ends
    /// them at once.
    ///
    /// # Panics
    ///
    /// When the timeout is longer than 365 days.
    #[must_use]
    #[track_caller]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.in_code.push(LiveSetting::DrainTimeout);
        self.core = self.core.drain_timeout(timeout);
        self
    }

    /// Runs `future` when the server is shut down, before clients are told to make their calls
    /// elsewhere: it tells those that watch the server that it is not serving any more. The server
    /// goes on accepting and serving until the future is done, so that one that waits gives load
    /// balancers time. Several run side by side; where the server has several listeners, they run
    /// when the first one is shut down.
    ///
    /// # Examples
    ///
    /// The state that tonic's health service tells (feature `grpc`):
    ///
    /// ```
    /// # struct HealthReporter;
    /// # enum ServingStatus { NotServing }
    /// # impl HealthReporter { async fn set_service_status(&self, _: &str, _: ServingStatus) {} }
    /// # let reporter = HealthReporter;
    /// // `reporter` is what `tonic_health::server::health_reporter()` gives beside the service.
    /// let server = farcall::Server::builder().on_drain(async move {
    ///     reporter.set_service_status("", ServingStatus::NotServing).await;
    /// });
    /// # drop(server);
    /// ```
    #[must_use]
    pub fn on_drain(self, future: impl Future<Output = ()> + Send + 'static) -> Self {
        self.with(|core| core.on_drain(future))
    }

    /// How the server finds out that a client is gone; `None` leaves that to the operating system,
    /// which may take hours. On by default.
    ///
    /// # Panics
    ///
    /// When a time is out of its range: see [`Keepalive::check`].
    #[must_use]
    #[track_caller]
    pub fn keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        self.in_code.push(LiveSetting::Keepalive);
        self.core = self.core.keepalive(keepalive);
        self
    }

    /// How long a client may take nothing of the answers that wait for it, or send nothing more of
    /// a large frame that it has begun, before its connection is ended; 60 s by default, and
    /// `None` leaves both to the client. Pongs count for nothing here: a client that only answers
    /// pings could keep answers in this server's memory for as long as it likes. A client that
    /// takes something within each such time, however little, is not ended. Over RDMA
    /// `rdma.release_timeout` bounds the same.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[must_use]
    #[track_caller]
    pub fn progress_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.in_code.push(LiveSetting::ProgressTimeout);
        self.core = self.core.progress_timeout(timeout);
        self
    }

    /// After how long without a call a connection ends; never by default. The client makes a new
    /// one at its next call.
    ///
    /// A connection costs little memory; over RDMA it also holds receive slots, of which a device
    /// has some for 64 connections by default.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[must_use]
    #[track_caller]
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.in_code.push(LiveSetting::IdleTimeout);
        self.core = self.core.idle_timeout(timeout);
        self
    }

    /// After how long a connection ends in any case, give or take a tenth by chance, so that
    /// clients spread over servers that came later; never by default. The client makes its next
    /// call on a new connection; calls in flight go on as
    /// [`max_connection_age_grace`](Self::max_connection_age_grace) says. With zero each connection
    /// is sent away as soon as it is made.
    ///
    /// # Panics
    ///
    /// When the age is more than 365 days.
    #[must_use]
    #[track_caller]
    pub fn max_connection_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.in_code.push(LiveSetting::MaxConnectionAge);
        self.core = self.core.max_connection_age(age);
        self
    }

    /// How long calls may go on after their connection has reached its greatest age; until they
    /// end by default, as gRPC has it, since a long stream is no fault. Zero ends them at once.
    ///
    /// # Panics
    ///
    /// When the time is longer than 365 days.
    #[must_use]
    #[track_caller]
    pub fn max_connection_age_grace(mut self, grace: impl Into<Option<Duration>>) -> Self {
        self.in_code.push(LiveSetting::MaxConnectionAgeGrace);
        self.core = self.core.max_connection_age_grace(grace);
        self
    }

    /// The most calls that run at a time, those of all connections together. A call beyond them is
    /// refused at once with `RESOURCE_EXHAUSTED`, and is not executed.
    ///
    /// 65,536 by default: 64 connections, which is what one RDMA device serves by default, with
    /// the 1,024 calls that each may have.
    ///
    /// A call counts until its handler has ended, the stream that it returned included. Its answer
    /// may wait longer.
    ///
    /// # Panics
    ///
    /// When `count` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_calls(mut self, count: usize) -> Self {
        self.in_code.push(LiveSetting::MaxCalls);
        self.core = self.core.max_calls(count);
        self
    }

    /// The most of these calls that the connections from one address may have together. Peers with
    /// IPv6 addresses in the same /64 are one address. Peers on Unix sockets and inside the process
    /// have no address, and no share: only the limits of all calls and of their connections hold.
    ///
    /// By default an address may have as many calls as are free, and at least as many as
    /// [`Limits::max_calls`] allows one connection. One address alone has at most half of all
    /// calls that way, `n` of them have at most `1 / (n + 1)` each, and an address that comes
    /// later finds as much. A server behind a proxy sees one address, unless the proxy says who its
    /// clients are ([`proxy_protocol`](Self::proxy_protocol)); it sets `max_calls` here.
    ///
    /// # Panics
    ///
    /// When `count` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_calls_per_peer(mut self, count: impl Into<Option<usize>>) -> Self {
        self.in_code.push(LiveSetting::MaxCallsPerPeer);
        self.core = self.core.max_calls_per_peer(count);
        self
    }

    /// The most connections at a time, those in their handshake included; 10,000 by default,
    /// below the usual limit of open descriptors of a service manager (16,384).
    ///
    /// Clients beyond the limit wait in the operating system's backlog.
    ///
    /// # Panics
    ///
    /// When `count` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_connections(mut self, count: usize) -> Self {
        self.in_code.push(LiveSetting::MaxConnections);
        self.core = self.core.max_connections(count);
        self
    }

    /// The most of these connections that may come from one address, which is what it is for
    /// [`max_calls_per_peer`](Self::max_calls_per_peer). One more is closed as soon as it is
    /// accepted.
    ///
    /// By default an address may have as many connections as are free, and at least 64: what the
    /// default for [`max_calls`](Self::max_calls) supposes that a server has in all. A server
    /// behind a proxy sees one address, unless [`proxy_protocol`](Self::proxy_protocol) is set; it
    /// sets `max_connections` here.
    ///
    /// # Panics
    ///
    /// When `count` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_connections_per_peer(mut self, count: impl Into<Option<usize>>) -> Self {
        self.in_code.push(LiveSetting::MaxConnectionsPerPeer);
        self.core = self.core.max_connections_per_peer(count);
        self
    }

    /// The most bytes of memory that clients can make this server keep: requests of 4 KiB and more,
    /// the windows of their streams, answers that wait to be sent, and handshakes.
    ///
    /// An eighth is kept for peers that have little. Of the rest, an address may have as much as is
    /// free: one alone has at most half, and `n` of them at most `1 / (n + 1)` each. What is beyond
    /// is refused with `RESOURCE_EXHAUSTED` before it is received or executed. An answer that does
    /// not fit where it would have to wait is replaced by that status. When memory is short,
    /// connections that take next to nothing of what waits for them are closed.
    ///
    /// By default a quarter of the memory that the process may use: the machine's, or the least
    /// limit of its control groups. It is read when the first server is built.
    ///
    /// # Panics
    ///
    /// When there are less than 128 KiB, since a client's handshake may take as much.
    #[must_use]
    #[track_caller]
    pub fn max_memory(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.in_code.push(LiveSetting::MaxMemory);
        self.core = self.core.max_memory(bytes);
        self
    }

    /// The finished server, for programs that serve several listeners with one.
    ///
    /// # Panics
    ///
    /// When a setting names a method or a service that the server does not have.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> Server {
        let (is_logged, is_required) = (self.get_log_failed_calls(), self.get_rdma_required());
        let limits = self.max_message_len.map(|_| self.get_limits());
        let is_encrypted = self.get_require_encryption();
        let socket_access = SocketAccess {
            mode: self.get_socket_mode(),
            owner: self.get_socket_owner().map(str::to_owned),
        };
        let proxies = self.get_proxy_protocol().to_vec();
        #[cfg(feature = "grpc")]
        let web_origins = self.get_grpc_web_origins().to_vec();
        let Self { mut core, config, rdma, tls, .. } = self;
        if let Some(limits) = limits {
            core = core.limits(limits);
        }
        let config = config
            .with_log_failed_calls(is_logged)
            .with_rdma_required(is_required)
            .with_socket_access(socket_access)
            .with_require_encryption(is_encrypted)
            .with_proxy_protocol(proxies);
        #[cfg(feature = "grpc")]
        let config = config.with_grpc_web_origins(web_origins);
        let core = core.log_failed_calls(is_logged).build();
        Server { core, config, rdma: rdma.unwrap_or_default(), tls }
    }

    /// Checks that the server has every method and service that is named in a setting.
    fn check_methods(&self) -> Result<(), BindError> {
        let checked = self.core.check_methods();
        checked.map_err(|error| BindError::Method { reason: error.to_string() })
    }

    /// Listens on `address`, and serves when the [`Listener`] is told to. A server at an `rdma://`
    /// address takes clients that stay on TCP, too: which path is required is the client's
    /// decision.
    ///
    /// # Errors
    ///
    /// When the text is not an address or the operating system refuses it, at an `rdma://`
    /// address when RDMA is impossible (see [`rdma_required`](Self::rdma_required)), and when a
    /// setting names a method or a service that the server does not have.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    pub async fn bind(self, address: impl IntoAddress) -> Result<Listener, BindError> {
        self.check_methods()?;
        let server = self.build();
        let endpoint = Endpoint::bind_with(address, server.config()).await?;
        let endpoint = endpoint.secured(server.config(), server.tls.as_ref())?;
        let endpoint = endpoint.with_rdma_checked(&server.rdma).await?;
        Ok(Listener::new(server, endpoint))
    }

    /// Serves at `address` for ever.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind), and when connections can never be accepted again.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no connection is accepted any more; those that are open are closed at once.
    pub async fn serve(self, address: impl IntoAddress) -> Result<(), ServeError> {
        self.bind(address).await?.serve().await
    }

    /// Serves at `address` until `shutdown` is ready; see [`Server::serve_until`].
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    ///
    /// # Cancel safety
    ///
    /// As [`serve`](Self::serve).
    pub async fn serve_with_shutdown(
        self,
        address: impl IntoAddress,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        self.bind(address).await?.serve_with_shutdown(shutdown).await
    }

    /// A server at a TCP or Unix listener that the program has made, which serves when the
    /// [`Listener`] is told to. Where it listens on TCP, clients may ask for RDMA, as at an
    /// `auto://` address.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::from_listener`](crate::Endpoint::from_listener), and when a setting names a
    /// method or a service that the server does not have.
    pub fn bind_listener(self, listener: impl SocketListener) -> Result<Listener, BindError> {
        self.check_methods()?;
        let server = self.build();
        let endpoint = listener.into_endpoint(server.config())?;
        let endpoint = endpoint.secured(server.config(), server.tls.as_ref())?;
        Ok(Listener::new(server, endpoint))
    }

    /// Serves the connections of a listener that the program has made, for ever; or those of a
    /// stream of byte streams, until it has ended and they have ended too. [`IntoIncoming`] lists
    /// what may be given.
    ///
    /// # Errors
    ///
    /// When a listener cannot be prepared, or can never accept again. A stream of byte streams is
    /// always asked for the next one.
    ///
    /// # Cancel safety
    ///
    /// As [`serve`](Self::serve).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::error::Error;
    /// # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn Error>> {
    /// let listener = tokio::net::TcpListener::bind("0.0.0.0:7000").await?;
    /// farcall::Server::builder().add_service(service).serve_with_incoming(listener).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Over a stream in memory, as a test may want it:
    ///
    /// ```no_run
    /// # async fn example(service: impl farcall::Service) -> Result<(), farcall::ServeError> {
    /// let (client, ours) = tokio::io::duplex(64 << 10);
    /// let incoming = futures::stream::iter([Ok::<_, std::io::Error>(ours)]);
    /// farcall::Server::builder().add_service(service).serve_with_incoming(incoming).await
    /// # }
    /// ```
    pub async fn serve_with_incoming<K>(
        self,
        incoming: impl IntoIncoming<K>,
    ) -> Result<(), ServeError> {
        self.serve_with_incoming_shutdown(incoming, std::future::pending()).await
    }

    /// As [`serve_with_incoming`](Self::serve_with_incoming), until `shutdown` is ready; see
    /// [`Server::serve_until`].
    ///
    /// # Errors
    ///
    /// As [`serve_with_incoming`](Self::serve_with_incoming).
    ///
    /// # Cancel safety
    ///
    /// As [`serve`](Self::serve).
    pub async fn serve_with_incoming_shutdown<K>(
        self,
        incoming: impl IntoIncoming<K>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        self.check_methods()?;
        self.build().serve_until(incoming, shutdown).await
    }
}
