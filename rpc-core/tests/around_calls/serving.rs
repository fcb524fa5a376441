//! Servers inside the process, each for one test.

use std::sync::atomic::{AtomicUsize, Ordering};

use rpc_core::Channel;
use rpc_core::client::ClientConfig;
use rpc_core::connect::UpgradePolicy;
use rpc_core::inproc::{InprocConnector, InprocListener};
use rpc_core::server::{Server, ServerParts, ServerSettings};
use tokio_util::task::AbortOnDropHandle;

/// A server that runs until this is dropped, and the name that it listens at.
#[derive(Debug)]
pub(crate) struct Serving {
    name: String,
    server: Server,
    _task: AbortOnDropHandle<std::io::Result<()>>,
}

impl Serving {
    pub(crate) fn start(server: ServerParts) -> Self {
        Self::start_with(server, ServerSettings::default())
    }

    pub(crate) fn start_with(server: ServerParts, settings: ServerSettings) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("around-calls-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self::serve(name, server.build(settings))
    }

    /// Starts a server at the name of one that has ended.
    pub(crate) fn start_at(name: String, server: ServerParts) -> Self {
        Self::serve(name, server.build(ServerSettings::default()))
    }

    fn serve(name: String, server: Server) -> Self {
        let listener = InprocListener::bind(name.clone()).unwrap();
        let serving = server.clone();
        let task = tokio::spawn(async move { serving.serve(listener).await });
        Self { name, server, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns the number of connections.
    pub(crate) fn connection_count(&self) -> usize {
        self.server.connections().len()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A channel that connects at its first call.
    pub(crate) fn channel(&self) -> Channel {
        channel(&self.name)
    }
}

/// A channel to the server at a name, which connects at its first call.
pub(crate) fn channel(name: &str) -> Channel {
    let config = ClientConfig { policy: UpgradePolicy::Never, ..ClientConfig::default() };
    Channel::new(InprocConnector::new(name, config))
}
