//! A server of the settings: the handle that it shares, and a reload.

use std::fmt;
use std::sync::Arc;

use rpc_core::server::{NotServed, WeakServer};
use rpc_core::settings::Layers;

use super::ServerBuilder;
use crate::Server;
use crate::rdma::Rdma;
use crate::server::SettingsView;
use crate::server::settings::{ServerOverlay, ServerSettings};
use crate::tls::ServerTls;

/// A server whose settings may change, for as long as it serves or the program holds it.
#[derive(Debug)]
pub(crate) struct LiveServer {
    core: WeakServer,
    /// The handle that the settings gave it: the program may have set another.
    tls: Option<ServerTls>,
    /// The settings that the program has set.
    code: ServerOverlay,
}

/// The settings that a builder came from.
pub(crate) trait Origin: fmt::Debug + Send + Sync {
    /// Describes an error of the settings with its place in the file.
    fn describe(&self, error: &NotServed) -> String;

    /// Returns the file as operators see it.
    fn view(&self) -> Arc<dyn SettingsView>;

    /// Registers `server` for reloads of the settings, over which `code` stays.
    fn register(self: Box<Self>, server: &Server, code: ServerOverlay);
}

impl ServerBuilder {
    /// Returns a builder with the settings of a file.
    pub(crate) fn with_file(file: ServerOverlay) -> Self {
        let layers = Layers { file, code: ServerOverlay::default() };
        Self { layers, ..Self::default() }
    }

    /// Returns the builder with the handle and the place of its settings.
    pub(crate) fn made_by(mut self, rdma: &Rdma, origin: impl Origin + 'static) -> Self {
        self.rdma = Some(rdma.clone());
        self.origin = Some(Box::new(origin));
        self
    }

    /// Returns the handle to its TLS.
    pub(crate) fn tls_handle(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }
}

impl LiveServer {
    pub(crate) fn new(server: &Server, tls: Option<ServerTls>, code: ServerOverlay) -> Self {
        Self { core: server.core.downgrade(), tls, code }
    }

    /// Returns true while there is a server.
    pub(crate) fn is_alive(&self) -> bool {
        self.core.is_alive()
    }

    /// Returns the keys that `builder` has other values of and that a server cannot take while it
    /// serves.
    pub(crate) fn held_back(&self, builder: &ServerBuilder) -> &'static [&'static str] {
        if self.tls.is_some() != builder.tls.is_some() { &["tls"] } else { &[] }
    }

    /// Gives the server the settings of `builder`, which has a file's alone, under those of its
    /// code. Returns the server, since it goes with its last handle, which may be this one: what
    /// the program's services do then may want the lock of the settings.
    pub(crate) fn update(&self, builder: &ServerBuilder) -> Option<rpc_core::Server> {
        #[cfg(feature = "tls")]
        if let (Some(old), Some(new)) = (&self.tls, &builder.tls) {
            old.replace(new);
        }
        let (server, settings) = self.resolved(builder)?;
        server.update(Arc::new(settings.base));
        Some(server)
    }

    /// Returns the server, and the settings that it has after an update. The server goes with its
    /// last handle, as above.
    pub(crate) fn resolved(
        &self,
        builder: &ServerBuilder,
    ) -> Option<(rpc_core::Server, ServerSettings)> {
        let layers =
            Layers::<ServerSettings> { file: builder.layers.file.clone(), code: self.code.clone() };
        Some((self.core.upgrade()?, layers.resolve()))
    }
}
