//! One direction of a link: what is done to the bytes that pass it.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// A direction of a [`Link`](super::Link).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From clients to the server.
    ToServer,
    /// From the server to clients.
    ToClient,
}

/// The treatment of bytes that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Flow {
    #[default]
    Passes,
    Waits,
    IsLost,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    pub(super) latency: Duration,
    pub(super) flow: Flow,
}

/// The bytes that have passed, and the place of the next damage.
#[derive(Debug, Default)]
struct Passed {
    bytes: u64,
    /// Number of bytes that pass unharmed before the damaged one.
    damage_after: Option<u64>,
}

/// One direction of all connections of a link.
#[derive(Debug, Default)]
pub(super) struct Lane {
    rules: watch::Sender<Rules>,
    passed: Mutex<Passed>,
}

impl Lane {
    pub(super) fn change(&self, change: impl FnOnce(&mut Rules)) {
        self.rules.send_modify(change);
    }

    pub(super) fn damage_after(&self, bytes: u64) {
        self.passed().damage_after = Some(bytes);
    }

    pub(super) fn passed_bytes(&self) -> u64 {
        self.passed().bytes
    }

    /// Waits until bytes that were sent at `sent` are due, and tells what becomes of them.
    pub(super) async fn due(&self, sent: Instant) -> Flow {
        let mut rules = self.rules.subscribe();
        loop {
            let Rules { latency, flow } = *rules.borrow_and_update();
            let arrival = async {
                match flow {
                    Flow::Waits => std::future::pending().await,
                    Flow::Passes | Flow::IsLost => sleep_until(sent + latency).await,
                }
            };
            tokio::select! {
                // Bytes that are due arrive under the rules that held when they were.
                biased;
                () = arrival => return flow,
                // The sender is in `self`.
                _ = rules.changed() => {}
            }
        }
    }

    /// Counts bytes that pass, and damages them where the test said so.
    pub(super) fn pass(&self, bytes: &mut [u8]) {
        let mut passed = self.passed();
        let len = bytes.len() as u64;
        passed.bytes += len;
        let Some(after) = passed.damage_after else { return };
        let due = usize::try_from(after).ok().and_then(|after| bytes.get_mut(after));
        passed.damage_after = match due {
            Some(byte) => {
                *byte ^= 1;
                None
            }
            None => Some(after - len),
        };
    }

    fn passed(&self) -> MutexGuard<'_, Passed> {
        self.passed.lock()
    }
}
