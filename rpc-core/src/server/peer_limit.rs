//! Each peer's share of a server's calls and connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::peer_key::PeerKey;
use crate::limits::quota::Bound;
use crate::limits::shared::{LimitShare, Names, SharedLimit};
use crate::transport::Addresses;

/// A limit on calls or connections, with shares for peers.
#[derive(Debug)]
pub(super) struct PeerLimit {
    pub(super) limit: Arc<SharedLimit<PeerKey>>,
    /// 0 for a share of what is free.
    per_peer: AtomicU64,
}

/// The connections that any address may have: what the default for running calls supposes.
pub(super) const CONNECTIONS_FLOOR: u64 = 64;

impl PeerLimit {
    pub(super) fn on_calls(max: u32, per_peer: Option<u32>) -> Self {
        let names = Names {
            what: "running calls",
            setting: "server.max_calls",
            holder: "this peer's",
            share_setting: Some("server.max_calls_per_peer"),
        };
        Self::new(names, max, per_peer)
    }

    pub(super) fn on_connections(max: u32, per_peer: Option<u32>) -> Self {
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
    pub(super) fn set(&self, max: u32, per_peer: Option<u32>) {
        self.limit.set_max(max.into());
        self.per_peer.store(per_peer.map_or(0, u64::from), Ordering::Relaxed);
    }

    /// What all peers have.
    pub(super) fn total(&self) -> u64 {
        self.limit.total()
    }

    /// The share of the peer at `addresses`: the setting for one peer, or, if that is not set, what
    /// is free and at least `floor`. A peer without an address has no share, only the limit itself:
    /// all such peers would be one.
    pub(super) fn share(&self, addresses: &Addresses, floor: u64) -> LimitShare<PeerKey> {
        let key = PeerKey::of(addresses);
        let per_peer = self.per_peer.load(Ordering::Relaxed);
        let bound = match (key, per_peer) {
            (PeerKey::Local, _) => Bound::Fixed(u64::MAX),
            (PeerKey::V4(_) | PeerKey::V6(_), 0) => Bound::Dynamic { floor },
            (PeerKey::V4(_) | PeerKey::V6(_), count) => Bound::Fixed(count),
        };
        self.limit.share(key, bound)
    }
}
