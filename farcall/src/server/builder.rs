//! Building a server from its services and settings.

mod encryption;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "settings")]
mod live;
#[cfg(test)]
mod tests;

#[cfg(feature = "settings")]
pub(crate) use live::{LiveServer, Origin};

use std::sync::Arc;

use rpc_core::Limits;
use rpc_core::connect::Upgrade;
use rpc_core::server::{
    PeerInfo, ServerParts, ServerRequest, ServerResponse, ServerStack, Service, blocking,
};
use rpc_core::settings::{Layers, expect_valid};
use tower::{BoxError, Layer};

use super::admin::{AdminService, AdminState, ChannelzService, ServerView};
use super::settings::listener_settings;
use super::{Admin, Authorize, Listener, Serve, ServeError, Server, ServerSettings};
use crate::rdma::Rdma;
use crate::tls::ServerTls;
use crate::{Extensions, IntoAddress};

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
    parts: ServerParts,
    layers: Layers<ServerSettings>,
    rdma: Option<Rdma>,
    tls: Option<ServerTls>,
    admin: Option<Admin>,
    /// The settings that made it.
    #[cfg(feature = "settings")]
    origin: Option<Box<dyn Origin>>,
}

impl ServerBuilder {
    rpc_core::server_settings! { rpc_core::builder_setters [layers.code.base] }

    listener_settings! { rpc_core::builder_setters [layers.code] }

    /// The same builder after `change`.
    fn with(mut self, change: impl FnOnce(ServerParts) -> ServerParts) -> Self {
        self.parts = change(self.parts);
        self
    }

    /// Adds a service, which a generated `GreeterService::new(..)` makes.
    #[must_use]
    pub fn add_service(self, service: impl Service) -> Self {
        self.with(|parts| parts.add_service(service))
    }

    /// Adds a service whose handlers may block their thread.
    ///
    /// On a server with [`cores`](Self::cores) they run on the runtime that serves. A handler that
    /// blocks on that runtime holds up its own call, and no other while a thread is left. On a
    /// core it would hold up every connection of the core. Each call pays for the way to another
    /// thread and back.
    ///
    /// Without cores this is [`add_service`](Self::add_service). Layers around the server's calls
    /// stay on the core.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(
    /// #     lookups: impl farcall::Service,
    /// #     reports: impl farcall::Service,
    /// # ) -> Result<(), farcall::ServeError> {
    /// farcall::Server::builder()
    ///     .cores(8)
    ///     .add_service(lookups)
    ///     // Its handlers compute for milliseconds.
    ///     .blocking(reports)
    ///     .serve("tcp://0.0.0.0:7000")
    ///     .await
    /// # }
    /// ```
    #[must_use]
    pub fn blocking(self, service: impl Service) -> Self {
        self.add_service(blocking(service))
    }

    /// Adds a service if there is one, so that a program can choose its services when it starts.
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
        self.with(|parts| parts.layer(layer))
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
        self.with(|parts| parts.authorize(rules))
    }

    /// Shows operators the state of the server; see [`Admin`]. Off by default.
    #[must_use]
    pub fn admin(mut self, admin: Admin) -> Self {
        self.admin = Some(admin);
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

    /// Sets the function that puts connection details into the extensions of every request, for
    /// example those that another framework's handlers look for. None by default.
    ///
    /// A handler can always ask [`PeerInfo::current`], which allocates nothing. An entry in the
    /// extensions costs three allocations a call, as many as half of a small call's whole budget.
    ///
    /// # Examples
    ///
    /// ```
    /// let server = farcall::Server::builder().peer_extensions(|peer, extensions| {
    ///     extensions.insert(peer.clone());
    /// });
    /// # drop(server);
    /// ```
    #[must_use]
    pub fn peer_extensions(self, insert: fn(&PeerInfo, &mut Extensions)) -> Self {
        self.with(|parts| parts.peer_extensions(insert))
    }

    /// Sets the maximum encoded length of a request message; 4 MiB by default. The client's own
    /// limit holds for responses. The other [`limits`](Self::limits) stay as they are.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` is 0.
    #[must_use]
    #[track_caller]
    pub fn max_message_len(mut self, bytes: u64) -> Self {
        expect_valid(Limits::default().with_max_message_len(bytes).check());
        self.layers.code.base.limits.max_message_len = Some(bytes);
        self
    }

    /// Adds a path that clients may ask for, for tests of transports.
    #[doc(hidden)]
    #[must_use]
    pub fn upgrade(self, upgrade: Arc<dyn Upgrade>) -> Self {
        self.with(|parts| parts.upgrade(upgrade))
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
        self.with(|parts| parts.on_drain(future))
    }

    /// Returns the settings that the server would have: the program's, over those of a file, over
    /// the defaults.
    #[must_use]
    pub fn settings(&self) -> ServerSettings {
        self.layers.resolve()
    }

    /// Makes the server. It is for programs that serve several listeners, or that ask later what
    /// the server is doing.
    #[must_use]
    pub fn build(self) -> Server {
        let settings = self.settings();
        let not_served = self.not_served(&settings);
        let admin = self.admin.map(AdminState::new);
        let parts = match &admin {
            None => self.parts,
            Some(admin) => {
                let sees_loopback = settings.proxy_protocol.from.is_empty();
                let parts = self.parts.on_drain(Arc::clone(admin).drain());
                let services: [Arc<dyn Service>; 2] = [
                    Arc::new(AdminService(Arc::clone(admin))),
                    Arc::new(ChannelzService(Arc::clone(admin))),
                ];
                parts.operators(services.into(), sees_loopback)
            }
        };
        let core = parts.build(settings.base.clone());
        let (settings, rdma) = (Arc::new(settings), self.rdma.unwrap_or_default());
        if let Some(admin) = &admin {
            admin.set_view(ServerView {
                core: core.downgrade(),
                settings: Arc::clone(&settings),
                code: self.layers.code.clone(),
                rdma: rdma.clone(),
                tls: self.tls.clone(),
                #[cfg(feature = "settings")]
                file: self.origin.as_ref().map(|origin| origin.view()),
                #[cfg(not(feature = "settings"))]
                file: None,
            });
        }
        let server = Server { core, settings, rdma, tls: self.tls, admin, not_served };
        #[cfg(feature = "settings")]
        if let Some(origin) = self.origin.filter(|_| server.not_served.is_none()) {
            origin.register(&server, self.layers.code);
        }
        server
    }

    /// Describes a setting that names a method or a service that the server does not have.
    fn not_served(&self, settings: &ServerSettings) -> Option<String> {
        let error = self.parts.check_methods(&settings.base).err()?;
        #[cfg(feature = "settings")]
        if let Some(origin) = &self.origin
            && !self.layers.code.base.methods.0.contains_key(&error.name)
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
    pub async fn bind(self, address: impl IntoAddress) -> Result<Listener, ServeError> {
        self.build().bind(address).await
    }

    /// Builds a server, and serves it at one address; see [`Server::bind`] and [`Serve`].
    pub fn serve(self, address: impl IntoAddress) -> Serve {
        let (server, address) = (self.build(), address.into_address());
        Serve::new(|shutdown| async move {
            let listener = server.bind(address?).await?;
            listener.run(shutdown).await
        })
    }
}
