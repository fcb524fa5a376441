//! Limits on a server's calls and connections: each peer's share, and the slots of one listener.
//!
//! The number of slots may change while some are taken, which a semaphore's cannot: it forgets no
//! permit that is out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::limits::quota::Bound;
use crate::limits::quota::PeerKey;
use crate::limits::shared::{LimitShare, Names, SharedLimit};
use crate::transport::Addresses;

/// The connections that any address may have: what the default for running calls supposes.
pub(in crate::server) const CONNECTIONS_FLOOR: u64 = 64;

/// A limit on calls or connections, with shares for peers.
#[derive(Debug)]
pub(in crate::server) struct PeerLimit {
    pub(in crate::server) limit: Arc<SharedLimit<PeerKey>>,
    /// 0 for a share of what is free.
    per_peer: AtomicU64,
}

impl PeerLimit {
    pub(in crate::server) fn on_calls(max: u32, per_peer: Option<u32>) -> Self {
        let names = Names {
            what: "running calls",
            setting: "server.max_calls",
            holder: "this peer's",
            share_setting: Some("server.max_calls_per_peer"),
        };
        Self::new(names, max, per_peer)
    }

    pub(in crate::server) fn on_connections(max: u32, per_peer: Option<u32>) -> Self {
        let names = Names {
            what: "connections",
            setting: "server.max_connections",
            holder: "this peer's",
            share_setting: Some("server.max_connections_per_peer"),
        };
        Self::new(names, max, per_peer)
    }

    fn new(names: Names, max: u32, per_peer: Option<u32>) -> Self {
        let per_peer = AtomicU64::new(per_peer.map_or(0, u64::from));
        Self { limit: SharedLimit::new(names, max.into()), per_peer }
    }

    /// Makes it another limit. What peers have beyond it stays theirs; the share of a peer is
    /// another from its next connection on.
    pub(in crate::server) fn set(&self, max: u32, per_peer: Option<u32>) {
        self.limit.set_max(max.into());
        self.per_peer.store(per_peer.map_or(0, u64::from), Ordering::Relaxed);
    }

    /// Returns the amount of all peers.
    pub(in crate::server) fn total(&self) -> u64 {
        self.limit.total()
    }

    /// The share of the peer at `addresses`: the setting for one peer, or, if that is not set, what
    /// is free and at least `floor`. A peer without an address has no share, only the limit itself:
    /// all such peers would be one.
    pub(in crate::server) fn share(
        &self,
        addresses: &Addresses,
        floor: u64,
    ) -> LimitShare<PeerKey> {
        let key = PeerKey::new(addresses.peer);
        let per_peer = self.per_peer.load(Ordering::Relaxed);
        let bound = match (key, per_peer) {
            (PeerKey::Local, _) => Bound::Fixed(u64::MAX),
            (PeerKey::V4(_) | PeerKey::V6(_), 0) => Bound::Dynamic { floor },
            (PeerKey::V4(_) | PeerKey::V6(_), count) => Bound::Fixed(count),
        };
        self.limit.share(key, bound)
    }
}

/// The slots that are taken.
#[derive(Debug, Default)]
pub(in crate::server) struct Slots {
    taken: AtomicU32,
    freed: Notify,
}

/// A slot. Dropped, it is free again.
#[derive(Debug)]
pub(in crate::server) struct Slot(Arc<Slots>);

impl Slots {
    /// Takes a slot if fewer than `max` are taken. Only the accept loop of the listener takes
    /// slots, so that no other task is between its look and its count.
    pub(in crate::server) fn try_take(self: &Arc<Self>, max: u32) -> Option<Slot> {
        if self.taken.load(Ordering::Relaxed) >= max {
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(Slot(Arc::clone(self)))
    }

    /// Waits until a slot has been given back since the last wait.
    ///
    /// This method is cancel safe: the next wait ends at once then.
    pub(in crate::server) async fn freed(&self) {
        self.freed.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Counted down first: an accept loop that is notified earlier could find no slot, and wait
        // again for a notification that was used up.
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn slots_become_fewer_and_more_while_they_are_taken() {
        let slots = Arc::new(Slots::default());
        let mut taken: Vec<_> = (0..3).filter_map(|_| slots.try_take(3)).collect();
        assert!(taken.len() == 3 && slots.try_take(3).is_none());
        assert!(slots.try_take(4).is_some(), "there are more now");
        for left in [2, 1] {
            drop(taken.pop());
            slots.freed().await;
            assert_eq!(slots.try_take(2).is_some(), left < 2, "there are two now");
        }
    }
}
