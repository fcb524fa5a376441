//! A server, and what it is doing.

use std::io;
use std::sync::Arc;

use rpc_core::server::Listen;

use super::admin::AdminState;
use super::error::ServeFault;
use super::{ServeError, ServerSettings};
use crate::ConnectionInfo;
use crate::rdma::Rdma;
use crate::tls::ServerTls;

/// A set of services and the rules under which they are served. Clones are the same server.
///
/// [`Server::builder`] makes one. Most programs need no value of this type, and call
/// [`ServerBuilder::serve`]. With one value a program serves several listeners under common limits,
/// and asks what the server is doing.
///
/// [`ServerBuilder::serve`]: crate::ServerBuilder::serve
#[derive(Debug, Clone)]
pub struct Server {
    pub(super) core: rpc_core::Server,
    /// Those that it was built with.
    pub(super) settings: Arc<ServerSettings>,
    pub(super) rdma: Rdma,
    pub(super) tls: Option<ServerTls>,
    pub(super) admin: Option<Arc<AdminState>>,
    /// A setting that names a method or a service that the server does not have. The server cannot
    /// serve then.
    pub(super) not_served: Option<String>,
}

impl Server {
    /// Serves a listener, and samples the server for operators meanwhile.
    pub(super) async fn serve_until(
        &self,
        listener: impl Listen,
        shutdown: impl Future<Output = ()> + Send,
    ) -> io::Result<()> {
        let serving = self.core.serve_until(listener, shutdown);
        let Some(admin) = &self.admin else { return serving.await };
        tokio::select! {
            served = serving => served,
            never = admin.watch() => match never {},
        }
    }

    pub(super) fn check_methods(&self) -> Result<(), ServeError> {
        match self.not_served.clone() {
            None => Ok(()),
            Some(reason) => Err(ServeFault::Method { reason }.into()),
        }
    }

    /// Returns the handle to the server's RDMA devices: its builder's, or the process-wide one.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// Returns the handle to the server's TLS, to reload its files.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_ref()
    }

    /// The calls that count towards [`ServerBuilder::max_calls`] now: those of which the handlers
    /// have not ended.
    ///
    /// [`ServerBuilder::max_calls`]: crate::ServerBuilder::max_calls
    #[must_use]
    pub fn calls_running(&self) -> u64 {
        self.core.calls_running()
    }

    /// The bytes that count towards [`ServerBuilder::max_memory`] now.
    ///
    /// [`ServerBuilder::max_memory`]: crate::ServerBuilder::max_memory
    #[must_use]
    pub fn memory_held(&self) -> u64 {
        self.core.memory_held()
    }

    /// The bytes that [`memory_held`](Self::memory_held) may come to:
    /// [`ServerBuilder::max_memory`], or its default.
    ///
    /// [`ServerBuilder::max_memory`]: crate::ServerBuilder::max_memory
    #[cfg(feature = "metrics")]
    pub(crate) fn memory_limit(&self) -> u64 {
        self.core.memory_limit()
    }

    /// Returns the state of every open connection.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.core.connections()
    }
}
