//! `Server` and its builder.

mod getters;
pub(super) mod rules;

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tower::{BoxError, Layer};

use super::authorize::{Authorization, Authorize};
use super::layers::Layers;
use super::live_rules::LiveRules;
use super::method_compression::{MethodCompression, NotServed};
use super::peer_limit::PeerLimit;
use super::router::Router;
use super::serve::connections::Connections;
use super::serve::drain::BeforeDrain;
use super::serve::memory::ServerMemory;
use super::serve::run;
use super::serve::shared::Shared;
use super::{
    Listen, ListenerSettings, PeerExtensions, ServerRequest, ServerResponse, ServerStack, Service,
};
use crate::call::log::CallLog;
use crate::connect::{ConnectionInfo, Upgrade};
use crate::limits::log::LogLimit;
use crate::policy::lifetime::LifetimeRules;
use crate::settings::{check_count, check_memory, check_period, check_timeout, expect_valid};
use crate::{Compression, Keepalive, Limits};

/// A set of services and the rules under which they are served.
#[derive(Debug, Clone)]
pub struct Server {
    pub(super) shared: Arc<Shared>,
}

impl Server {
    /// A builder with default rules and no services.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Serves the connections of `listener` for ever.
    ///
    /// # Errors
    ///
    /// When the listener can never accept again.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no connection is accepted any more; those that are open are closed at once.
    pub async fn serve(&self, listener: impl Listen) -> io::Result<()> {
        self.serve_until(listener, std::future::pending()).await
    }

    /// Serves the connections of `listener` until `shutdown` is ready; then refuses new calls,
    /// gives those in flight the builder's drain timeout, and closes. Clients are told to make
    /// their calls elsewhere; a call that they had sent already comes back marked as not executed,
    /// and they start it again by themselves where they can (see [`crate::NotExecuted`]).
    ///
    /// # Errors
    ///
    /// When the listener can never accept again.
    ///
    /// # Cancel safety
    ///
    /// As [`Server::serve`].
    pub async fn serve_until(
        &self,
        listener: impl Listen,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        run::serve(Arc::clone(&self.shared), listener, shutdown).await
    }

    /// The calls that count towards [`ServerBuilder::max_calls`] now: those of which the handlers
    /// have not ended.
    #[must_use]
    pub fn calls_running(&self) -> u64 {
        self.shared.calls_limit.limit.total()
    }

    /// The bytes that count towards [`ServerBuilder::max_memory`] now.
    #[must_use]
    pub fn memory_held(&self) -> u64 {
        self.shared.memory.held()
    }

    /// The rules that hold now.
    #[must_use]
    pub fn rules(&self) -> LiveRules {
        self.shared.rules.borrow().clone()
    }

    /// Checks that the server has every method and service that is named in `rules`.
    ///
    /// # Errors
    ///
    /// The first that it does not have, with those that it has.
    pub fn check_methods(&self, rules: &LiveRules) -> Result<(), NotServed> {
        let served: Vec<_> = self.shared.router.services().collect();
        rules.method_compression.check_served(&served)
    }

    /// Gives the server other rules while it serves. A name that
    /// [`check_methods`](Self::check_methods) refuses means nothing. Limits on all calls,
    /// connections and memory hold from the next one on, and so does `unary_timeout`; a share for
    /// each peer holds from the peer's next connection on. All other rules hold for connections
    /// that are accepted from now on. What is beyond a limit already stays. The upgraded paths stay
    /// as they are.
    pub fn set_rules(&self, rules: LiveRules) {
        let shared = &self.shared;
        shared.router.rules.set_unary_timeout(rules.unary_timeout);
        shared.router.rules.set_log(rules.log);
        shared.calls_limit.set(rules.max_calls, rules.max_calls_per_peer);
        shared.connections_limit.set(rules.max_connections, rules.max_connections_per_peer);
        shared.memory.set_max(rules.max_memory);
        // Last, since it wakes the accept loops, which look at the limits.
        shared.rules.send_modify(|now| {
            let upgrades = std::mem::take(&mut now.settings.upgrades);
            *now = rules;
            now.settings.upgrades = upgrades;
        });
    }

    /// A handle that does not keep the server.
    #[must_use]
    pub fn downgrade(&self) -> WeakServer {
        WeakServer { shared: Arc::downgrade(&self.shared) }
    }

    /// What every open connection says of itself.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.shared.connections.infos()
    }
}

/// A handle to a [`Server`] that does not keep it.
#[derive(Debug, Clone)]
pub struct WeakServer {
    shared: Weak<Shared>,
}

