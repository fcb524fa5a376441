//! Building a server from its services and settings.

mod encryption;
mod getters;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "settings")]
mod live;
mod proxy_protocol;
mod unix_socket;

#[cfg(feature = "settings")]
pub(crate) use live::{LiveServer, Origin};

use std::sync::Arc;
use std::time::Duration;

use rpc_core::connect::Upgrade;
use rpc_core::server::{
    LiveSetting, PeerExtensions, ServerBuilder as Core, ServerRequest, ServerResponse, ServerStack,
    Service,
};
use rpc_core::settings::expect_valid;
use rpc_core::{Compression, Keepalive, Limits, MethodCompression};
use rpc_transport_tcp::SocketAccess;
use tower::{BoxError, Layer};

use super::{Authorize, BindError, Listener, Serve, Server};
use crate::rdma::Rdma;
use crate::tls::ServerTls;
use crate::{Config, IntoAddress};

/// Builds a [`Server`].
///
/// # Examples
///
/// ```no_run
/// # async fn example(service: impl farcall::Service) -> Result<(), farcall::ServeError> {
/// farcall::Server::builder()
///     .add_service(service)
///     .drain_timeout(std::time::Duration::from_secs(5))
///     .serve("auto://0.0.0.0:7000")
///     .await
/// # }
/// ```
#[derive(Debug, Default)]
pub struct ServerBuilder {
    core: Core,
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
    /// The settings that made it.
    #[cfg(feature = "settings")]
    origin: Option<Box<dyn Origin>>,
}

impl ServerBuilder {
    /// The same builder after `change`.
    fn with(mut self, change: impl FnOnce(Core) -> Core) -> Self {
        self.core = change(self.core);
        self
    }

    /// Adds a service, which a generated `GreeterService::new(..)` makes.
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

    /// Sets what both sides of a program may share. A setting of this builder takes precedence over
    /// the same one in `config`, in any order.
    #[must_use]
    pub fn config(mut self, config: &Config) -> Self {
        self.config = config.clone();
        self
    }

    /// Uses the RDMA devices of this handle, which other servers and channels may share. Without
    /// one the server uses the process-wide handle, [`Rdma::default`]. Devices are opened only
    /// where the server listens at an `auto://` or `rdma://` address.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn rdma(mut self, rdma: &Rdma) -> Self {
        self.rdma = Some(rdma.clone());
        self
    }

    /// Sets whether each call that fails gets a line in the log; on by default. The line has the
    /// target `farcall::call`. It names the method, the client's address, the status, and the time
    /// that the call took. Its levels and their limits are those of
    /// [`ChannelBuilder::log_failed_calls`](crate::ChannelBuilder::log_failed_calls).
    #[must_use]
    pub fn log_failed_calls(mut self, is_logged: bool) -> Self {
        self.in_code.push(LiveSetting::LogFailedCalls);
        self.log_failed_calls = Some(is_logged);
        self
    }

    /// Sets whether a server cannot listen on an `rdma://` address if RDMA is impossible; on by
    /// default. Otherwise it listens, logs the reason, and serves clients that stay on TCP. Once
    /// there is a device, clients can have RDMA.
    #[must_use]
    pub fn rdma_required(mut self, is_required: bool) -> Self {
        self.rdma_required = Some(is_required);
        self
    }

    /// Sets the connection details in each request's extensions; none by default.
    #[must_use]
    pub fn peer_extensions(self, extensions: PeerExtensions) -> Self {
        self.with(|core| core.peer_extensions(extensions))
    }

    /// Sets the limits on each client. By default those of the [`config`](Self::config) hold.
    ///
    /// # Panics
    ///
    /// Panics if a limit is out of its range: see [`Limits::check`].
    #[must_use]
    #[track_caller]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.in_code.push(LiveSetting::Limits);
        self.core = self.core.limits(limits);
        self.max_message_len = None;
        self
    }

    /// Sets the maximum encoded length of a request message; 4 MiB by default. The client's own
    /// limit holds for responses.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_message_len(mut self, bytes: u64) -> Self {
        self.in_code.push(LiveSetting::Limits);
        expect_valid(Limits::new().with_max_message_len(bytes).check());
        self.max_message_len = Some(bytes);
        self
    }

    /// Adds a path that clients may ask for, for tests of transports.
    #[doc(hidden)]
    #[must_use]
    pub fn upgrade(self, upgrade: Arc<dyn Upgrade>) -> Self {
        self.with(|core| core.upgrade(upgrade))
    }

    /// Runs `future` when the server shuts down, before it tells clients to make their calls
    /// elsewhere. It can report the server as not serving. The server goes on accepting and serving
    /// until the future is done, so that a future that waits gives load balancers time. Several
    /// futures run side by side. With several listeners they run once, at the first shutdown.
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

    /// Makes the server. It is for programs that serve several listeners, or that ask later what
    /// the server is doing.
    #[must_use]
    pub fn build(self) -> Server {
        let (not_served, config) = (self.not_served(), self.resolved_config());
        let limits = self.max_message_len.map(|_| self.get_limits());
        let mut core = self.core.log_failed_calls(config.log_failed_calls());
        if let Some(limits) = limits {
            core = core.limits(limits);
        }
        if not_served.is_some() {
            // Such a server never serves.
            core = core.method_compression(MethodCompression::new());
        }
        let (core, rdma) = (core.build(), self.rdma.unwrap_or_default());
        let server = Server { core, config, rdma, tls: self.tls, not_served };
        #[cfg(feature = "settings")]
        if let Some(origin) = self.origin.filter(|_| server.not_served.is_none()) {
            origin.register(&server, self.in_code);
        }
        server
    }

    /// Describes a setting that names a method or a service that the server does not have.
    fn not_served(&self) -> Option<String> {
        let error = self.core.check_methods().err()?;
        #[cfg(feature = "settings")]
        if let Some(origin) = &self.origin
            && !self.in_code.contains(&LiveSetting::MethodCompression)
        {
            return Some(origin.describe(&error));
        }
        Some(error.to_string())
    }

    /// Builds a server that listens on one address; see [`Server::bind`].
    ///
    /// # Errors
    ///
    /// The same as of [`Server::bind`].
    ///
    /// # Cancel safety
    ///
    /// The same as of [`Server::bind`].
    pub async fn bind(self, address: impl IntoAddress) -> Result<Listener, BindError> {
        self.build().bind(address).await
    }

    /// Builds a server, and serves it at one address; see [`Server::bind`] and [`Serve`].
    pub fn serve(self, address: impl IntoAddress) -> Serve {
        let (server, address) = (self.build(), address.into_address());
        Serve::new(|shutdown| async move {
            let listener = server.bind(address.map_err(BindError::from)?).await?;
            listener.run(shutdown).await
        })
    }
}

