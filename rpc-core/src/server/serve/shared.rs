//! The state that a server's connections share.

use std::sync::Arc;

use tokio::sync::watch;

use crate::connect::Upgrade;
use crate::limits::log::LogLimit;
use crate::server::ServerSettings;
use crate::server::peer_limit::PeerLimit;
use crate::server::router::Router;
use crate::server::serve::connections::Connections;
use crate::server::serve::drain::BeforeDrain;
use crate::server::serve::memory::ServerMemory;

/// The services of a server, its settings, and the limits that its connections share.
#[derive(Debug)]
pub(in crate::server) struct Shared {
    pub(in crate::server) router: Arc<Router>,
    /// The upgraded paths that clients may ask for at every listener.
    pub(in crate::server) upgrades: Vec<Arc<dyn Upgrade>>,
    /// The settings of this moment.
    pub(in crate::server) settings: watch::Sender<Arc<ServerSettings>>,
    pub(in crate::server) before_drain: BeforeDrain,
    pub(in crate::server) calls_limit: PeerLimit,
    pub(in crate::server) connections_limit: PeerLimit,
    pub(in crate::server) memory: ServerMemory,
    pub(in crate::server) connections: Connections,
    /// How many lines clients can write into the log.
    pub(in crate::server) log: LogLimit,
}
