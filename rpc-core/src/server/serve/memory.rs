//! A server's memory budget, as its accept loop hands it out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::Status;

use crate::limits::memory::{MemoryCharge, MemoryHolder, MemoryShare, memory_limit, memory_max};
use crate::limits::peer_key::PeerKey;
use crate::limits::settings::MIN_MEMORY;
use crate::limits::shared::SharedLimit;
use crate::transport::Addresses;

/// What a handshake may hold: the longest Hello of a client, 64 KiB, and as much again for what it
/// is decoded to.
const HANDSHAKE_LEN: u64 = 128 << 10;

/// The least budget that a server can be given takes a client.
const _: () = assert!(HANDSHAKE_LEN <= MIN_MEMORY);

/// The budget of one server.
#[derive(Debug)]
pub(in crate::server) struct ServerMemory {
    limit: Arc<SharedLimit<MemoryHolder>>,
    handshakes: MemoryShare,
    connection_count: AtomicU64,
}

impl ServerMemory {
    /// A budget of `max` bytes, or the default.
    pub(in crate::server) fn new(max: Option<u64>) -> Self {
        let limit = memory_limit(max);
        let handshakes = MemoryShare::new(&limit, MemoryHolder::Handshakes);
        Self { limit, handshakes, connection_count: AtomicU64::new(0) }
    }

    /// Makes it a budget of `max` bytes, or the default.
    pub(in crate::server) fn set_max(&self, max: Option<u64>) {
        self.limit.set_max(memory_max(max));
    }

    /// Counts a handshake. All of them are one holder: peers of which nothing is known yet have at
    /// most half of the budget together.
    ///
    /// # Errors
    ///
    /// When it does not fit.
    pub(in crate::server) fn handshake(&self) -> Result<MemoryCharge, Status> {
        self.handshakes.try_take(HANDSHAKE_LEN)
    }

    /// The share of a new connection.
    pub(in crate::server) fn connection(&self, addresses: &Addresses) -> MemoryShare {
        let number = self.connection_count.fetch_add(1, Ordering::Relaxed);
        let holder = MemoryHolder::Connection { number, peer: PeerKey::of(addresses) };
        MemoryShare::new(&self.limit, holder)
    }

    /// The bytes that count now.
    pub(in crate::server) fn held(&self) -> u64 {
        self.limit.total()
    }
}
