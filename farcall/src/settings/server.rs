//! A server whose address and settings the configuration has.

use super::reload::Registration;
use crate::{Address, BindError, Listener, ServeError, ServerBuilder, Service};

/// A server of the configuration, to which the program adds its services; made by
/// [`crate::Settings::server`].
#[derive(Debug)]
#[must_use]
pub struct ConfiguredServer {
    address: Address,
    builder: ServerBuilder,
    registration: Registration,
}

impl ConfiguredServer {
    pub(super) fn new(
        address: Address,
        builder: ServerBuilder,
        registration: Registration,
    ) -> Self {
        Self { address, builder, registration }
    }

    /// The address to listen on.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Adds a service, as [`ServerBuilder::add_service`].
    pub fn add_service(self, service: impl Service) -> Self {
        self.with(|builder| builder.add_service(service))
    }

    /// Changes settings in code, which take precedence over the configuration's, and adds layers.
    pub fn with(mut self, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        self.builder = change(self.builder);
        self
    }

    /// Listens, and serves when the [`Listener`] is told to.
    ///
    /// # Errors
    ///
    /// When the operating system refuses the address, and when the settings name a method or a
    /// service that the server does not have.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: cancelled, it listens no more.
    pub async fn bind(self) -> Result<Listener, BindError> {
        let in_code = self.builder.in_code().to_vec();
        self.builder.check_methods_by_settings().map_err(|error| {
            let reason = self.registration.not_served(&error).to_string();
            BindError::Method { reason }
        })?;
        let listener = self.builder.bind(self.address).await?;
        self.registration.register(listener.server(), in_code);
        Ok(listener)
    }

    /// Serves for ever.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::serve`].
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no connection is accepted any more; those that are open are closed at once.
    pub async fn serve(self) -> Result<(), ServeError> {
        self.bind().await?.serve().await
    }

    /// Serves until `shutdown` is ready; see [`crate::Server::serve_until`].
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::serve`].
    ///
    /// # Cancel safety
    ///
    /// As [`ConfiguredServer::serve`].
    pub async fn serve_with_shutdown(
        self,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        self.bind().await?.serve_with_shutdown(shutdown).await
    }
}
