//! The state that a server's connections share.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::log::LogLimit;
use crate::policy::lifetime::LifetimeRules;
use crate::server::ListenerSettings;
use crate::server::peer_limit::PeerLimit;
use crate::server::router::Router;
use crate::server::serve::connections::Connections;
use crate::server::serve::drain::BeforeDrain;
use crate::server::serve::memory::ServerMemory;

/// The services of a server, its settings, and the limits that its connections share.
#[derive(Debug)]
pub(in crate::server) struct Shared {
    pub(in crate::server) router: Arc<Router>,
    /// Those that the builder was given. They take precedence over a listener's.
    pub(in crate::server) settings: ListenerSettings,
    pub(in crate::server) lifetime: LifetimeRules,
    pub(in crate::server) drain_timeout: Duration,
    pub(in crate::server) before_drain: BeforeDrain,
    pub(in crate::server) calls_limit: PeerLimit,
    pub(in crate::server) max_connections: usize,
    pub(in crate::server) connections_limit: PeerLimit,
    pub(in crate::server) memory: ServerMemory,
    pub(in crate::server) connections: Connections,
    /// How many lines clients can write into the log.
    pub(in crate::server) log: LogLimit,
}