impl WeakServer {
    /// Whether there is still a server.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.shared.strong_count() > 0
    }

    /// The server, while it serves or a handle to it is there.
    #[must_use]
    pub fn upgrade(&self) -> Option<Server> {
        self.shared.upgrade().map(|shared| Server { shared })
    }
}

/// Builds a [`Server`].
#[derive(Debug)]
pub struct ServerBuilder {
    router: Router,
    layers: Layers,
    settings: ListenerSettings,
    lifetime: LifetimeRules,
    drain_timeout: Duration,
    before_drain: BeforeDrain,
    max_connections: usize,
    max_connections_per_peer: Option<usize>,
    max_calls: usize,
    max_calls_per_peer: Option<usize>,
    max_memory: Option<u64>,
    method_compression: MethodCompression,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            router: Router::default(),
            layers: Layers::default(),
            settings: ListenerSettings::default(),
            lifetime: LifetimeRules::default(),
            drain_timeout: Duration::from_secs(30),
            before_drain: BeforeDrain::default(),
            max_connections: 10_000,
            max_connections_per_peer: None,
            max_calls: 65_536,
            max_calls_per_peer: None,
            max_memory: None,
            method_compression: MethodCompression::default(),
        }
    }
}

impl ServerBuilder {
    /// Adds a service.
    #[must_use]
    pub fn add_service(mut self, service: impl Service) -> Self {
        self.router.add(Arc::new(service));
        self
    }

    /// Adds a service if there is one.
    #[must_use]
    pub fn add_optional_service(self, service: Option<impl Service>) -> Self {
        match service {
            Some(service) => self.add_service(service),
            None => self,
        }
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
    /// use rpc_core::server::ServerRequest;
    /// use rpc_core::{Server, Status};
    /// use tower::ServiceBuilder;
    ///
    /// // An async interceptor: it looks at a request, may wait, and may refuse.
    /// let authorized = |request: ServerRequest| async move {
    ///     match request.metadata().get("authorization") {
    ///         Some(_) => Ok(request),
    ///         None => Err(Status::unauthenticated("who is there?")),
    ///     }
    /// };
    /// let layers = ServiceBuilder::new()
    ///     .load_shed()
    ///     .concurrency_limit(100)
    ///     .timeout(Duration::from_secs(5))
    ///     .filter_async(authorized);
    /// let server = Server::builder().layer(layers).build();
    /// # drop(server);
    /// ```
    #[must_use]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<ServerStack> + Send + Sync + 'static,
        L::Service: tower::Service<ServerRequest, Response = ServerResponse, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as tower::Service<ServerRequest>>::Error: Into<BoxError>,
    {
        self.layers.push(layer);
        self
    }

    /// Sets who may call what. A call that is not allowed is refused before its handler and any
    /// layer: see [`Authorize`].
    #[must_use]
    pub fn authorize(mut self, rules: impl Authorize) -> Self {
        self.router.authorization = Authorization::new(rules);
        self
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
    /// let server = rpc_core::Server::builder().unary_timeout(Duration::from_secs(5)).build();
    /// # drop(server);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn unary_timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        let timeout = timeout.into();
        if let Some(timeout) = timeout {
            expect_valid(check_timeout("server.unary_timeout", timeout));
        }
        self.router.rules.set_unary_timeout(timeout);
        self
    }

    /// Whether each call that fails has a line in the log; on by default. The line has the target
    /// `farcall::call`, and names the method, the client's address, the status and how long the
    /// call took.
    ///
    /// It is WARN where something does not work (`UNKNOWN`, `DEADLINE_EXCEEDED`,
    /// `RESOURCE_EXHAUSTED`, `UNIMPLEMENTED`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`): of each of
    /// these statuses ten lines at once, then one every ten seconds with a count of those that were
    /// left out. Any other status is an answer of the application, and its line is DEBUG.
    #[must_use]
    pub fn log_failed_calls(self, is_logged: bool) -> Self {
        let log = self.router.rules.log();
        self.router.rules.set_log(CallLog { failures: is_logged, ..log });
        self
    }

    /// Whether every call has a line in the log when it ends; off by default. The line is INFO and
    /// has the target `farcall::access`. It names the method, the client's address, the status, how
    /// long the call took, the timeout that the client set, and how many messages it had.
    ///
    /// The number of these lines has no limit: clients decide how many there are.
    #[must_use]
    pub fn access_log(self, is_logged: bool) -> Self {
        let log = self.router.rules.log();
        self.router.rules.set_log(CallLog { access: is_logged, ..log });
        self
    }

    /// What of the connection every request's extensions say; nothing by default.
    #[must_use]
    pub fn peer_extensions(mut self, extensions: PeerExtensions) -> Self {
        self.router.peer_extensions = extensions;
        self
    }

    /// What is accepted of every client. [`Limits::default`] unless the builder or the listener
    /// says otherwise.
    ///
    /// # Panics
    ///
    /// When a limit is out of its range: see [`Limits::check`].
    #[must_use]
    #[track_caller]
    pub fn limits(mut self, limits: Limits) -> Self {
        expect_valid(limits.check());
        self.settings.limits = Some(limits);
        self
    }

    /// What is done with compressed messages; nothing is compressed and none accepted by default.
    /// A service's own `compress_from` comes before what is said here of the messages that are
    /// sent.
    ///
    /// # Panics
    ///
    /// When [`Compression::check`] fails.
    #[must_use]
    #[track_caller]
    pub fn compression(mut self, compression: Compression) -> Self {
        expect_valid(compression.check());
        self.settings.compression = Some(compression);
        self
    }

    /// From which length on responses are compressed, by method or by service; nothing by default.
    /// It comes before what [`compression`](Self::compression) says, and behind a service's own
    /// `compress_from`.
    ///
    /// # Panics
    ///
    /// When [`MethodCompression::check`] fails. Names are checked by
    /// [`check_methods`](Self::check_methods).
    #[must_use]
    #[track_caller]
    pub fn method_compression(mut self, compression: MethodCompression) -> Self {
        expect_valid(compression.check());
        self.method_compression = compression;
        self
    }

    /// Adds an upgraded path that clients may ask for.
    #[must_use]
    pub fn upgrade(mut self, upgrade: Arc<dyn Upgrade>) -> Self {
        self.settings.upgrades.push(upgrade);
        self
    }

    /// The bound on a client's handshake; 10 s by default. A call of gRPC may also wait as long for
    /// the next part of its message.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[must_use]
    #[track_caller]
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        expect_valid(check_timeout("handshake_timeout", timeout));
        self.settings.handshake_timeout = Some(timeout);
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
        expect_valid(check_period("server.drain_timeout", timeout));
        self.drain_timeout = timeout;
        self
    }

