//! The list of a server's open connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;

use crate::connect::ConnectionInfo;
use crate::limits::memory::{Holding, MemoryShare};
use crate::metrics::connection_opened;
use crate::server::ServerConnection;

/// The open connections of a server.
#[derive(Debug, Default)]
pub(in crate::server) struct Connections {
    open: Mutex<Slab<OpenConnection>>,
}

/// An open connection, and its share of the server's memory.
#[derive(Debug)]
struct OpenConnection {
    connection: Arc<dyn ServerConnection>,
    memory: MemoryShare,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Slab<OpenConnection>> {
        // A slab is consistent between any two statements.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::server) fn infos(&self) -> Vec<ConnectionInfo> {
        self.lock().iter().map(|(_, open)| open.connection.info()).collect()
    }

    /// The connections that hold memory.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        let open = self.lock();
        let holding = |open: &OpenConnection| open.memory.holding(|| open.connection.flows());
        open.iter().filter_map(|(_, open)| holding(open)).collect()
    }

    /// The connections whose memory has one of these numbers.
    pub(super) fn with_numbers(&self, numbers: &[u64]) -> Vec<Arc<dyn ServerConnection>> {
        if numbers.is_empty() {
            return Vec::new();
        }
        let open = self.lock();
        let is_one = |open: &&OpenConnection| {
            open.memory.number().is_some_and(|number| numbers.contains(&number))
        };
        let found = open.iter().map(|(_, open)| open).filter(is_one);
        found.map(|open| Arc::clone(&open.connection)).collect()
    }
}

/// An entry in the list of connections; dropped, the connection is closed and the entry goes.
pub(in crate::server) struct Registered<'a> {
    connections: &'a Connections,
    key: usize,
    pub(in crate::server) connection: Arc<dyn ServerConnection>,
}

impl<'a> Registered<'a> {
    /// Starts a connection once it is in the list, so that no client that was served over it can
    /// miss it there.
    pub(in crate::server) fn start(
        connections: &'a Connections,
        connection: Arc<dyn ServerConnection>,
        memory: MemoryShare,
    ) -> Self {
        let open = OpenConnection { connection: Arc::clone(&connection), memory };
        let key = connections.lock().insert(open);
        let this = Self { connections, key, connection };
        connection_opened("server", &this.connection.info());
        this.connection.start();
        this
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.connection.close();
        // Dropped after the lock: the last of a holder's memory takes it from its quota.
        let _open = self.connections.lock().remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use futures::future::BoxFuture;

    use super::*;
    use crate::policy::keepalive::Traffic;
    use crate::policy::lifetime::CallCounts;
    use crate::policy::progress::Flows;
    use crate::transport::{Addresses, CloseReason, TransportStats};

    /// A connection that looks for itself in the list when it is started.
    #[derive(Debug)]
    struct Curious {
        connections: Weak<Connections>,
        found: Mutex<Vec<usize>>,
    }

    impl ServerConnection for Curious {
        fn start(&self) {
            let count = self.connections.upgrade().unwrap().lock().len();
            self.found.lock().unwrap().push(count);
        }

        fn closed(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn drained(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn go_away(&self) {}

        fn ping(&self, _: u64) {}

        fn traffic(&self) -> Traffic {
            Traffic::default()
        }

        fn has_unread(&self) -> bool {
            false
        }

        fn flows(&self) -> Flows {
            Flows::default()
        }

        fn calls(&self) -> CallCounts {
            CallCounts::default()
        }

        fn is_flushed(&self) -> bool {
            true
        }

        fn abort(&self, _: CloseReason) {}

        fn close(&self) {}

        fn info(&self) -> ConnectionInfo {
            ConnectionInfo {
                transport: "curious",
                addresses: Addresses::default(),
                is_upgraded: false,
                wanted_upgrade: false,
                fallback: None,
                fallback_can_pass: false,
                is_without_device: false,
                compression: crate::Negotiated::default(),
                calls_in_flight: 0,
                stats: TransportStats::default(),
            }
        }
    }

    /// Started before that, it may serve a client which then does not find it.
    #[test]
    fn a_connection_is_in_the_list_before_it_receives() {
        let connections = Arc::new(Connections::default());
        let (list, found) = (Arc::downgrade(&connections), Mutex::default());
        let curious = Arc::new(Curious { connections: list, found });
        let registered =
            Registered::start(&connections, Arc::clone(&curious) as _, MemoryShare::default());
        assert_eq!(*curious.found.lock().unwrap(), [1]);
        drop(registered);
        assert_eq!(connections.lock().len(), 0);
    }
}
