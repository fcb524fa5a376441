//! The holder of memory: an address, or a connection that has none.

use std::fmt;

use crate::limits::peer_key::PeerKey;

/// A holder of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum MemoryHolder {
    /// All connections of an address, those in their handshake included.
    Peer(PeerKey),
    /// A connection whose peer has no address. Such peers have nothing in common by which one of
    /// them could be told from the others.
    Connection(u64),
}

impl MemoryHolder {
    /// The holder that connection `number` of `peer` belongs to.
    pub(crate) fn new(peer: PeerKey, number: u64) -> Self {
        match peer {
            PeerKey::Local => Self::Connection(number),
            PeerKey::V4(_) | PeerKey::V6(_) => Self::Peer(peer),
        }
    }
}

impl fmt::Display for MemoryHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(peer) => peer.fmt(f),
            Self::Connection(_) => write!(f, "a connection of {}", PeerKey::Local),
        }
    }
}
