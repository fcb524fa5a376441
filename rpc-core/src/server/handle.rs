//! `Server`, the parts of it that are code (services, layers, upgrades), and the handle that does
//! not keep it.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tonic::Extensions;
use tower::{BoxError, Layer};

use super::call_stats::{CallStats, CallWatch, CallWatcher, FailedCallInfo, MethodCalls};
use super::layers::Layers;
use super::method_compression::NotServed;
use super::peer::{Authorization, Authorize};
use super::router::Router;
use super::serve;
use super::serve::cores::SharedCores;
use super::serve::limits::PeerLimit;
use super::serve::shared::{BeforeDrain, Connections, OpenConnectionInfo, ServerMemory, Shared};
use super::{
    Listen, PeerInfo, ServerRequest, ServerResponse, ServerSettings, ServerStack, Service,
};
use crate::connect::{ConnectionInfo, Upgrade};
use crate::limits::log::LogLimit;

/// The parts of a server that are code. With [`ServerSettings`] they make a [`Server`].
#[derive(Debug, Default)]
pub struct ServerParts {
    router: Router,
    layers: Layers,
    upgrades: Vec<Arc<dyn Upgrade>>,
    before_drain: BeforeDrain,
    /// The services for operators, and true if clients at loopback addresses see them.
    operators: Option<(OperatorServices, bool)>,
}

/// The services for operators.
struct OperatorServices(Vec<Arc<dyn Service>>);

impl fmt::Debug for OperatorServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|service| service.descriptor().name)).finish()
    }
}

impl ServerParts {
    /// Adds a service.
    #[must_use]
    pub fn add_service(mut self, service: impl Service) -> Self {
        self.router.add(Arc::new(service));
        self
    }

    /// Puts a tower layer around the calls of all services, of every kind. The layer that is added
    /// first is the outermost one. Each layer costs every call a few allocations.
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

    /// Sets the function that puts connection details into each request's extensions.
    #[must_use]
    pub fn peer_extensions(mut self, insert: fn(&PeerInfo, &mut Extensions)) -> Self {
        self.router.peer_extensions = Some(insert);
        self
    }

    /// Adds an upgraded path that clients may ask for.
    #[must_use]
    pub fn upgrade(mut self, upgrade: Arc<dyn Upgrade>) -> Self {
        self.upgrades.push(upgrade);
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

    /// Adds services for operators, and counts calls by method. Clients on this host see them:
    /// inside the process, at Unix sockets, and with `sees_loopback` at loopback addresses. Others
    /// see them with an identity that [`authorize`](Self::authorize) allows to call the methods of
    /// the first. To everyone else the server does not have them.
    #[must_use]
    pub fn operators(mut self, services: Vec<Arc<dyn Service>>, sees_loopback: bool) -> Self {
        self.operators = Some((OperatorServices(services), sees_loopback));
        self
    }

    /// Checks that the server has every method and service that `settings` name.
    ///
    /// # Errors
    ///
    /// Returns the first that it does not have, with those that it has.
    pub fn check_methods(&self, settings: &ServerSettings) -> Result<(), NotServed> {
        settings.methods.check_served(&self.router.services().collect::<Vec<_>>())
    }

    /// Builds the server. A name that [`check_methods`](Self::check_methods) refuses means nothing.
    #[must_use]
    pub fn build(mut self, settings: impl Into<Arc<ServerSettings>>) -> Server {
        let settings = settings.into();
        // First, because it replaces the router's rules, which are set below. And after all other
        // services, because clients that are no operators see the methods before its own.
        if let Some((OperatorServices(services), sees_loopback)) = self.operators {
            self.router.add_for_operators(services, sees_loopback);
        }
        self.router.stack = self.layers.build();
        self.router.rules.set(&settings);
        Server::new(Shared {
            router: Arc::new(self.router),
            upgrades: self.upgrades,
            before_drain: self.before_drain,
            calls_limit: PeerLimit::on_calls(settings.max_calls, settings.max_calls_per_peer),
            connections_limit: PeerLimit::on_connections(
                settings.max_connections,
                settings.max_connections_per_peer,
            ),
            memory: ServerMemory::new(settings.max_memory),
            connections: Connections::default(),
            cores: SharedCores::default(),
            log: LogLimit::default(),
            settings: watch::Sender::new(settings),
        })
    }
}

/// A set of services and the settings under which they are served.
/// [`ServerParts`](super::ServerParts) makes it.
#[derive(Debug, Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Serves the connections of `listener` for ever.
    ///
    /// # Errors
    ///
    /// Returns `io::Error` if the listener can never accept again.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no connection is accepted any more; those that are open are closed at once.
    pub async fn serve(&self, listener: impl Listen) -> io::Result<()> {
        self.serve_until(listener, std::future::pending()).await
    }

