//! Where a channel's connection stands, by gRPC's names, and the wait for a change.

use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until};

use super::ConnectionManager;
use super::driver::now;
use super::snapshot::Snapshot;
use crate::balance::Connectivity;

/// How often a connection is looked at that is there: a server that sends its clients away leaves
/// it, with the calls in flight, and wakes nothing.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Snapshot {
    fn connectivity(&self, now: Instant) -> Connectivity {
        if let Some(connection) = self.open() {
            return Connectivity::Ready { is_upgraded: connection.info().is_upgraded };
        }
        if self.failover.is_connecting() {
            return Connectivity::Connecting;
        }
        match self.failover.refusal(now) {
            Some(_) => Connectivity::TransientFailure,
            None => Connectivity::Idle,
        }
    }
}

impl ConnectionManager {
    pub(in crate::client) fn connectivity(&self) -> Connectivity {
        self.snapshot.borrow().connectivity(now())
    }

    /// Waits until the connectivity is another than `state`, and returns it. A wait that begins
    /// while the channel is idle has it connect.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe.
    pub(in crate::client) async fn connectivity_changed(
        &self,
        state: Connectivity,
    ) -> Connectivity {
        let (mut snapshot, mut is_asked) = (self.snapshot.clone(), false);
        loop {
            let (found, connection, due) = {
                let state = snapshot.borrow_and_update();
                let refusal = state.failover.refusal(now());
                (state.connectivity(now()), state.open(), refusal.map(|it| now() + it.wait))
            };
            if found != state {
                return found;
            }
            // Once: an attempt that was given up leaves the channel idle, and no pause behind it.
            if found == Connectivity::Idle && !is_asked {
                self.ask();
                is_asked = true;
            }
            let ended = async {
                match &connection {
                    Some(connection) => connection.ended().cancelled().await,
                    None => std::future::pending().await,
                }
            };
            // A failure passes with time, which changes no snapshot.
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = snapshot.changed() => {
                    // The manager's task writes it, or the driver that lies in this handle.
                    if changed.is_err() {
                        return self.connectivity();
                    }
                }
                () = ended => {}
                () = is_due => {}
                () = sleep(LOOK_INTERVAL), if connection.is_some() => {}
            }
        }
    }
}
