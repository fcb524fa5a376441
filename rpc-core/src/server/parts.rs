//! The parts of a server that are code: services, layers, upgrades.

use std::sync::Arc;

use tokio::sync::watch;
use tower::{BoxError, Layer};

use super::authorize::{Authorization, Authorize};
use super::handle::Server;
use super::layers::Layers;
use super::method_compression::NotServed;
use super::peer_limit::PeerLimit;
use super::router::Router;
use super::serve::connections::Connections;
use super::serve::drain::BeforeDrain;
use super::serve::memory::ServerMemory;
use super::serve::shared::Shared;
use super::{PeerExtensions, ServerRequest, ServerResponse, ServerSettings, ServerStack, Service};
use crate::connect::Upgrade;
use crate::limits::log::LogLimit;

/// The parts of a server that are code. With [`ServerSettings`] they make a [`Server`].
#[derive(Debug, Default)]
pub struct ServerParts {
    router: Router,
    layers: Layers,
    upgrades: Vec<Arc<dyn Upgrade>>,
    before_drain: BeforeDrain,
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

    /// Sets the connection details in each request's extensions; none by default.
    #[must_use]
    pub fn peer_extensions(mut self, extensions: PeerExtensions) -> Self {
        self.router.peer_extensions = extensions;
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
            log: LogLimit::default(),
            settings: watch::Sender::new(settings),
        })
    }
}
