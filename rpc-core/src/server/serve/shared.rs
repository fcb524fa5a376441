//! The state that a server's connections share.

use std::sync::Arc;
use std::time::Duration;

use super::ListenerSettings;
use super::connections::Connections;
use super::memory::ServerMemory;
use super::peer_limit::PeerLimit;
use super::router::Router;
use crate::limits::log::LogLimit;
use crate::policy::lifetime::LifetimeRules;

/// The services of a server, its settings, and the limits that its connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) router: Arc<Router>,
    /// Those that the builder was given. They take precedence over a listener's.
    pub(super) settings: ListenerSettings,
    pub(super) lifetime: LifetimeRules,
    pub(super) drain_timeout: Duration,
    pub(super) calls_limit: PeerLimit,
    pub(super) max_connections: usize,
    pub(super) connections_limit: PeerLimit,
    pub(super) memory: ServerMemory,
    pub(super) connections: Connections,
    /// How many lines clients can write into the log.
    pub(super) log: LogLimit,
}