/// Setters of settings that a reload may change. It leaves alone what the program set.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident as $setting:ident: $value:ty;)+) => {
        impl ServerBuilder {
            $($(#[$doc])*
            #[must_use]
            #[track_caller]
            pub fn $name(mut self, $name: $value) -> Self {
                self.in_code.push(LiveSetting::$setting);
                self.core = self.core.$name($name);
                self
            })+
        }
    };
}

setters! {
    /// Sets the maximum time of a unary call on this server, from the moment that its request has
    /// arrived whole. By default the client's timeout alone counts. The server ends a longer call
    /// with `DEADLINE_EXCEEDED`, and drops the handler's future where it waits. Calls with a stream
    /// in either direction go on: `tower`'s timeout, as a [`layer`](Self::layer), ends those too.
    ///
    /// The earlier of this and the client's deadline counts. The handler finds it in its request,
    /// calls that the handler makes inherit it, and it holds for layers.
    ///
    /// # Panics
    ///
    /// Panics unless the timeout is from 1 ms to 365 days.
    unary_timeout as UnaryTimeout: impl Into<Option<Duration>>;

    /// Sets whether each call gets a line in the log when it ends; off by default. The line is INFO
    /// and has the target `farcall::access`. It names the method, the client's address, the status,
    /// the time that the call took, the client's timeout, and the number of messages. Clients
    /// decide how many such lines there are: they have no limit.
    access_log as AccessLog: bool;

    /// Sets the compression of messages over TCP. By default the [`config`](Self::config)'s is
    /// used, which has none. The server compresses responses that the client accepts compressed,
    /// and accepts compressed requests if this setting says so. A service's own `compress_from`
    /// comes first. Nothing is compressed over RDMA.
    ///
    /// # Panics
    ///
    /// Panics if the setting needs farcall's feature `compression`: see [`Compression::check`].
    compression as Compression: Compression;

    /// Sets the shortest response that is compressed, by method or by service; none by default.
    /// It takes precedence over [`compression`](Self::compression), and a service's own
    /// `compress_from` over both. A name that the server does not have is an error of
    /// [`bind`](Self::bind) and [`serve`](Self::serve).
    ///
    /// # Panics
    ///
    /// Panics if [`MethodCompression::check`] fails.
    method_compression as MethodCompression: MethodCompression;

    /// Sets the maximum time of a client's handshake; 10 s by default.
    ///
    /// # Panics
    ///
    /// Panics unless the timeout is from 1 ms to 365 days.
    handshake_timeout as HandshakeTimeout: Duration;

    /// Sets the maximum time that calls in flight get when the server shuts down; 30 s by default.
    /// Zero ends them at once.
    ///
    /// # Panics
    ///
    /// Panics if the timeout is longer than 365 days.
    drain_timeout as DrainTimeout: Duration;

    /// Sets the pings that find clients that are gone; on by default. `None` leaves that to the
    /// operating system, which may take hours.
    ///
    /// # Panics
    ///
    /// Panics if a time is out of its range: see [`Keepalive::check`].
    keepalive as Keepalive: impl Into<Option<Keepalive>>;

    /// Sets the maximum time without progress of a client that has answers waiting, or that has
    /// begun a large frame; 60 s by default. The server then ends the connection. `None` waits for
    /// the client. Any byte that the client takes or sends of them is progress. Pongs are not: a
    /// client that only answers pings could pin answers in this server's memory indefinitely. Over
    /// RDMA `rdma.release_timeout` bounds the same.
    ///
    /// # Panics
    ///
    /// Panics unless the timeout is from 1 ms to 365 days.
    progress_timeout as ProgressTimeout: impl Into<Option<Duration>>;

    /// Sets the time without a call after which a connection ends; never by default. The client
    /// makes a new connection for its next call. Over RDMA a connection holds receive slots, of
    /// which a device has some for 64 connections by default.
    ///
    /// # Panics
    ///
    /// Panics unless the timeout is from 1 ms to 365 days.
    idle_timeout as IdleTimeout: impl Into<Option<Duration>>;

    /// Sets the maximum age of a connection, give or take a tenth by chance; none by default. So
    /// clients spread over servers that started later. The client makes its next call on a new
    /// connection, and [`max_connection_age_grace`](Self::max_connection_age_grace) bounds calls in
    /// flight. With zero each connection is sent away as soon as it is made.
    ///
    /// # Panics
    ///
    /// Panics if the age is more than 365 days.
    max_connection_age as MaxConnectionAge: impl Into<Option<Duration>>;

    /// Sets the maximum time that calls in flight get after their connection has reached its
    /// maximum age. By default they may end on their own, as with gRPC, since a long stream is no
    /// fault. Zero ends them at once.
    ///
    /// # Panics
    ///
    /// Panics if the time is longer than 365 days.
    max_connection_age_grace as MaxConnectionAgeGrace: impl Into<Option<Duration>>;

    /// Sets the maximum number of calls that run at a time, over all connections. The server
    /// rejects one more at once with `RESOURCE_EXHAUSTED`, and does not execute it.
    ///
    /// The default is 65,536: the 64 connections that one RDMA device serves by default, with 1,024
    /// calls each. A call counts until its handler has ended, and its response stream, too. Its
    /// answer may wait longer.
    ///
    /// # Panics
    ///
    /// Panics if it is 0.
    max_calls as MaxCalls: usize;

    /// Sets the maximum number of these calls per client address. Peers with IPv6 addresses in the
    /// same /64 are one address. Peers on Unix sockets and inside the process have no address: only
    /// the limits of all calls and of their connections hold.
    ///
    /// By default an address may have as many calls as are free, and at least as many as
    /// [`Limits::max_calls`] allows one connection. So one address alone has at most half of all
    /// calls, and `n` of them have at most `1 / (n + 1)` each. A server behind a proxy sees one
    /// address unless it has [`proxy_protocol`](Self::proxy_protocol); it sets `max_calls` here.
    ///
    /// # Panics
    ///
    /// Panics if it is 0.
    max_calls_per_peer as MaxCallsPerPeer: impl Into<Option<usize>>;

    /// Sets the maximum number of connections at a time, with those in their handshake. The default
    /// is 10,000, below a service manager's usual limit of open descriptors (16,384). More clients
    /// wait in the operating system's backlog.
    ///
    /// # Panics
    ///
    /// Panics if it is 0.
    max_connections as MaxConnections: usize;

    /// Sets the maximum number of these connections per client address, as for
    /// [`max_calls_per_peer`](Self::max_calls_per_peer). The server closes one more as soon as it
    /// has accepted it.
    ///
    /// By default an address may have as many connections as are free, and at least 64. A server
    /// behind a proxy sees one address unless it has [`proxy_protocol`](Self::proxy_protocol); it
    /// sets `max_connections` here.
    ///
    /// # Panics
    ///
    /// Panics if it is 0.
    max_connections_per_peer as MaxConnectionsPerPeer: impl Into<Option<usize>>;

    /// Sets the maximum number of bytes that clients can make this server keep: requests of 4 KiB
    /// and more, the windows of their streams, answers that wait to be sent, and handshakes.
    ///
    /// An eighth is kept for peers that have little. Of the rest, an address may have as much as is
    /// free: one alone has at most half, and `n` of them at most `1 / (n + 1)` each. The server
    /// rejects more with `RESOURCE_EXHAUSTED` before it receives or executes it. That status also
    /// replaces an answer that does not fit where it would have to wait. When memory is short, the
    /// server closes connections that take next to nothing of their answers.
    ///
    /// The default is a quarter of the memory that the process may use: the machine's, or the least
    /// limit of its control groups. It is read when the first server is built.
    ///
    /// # Panics
    ///
    /// Panics below 128 KiB, since a client's handshake may take as much.
    max_memory as MaxMemory: impl Into<Option<u64>>;
}
