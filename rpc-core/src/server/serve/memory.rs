//! A server's memory budget, as its accept loop hands it out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::memory::{MemoryHolder, MemoryShare, Pressure, Usage, memory_limit, memory_max};
use crate::limits::peer_key::PeerKey;
use crate::limits::shared::SharedLimit;
use crate::transport::Addresses;

/// The budget of one server.
#[derive(Debug)]
pub(in crate::server) struct ServerMemory {
    limit: Arc<SharedLimit<MemoryHolder>>,
    pressure: Arc<Pressure>,
    connection_count: AtomicU64,
    /// Held while room is made, since a server may have several listeners.
    pub(super) relief: tokio::sync::Mutex<()>,
}

impl ServerMemory {
    /// A budget of `max` bytes, or the default.
    pub(in crate::server) fn new(max: Option<u64>) -> Self {
        let limit = memory_limit(max);
        let (pressure, connection_count) = (Arc::default(), AtomicU64::new(0));
        Self { limit, pressure, connection_count, relief: tokio::sync::Mutex::default() }
    }

    /// Makes it a budget of `max` bytes, or the default.
    pub(in crate::server) fn set_max(&self, max: Option<u64>) {
        self.limit.set_max(memory_max(max));
    }

    /// The share of a new connection, from its handshake on.
    pub(in crate::server) fn connection(&self, addresses: &Addresses) -> MemoryShare {
        let number = self.connection_count.fetch_add(1, Ordering::Relaxed);
        MemoryShare::new(&self.limit, PeerKey::of(addresses), number, &self.pressure)
    }

    /// The bytes that count now.
    pub(in crate::server) fn held(&self) -> u64 {
        self.limit.total()
    }

    /// The bytes that may count.
    pub(in crate::server) fn max(&self) -> u64 {
        self.limit.max()
    }

    /// The signal that little is free.
    pub(super) fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// The budget as it is now.
    pub(super) fn usage(&self) -> Usage {
        let (lendable, total) = (self.limit.lendable(), self.limit.total());
        Usage { lendable, total, holders: self.limit.holdings().into_iter().collect() }
    }
}
