//! The subchannel to one endpoint, as the driver sees it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::driver::{Backoff, Link};
use super::health::{Health, HealthWatch};
use super::shared::now;
use crate::balance::Connectivity;
use crate::client::CallRules;
use crate::client::attempts::SharedAttempts;
use crate::client::subchannel::Subchannel;

/// The pause after an attempt that cannot succeed in this process: the list may change.
const HOPELESS_PAUSE: Duration = Duration::from_secs(60);

/// Rules of the health watch. A server without the service has no line in the log for it.
const WATCH_RULES: CallRules = CallRules { log_failures: false, ..CallRules::DEFAULT };

/// The subchannel to an endpoint, and what its server says of itself where that is asked for.
#[derive(Debug, Clone)]
pub(super) struct EndpointLink {
    pub(super) subchannel: Subchannel,
    watch: Option<HealthWatch>,
}

impl EndpointLink {
    pub(super) fn new(subchannel: Subchannel, health_check: Option<&str>) -> Self {
        Self { subchannel, watch: health_check.map(HealthWatch::new) }
    }

    /// Waits until the server says something else of itself; for ever where it is not asked.
    async fn health_changed(&self) {
        let Some(watch) = &self.watch else { return std::future::pending().await };
        let route = self.subchannel.route(&WATCH_RULES, Some(SharedAttempts::none()));
        watch.changed(&route, watch.health()).await;
    }
}

impl Link for EndpointLink {
    async fn connect(&self, backoff: Backoff) -> Result<(), (String, Instant)> {
        if let Some(watch) = &self.watch {
            watch.reset().await;
        }
        let manager = &self.subchannel.manager;
        if backoff == Backoff::Reset {
            manager.reset_backoff();
        }
        let Err(error) = manager.connection().await else { return Ok(()) };
        let due = match error.may_pass() {
            true => manager.next_connect(),
            false => now() + HOPELESS_PAUSE,
        };
        Err((error.reason(), due))
    }

    fn state(&self) -> Connectivity {
        let Some(info) = self.subchannel.manager.info() else { return Connectivity::Idle };
        match self.watch.as_ref().map_or(Health::Serves, HealthWatch::health) {
            Health::Unknown => Connectivity::Connecting,
            Health::Serves => Connectivity::Ready { is_upgraded: info.is_upgraded },
            Health::DoesNotServe => Connectivity::TransientFailure,
        }
    }

    fn disconnect(&self) {
        if let Some(connection) = self.subchannel.manager.open() {
            connection.retire();
        }
    }

    fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>) {
        self.subchannel.manager.set_alternatives(alternatives);
    }

    async fn left(&self, state: Connectivity) {
        loop {
            // Before the look, so that no connection made after it is missed.
            let connected = self.subchannel.manager.connected();
            let Some(connection) = self.subchannel.manager.open() else { return };
            if self.state() != state {
                return;
            }
            let ended = connection.ended();
            let is_renewed = tokio::select! {
                () = ended.cancelled() => true,
                () = connected => true,
                () = self.health_changed() => false,
            };
            // The watch would keep a connection whose place another has taken. It is reset outside
            // of the `select!`, since `changed` holds the watch's lock while it waits.
            if is_renewed && let Some(watch) = &self.watch {
                watch.reset().await;
            }
        }
    }
}
