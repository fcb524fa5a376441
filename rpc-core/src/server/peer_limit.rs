//! What each peer may have of a server's calls and connections.

use std::sync::Arc;

use crate::peer_key::PeerKey;
use crate::quota::Bound;
use crate::shared_limit::{LimitShare, Names, SharedLimit};
use crate::transport::Addresses;

/// A limit on calls or connections, with shares for peers.
#[derive(Debug)]
pub(super) struct PeerLimit {
    pub(super) limit: Arc<SharedLimit<PeerKey>>,
    bound: Bound,
}

/// The connections that any address may have: what the default for running calls supposes.
const CONNECTIONS_FLOOR: u64 = 64;

impl PeerLimit {
    /// The limit on running calls. Any address may have those of one connection, because a client
    /// keeps to what the server told it in the handshake, and expects no refusal then.
    pub(super) fn on_calls(max: usize, per_peer: Option<usize>, per_connection: u32) -> Self {
        let names = Names {
            what: "running calls",
            setting: "server.calls_max",
            holder: "this peer's",
            share_setting: Some("server.max_calls_per_peer"),
        };
        Self::new(names, max, per_peer, per_connection.into())
    }

    pub(super) fn on_connections(max: usize, per_peer: Option<usize>) -> Self {
        let names = Names {
            what: "connections",
            setting: "server.connections_max",
            holder: "this peer's",
            share_setting: Some("server.max_connections_per_peer"),
        };
        Self::new(names, max, per_peer, CONNECTIONS_FLOOR)
    }

    /// A peer may have `per_peer`, or, if that is not set, what is free and at least `floor`.
    fn new(names: Names, max: usize, per_peer: Option<usize>, floor: u64) -> Self {
        let bound = match per_peer {
            Some(count) => Bound::Fixed(count as u64),
            None => Bound::Dynamic { floor },
        };
        Self { limit: SharedLimit::new(names, max as u64), bound }
    }

    /// The share of the peer at `addresses`. A peer without an address has no share, only the
    /// limit itself: all such peers would be one.
    pub(super) fn share(&self, addresses: &Addresses) -> LimitShare<PeerKey> {
        let key = PeerKey::of(addresses);
        let bound = match key {
            PeerKey::Local => Bound::Fixed(u64::MAX),
            PeerKey::V4(_) | PeerKey::V6(_) => self.bound,
        };
        self.limit.share(key, bound)
    }
}