    /// Serves the connections of `listener` until `shutdown` is ready; then refuses new calls,
    /// gives those in flight the drain timeout, and closes. Clients are told to make
    /// their calls elsewhere; a call that they had sent already comes back marked as not executed,
    /// and they start it again by themselves where they can (see [`crate::NotExecuted`]).
    ///
    /// # Errors
    ///
    /// Returns `io::Error` if the listener can never accept again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe as [`Server::serve`] is.
    pub async fn serve_until(
        &self,
        listener: impl Listen,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        serve::serve(Arc::clone(&self.shared), listener, shutdown).await
    }

    /// The calls that count towards [`ServerSettings::max_calls`] now: those of which the handlers
    /// have not ended.
    #[must_use]
    pub fn calls_running(&self) -> u64 {
        self.shared.calls_limit.limit.total()
    }

    /// The bytes that count towards [`ServerSettings::max_memory`] now.
    #[must_use]
    pub fn memory_held(&self) -> u64 {
        self.shared.memory.held()
    }

    /// The bytes that [`memory_held`](Self::memory_held) may come to.
    #[must_use]
    pub fn memory_limit(&self) -> u64 {
        self.shared.memory.max()
    }

    /// Returns the settings that hold now.
    #[must_use]
    pub fn settings(&self) -> Arc<ServerSettings> {
        Arc::clone(&self.shared.settings.borrow())
    }

    /// Checks that the server has every method and service that `settings` name.
    ///
    /// # Errors
    ///
    /// Returns the first that it does not have, with those that it has.
    pub fn check_methods(&self, settings: &ServerSettings) -> Result<(), NotServed> {
        let served: Vec<_> = self.shared.router.services().collect();
        settings.methods.check_served(&served)
    }

    /// Gives the server other settings while it serves. A name that
    /// [`check_methods`](Self::check_methods) refuses means nothing. Limits on all calls,
    /// connections and memory hold from the next one on, and so does `unary_timeout`; a share for
    /// each peer holds from the peer's next connection on. All others hold for connections that are
    /// accepted from now on. What is beyond a limit already stays.
    pub fn update(&self, settings: Arc<ServerSettings>) {
        let shared = &self.shared;
        // Each by itself: calls that arrive meanwhile see some of the new values, which stand
        // alone.
        shared.router.rules.set(&settings);
        shared.calls_limit.set(settings.max_calls, settings.max_calls_per_peer);
        shared.connections_limit.set(settings.max_connections, settings.max_connections_per_peer);
        shared.memory.set_max(settings.max_memory);
        // Last, since it wakes the accept loops, which look at the limits.
        shared.settings.send_replace(settings);
    }

    /// Returns a handle that does not keep the server.
    #[must_use]
    pub fn downgrade(&self) -> WeakServer {
        WeakServer { shared: Arc::downgrade(&self.shared) }
    }

    /// Returns the counts of calls by method; `None` without a service for operators.
    #[must_use]
    pub fn method_calls(&self) -> Option<Vec<MethodCalls>> {
        self.shared.router.rules.stats.as_deref().map(CallStats::methods)
    }

    /// Returns the calls that failed last, the newest first; none without a service for operators.
    #[must_use]
    pub fn failed_calls(&self) -> Vec<FailedCallInfo> {
        self.shared.router.rules.stats.as_deref().map(CallStats::failed).unwrap_or_default()
    }

    /// Shows calls that end from now on to `watcher`, until the result is dropped. `None` if the
    /// server has no service for operators, or as many watchers as it may.
    #[must_use]
    pub fn watch_calls(&self, watcher: Arc<dyn CallWatcher>) -> Option<CallWatch> {
        CallWatch::begin(self.shared.router.rules.stats.as_ref()?, watcher)
    }

    /// Returns every open connection with its age and its part of the server's memory.
    #[must_use]
    pub fn open_connections(&self) -> Vec<OpenConnectionInfo> {
        self.shared.connections.open_infos()
    }

    /// Returns the state of every open connection.
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
    /// Returns true if there is still a server.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::server::ServerParts;

    #[test]
    fn updated_settings_hold_from_now_on() {
        let server = ServerParts::default().build(ServerSettings::default());
        let seconds = Duration::from_secs(5);
        let later = ServerSettings {
            max_calls: 3,
            max_memory: Some(1 << 20),
            unary_timeout: Some(seconds),
            access_log: true,
            ..ServerSettings::default()
        };
        server.update(Arc::new(later.clone()));
        assert_eq!(*server.settings(), later);
        assert_eq!(server.shared.calls_limit.limit.max(), 3);
        let rules = &server.shared.router.rules;
        assert_eq!((rules.unary_timeout(), rules.log().access), (Some(seconds), true));
    }

    #[test]
    fn weak_handle_ends_with_the_server() {
        let server = ServerParts::default().build(ServerSettings::default());
        let weak = server.downgrade();
        assert!(weak.is_alive() && weak.upgrade().is_some());
        drop(server);
        assert!(!weak.is_alive() && weak.upgrade().is_none());
    }
}
