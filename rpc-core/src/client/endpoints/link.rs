//! The channel to one endpoint, as the driver sees it.

use std::time::{Duration, Instant};

use super::driver::Link;
use super::shared::now;
use crate::balance::Connectivity;
use crate::client::Channel;

/// The pause after an attempt that cannot succeed in this process: the list may change.
const HOPELESS_PAUSE: Duration = Duration::from_secs(60);

impl Link for Channel {
    async fn connect(&self) -> Result<(), (String, Instant)> {
        let Err(error) = self.manager.connection().await else { return Ok(()) };
        let due = match error.may_pass() {
            true => self.manager.next_connect(),
            false => now() + HOPELESS_PAUSE,
        };
        Err((error.to_string(), due))
    }

    fn state(&self) -> Connectivity {
        match self.info() {
            Some(info) => Connectivity::Ready { is_upgraded: info.is_upgraded },
            None => Connectivity::Idle,
        }
    }

    async fn left(&self, state: Connectivity) {
        loop {
            // Before the look, so that no connection made after it is missed.
            let connected = self.manager.connected();
            let Some(connection) = self.manager.open() else { return };
            if self.state() != state {
                return;
            }
            let ended = connection.ended();
            tokio::select! {
                () = ended.cancelled() => {}
                () = connected => {}
            }
        }
    }
}