    /// Runs `future` when the server is shut down, before clients are told to make their calls
    /// elsewhere. The server goes on accepting and serving until it is done. Several run side by
    /// side; with several listeners, they run when the first one is shut down.
    #[must_use]
    pub fn on_drain(mut self, future: impl Future<Output = ()> + Send + 'static) -> Self {
        self.before_drain = self.before_drain.and(future);
        self
    }

    /// How clients that are gone are found; `None` leaves that to the operating system, which may
    /// take hours. On by default.
    ///
    /// # Panics
    ///
    /// When a time is out of its range: see [`Keepalive::check`].
    #[must_use]
    #[track_caller]
    pub fn keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        let keepalive = keepalive.into();
        if let Some(rules) = keepalive {
            expect_valid(rules.check());
        }
        self.settings.keepalive = Some(keepalive);
        self
    }

    /// How long a client may take nothing of the answers that wait for it, or send nothing more of
    /// a large frame that it has begun, before its connection is ended; 60 s by default, and
    /// `None` leaves both to the client. Pongs count for nothing here: a client that only answers
    /// pings could keep answers in this server's memory for as long as it likes. One that takes
    /// something within each such time, however little, is not ended. Over RDMA
    /// `rdma.release_timeout` bounds the same.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[must_use]
    #[track_caller]
    pub fn progress_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        let timeout = timeout.into();
        if let Some(timeout) = timeout {
            expect_valid(check_timeout("progress_timeout", timeout));
        }
        self.settings.progress_timeout = Some(timeout);
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
        let timeout = timeout.into();
        if let Some(timeout) = timeout {
            expect_valid(check_timeout("server.idle_timeout", timeout));
        }
        self.lifetime.idle_timeout = timeout;
        self
    }

    /// After how long a connection ends in any case, give or take a tenth by chance, so that
    /// clients spread over servers that came later; never by default. The client makes its next
    /// call on a new connection; calls in flight go on as
    /// [`ServerBuilder::max_connection_age_grace`] says. With zero each connection is sent away as
    /// soon as it is made.
    ///
    /// # Panics
    ///
    /// When the age is more than 365 days.
    #[must_use]
    #[track_caller]
    pub fn max_connection_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        let age = age.into();
        if let Some(age) = age {
            expect_valid(check_period("server.max_connection_age", age));
        }
        self.lifetime.age_max = age;
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
        let grace = grace.into();
        if let Some(grace) = grace {
            expect_valid(check_period("server.max_connection_age_grace", grace));
        }
        self.lifetime.age_grace = grace;
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
        expect_valid(check_count("server.max_calls", count));
        self.max_calls = count;
        self
    }

    /// The most of these calls that the connections from one address may have together. Peers with
    /// IPv6 addresses in the same /64 are one address. Peers on Unix sockets and inside the process
    /// have no address, and no share: only the limits of all calls and of their connections hold.
    ///
    /// By default an address may have as many calls as are free, and at least as many as
    /// [`Limits::max_calls`] allows one connection. One address alone has at most half of all
    /// calls that way, `n` of them have at most `1 / (n + 1)` each, and an address that comes
    /// later finds as much. A server behind a proxy sees one address, and sets `max_calls` here.
    ///
    /// # Panics
    ///
    /// When `count` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_calls_per_peer(mut self, count: impl Into<Option<usize>>) -> Self {
        let count = count.into();
        if let Some(count) = count {
            expect_valid(check_count("server.max_calls_per_peer", count));
        }
        self.max_calls_per_peer = count;
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
        expect_valid(check_count("server.max_connections", count));
        self.max_connections = count;
        self
    }

    /// The most of these connections that may come from one address, which is what it is for
    /// [`ServerBuilder::max_calls_per_peer`]. One more is closed as soon as it is accepted.
    ///
    /// By default an address may have as many connections as are free, and at least 64: what the
    /// default for [`ServerBuilder::max_calls`] supposes that a server has in all. A server behind
    /// a proxy sees one address, and sets `max_connections` here.
    ///
    /// # Panics
    ///
    /// When `count` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_connections_per_peer(mut self, count: impl Into<Option<usize>>) -> Self {
        let count = count.into();
        if let Some(count) = count {
            expect_valid(check_count("server.max_connections_per_peer", count));
        }
        self.max_connections_per_peer = count;
        self
    }

    /// The most bytes of memory that clients can make this server keep: requests of 4 KiB and more,
    /// the windows of their streams, answers that wait to be sent, and handshakes. See
    /// [`crate::limits::memory`] for what counts, and for how long.
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
        let bytes = bytes.into();
        if let Some(bytes) = bytes {
            expect_valid(check_memory("server.max_memory", bytes));
        }
        self.max_memory = bytes;
        self
    }

    /// The rules that a server takes while it serves: see [`Server::set_rules`].
    #[must_use]
    pub fn live_rules(&self) -> LiveRules {
        LiveRules {
            settings: self.settings.clone(),
            lifetime: self.lifetime,
            drain_timeout: self.drain_timeout,
            max_connections: self.max_connections,
            max_connections_per_peer: self.max_connections_per_peer,
            max_calls: self.max_calls,
            max_calls_per_peer: self.max_calls_per_peer,
            max_memory: self.max_memory,
            unary_timeout: self.router.rules.unary_timeout(),
            log: self.router.rules.log(),
            method_compression: self.method_compression.clone(),
        }
    }

    /// Checks that the server has every method and service that is named in a setting.
    ///
    /// # Errors
    ///
    /// The first that it does not have, with those that it has.
    pub fn check_methods(&self) -> Result<(), NotServed> {
        self.method_compression.check_served(&self.router.services().collect::<Vec<_>>())
    }

    /// The finished server.
    ///
    /// # Panics
    ///
    /// When [`check_methods`](Self::check_methods) fails.
    #[must_use]
    #[track_caller]
    pub fn build(mut self) -> Server {
        if let Err(error) = self.check_methods() {
            panic!("{error}");
        }
        let rules = watch::Sender::new(self.live_rules());
        self.router.stack = self.layers.build();
        let shared = Shared {
            router: Arc::new(self.router),
            rules,
            before_drain: self.before_drain,
            calls_limit: PeerLimit::on_calls(self.max_calls, self.max_calls_per_peer),
            connections_limit: PeerLimit::on_connections(
                self.max_connections,
                self.max_connections_per_peer,
            ),
            memory: ServerMemory::new(self.max_memory),
            connections: Connections::default(),
            log: LogLimit::default(),
        };
        Server { shared: Arc::new(shared) }
    }
}
