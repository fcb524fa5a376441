//! The state that a server's connections share: the list of those that are open, the memory budget
//! with the task that makes room in it, and what runs before the server drains.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{self, BoxFuture, join, ready};
use parking_lot::{Mutex, MutexGuard};
use slab::Slab;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::connect::{ConnectionInfo, Upgrade};
use crate::limited_log;
use crate::limits::log::LogLimit;
use crate::limits::memory::{
    Holding, MemoryHolder, MemoryShare, Pressure, Relief, Usage, memory_limit, memory_max,
};
use crate::limits::quota::PeerKey;
use crate::limits::shared::SharedLimit;
use crate::metrics::connection_opened;
use crate::server::router::Router;
use crate::server::serve::cores::SharedCores;
use crate::server::serve::limits::PeerLimit;
use crate::server::{ServerConnection, ServerSettings};
use crate::transport::{Addresses, CloseReason, Outbound};

/// The pause between two looks: a quarter of the time in which a connection has to move.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The services of a server, its settings, and the limits that its connections share.
#[derive(Debug)]
pub(in crate::server) struct Shared {
    pub(in crate::server) router: Arc<Router>,
    /// The upgraded paths that clients may ask for at every listener.
    pub(in crate::server) upgrades: Vec<Arc<dyn Upgrade>>,
    /// The settings of this moment.
    pub(in crate::server) settings: watch::Sender<Arc<ServerSettings>>,
    pub(in crate::server) before_drain: BeforeDrain,
    pub(in crate::server) calls_limit: PeerLimit,
    pub(in crate::server) connections_limit: PeerLimit,
    pub(in crate::server) memory: ServerMemory,
    pub(in crate::server) connections: Connections,
    pub(in crate::server) cores: SharedCores,
    /// Limit on the lines that clients can cause in the log.
    pub(in crate::server) log: LogLimit,
}

/// A future that runs once, when the first listener of a server is shut down. Clones are the same.
#[derive(Clone)]
pub(in crate::server) struct BeforeDrain(future::Shared<BoxFuture<'static, ()>>);

impl BeforeDrain {
    /// The same with another future beside.
    pub(in crate::server) fn and(self, other: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(join(self.0, other).map(drop).boxed().shared())
    }

    /// Runs it, or waits for it where another listener runs it.
    pub(in crate::server) async fn run(&self) {
        self.0.clone().await;
    }
}

impl Default for BeforeDrain {
    fn default() -> Self {
        Self(ready(()).boxed().shared())
    }
}

impl fmt::Debug for BeforeDrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeDrain")
    }
}

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
    since: Instant,
}

/// An open connection, for operators.
#[derive(Debug, Clone)]
pub struct OpenConnectionInfo {
    /// Number of the connection, from 0 on. No other connection of the server has it.
    pub number: u64,
    /// State of the connection.
    pub info: ConnectionInfo,
    /// Time since its handshake.
    pub age: Duration,
    /// Number of calls since then.
    pub started: u64,
    /// Bytes that it counts in the server's memory budget.
    pub memory_held: u64,
    /// True if something waits to be sent.
    pub is_sending: bool,
    /// The sending side of the connection.
    pub outbound: Outbound,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Slab<OpenConnection>> {
        // Lock order: this list, then a session's state. No session reaches the list.
        self.open.lock()
    }

    pub(in crate::server) fn infos(&self) -> Vec<ConnectionInfo> {
        self.lock().iter().map(|(_, open)| open.connection.info()).collect()
    }

    pub(in crate::server) fn open_infos(&self) -> Vec<OpenConnectionInfo> {
        let info = |open: &OpenConnection| {
            let mut info = open.connection.info();
            if let Some((sent, received)) = open.connection.network_bytes() {
                (info.stats.sent_bytes, info.stats.received_bytes) = (sent, received);
            }
            info
        };
        let describe = |(_, open): (usize, &OpenConnection)| OpenConnectionInfo {
            number: open.memory.number().unwrap_or_default(),
            info: info(open),
            age: open.since.elapsed(),
            started: open.connection.calls().started,
            memory_held: open.memory.held(),
            is_sending: open.connection.flows().sending.is_waiting,
            outbound: open.connection.outbound(),
        };
        self.lock().iter().map(describe).collect()
    }

    /// The connections that hold memory.
    pub(super) fn holdings(&self) -> Vec<Holding> {
        let open = self.lock();
        let holding = |open: &OpenConnection| open.memory.holding(|| open.connection.flows());
        open.iter().filter_map(|(_, open)| holding(open)).collect()
    }

    /// The connections whose memory has one of these numbers.
    fn with_numbers(&self, numbers: &[u64]) -> Vec<Arc<dyn ServerConnection>> {
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
        let since = Instant::now();
        let open = OpenConnection { connection: Arc::clone(&connection), memory, since };
        let key = connections.lock().insert(open);
        let this = Self { connections, key, connection };
        // Outside of the lock: an exporter of metrics is code of the program.
        connection_opened("server", &this.connection.info());
        this.connection.start();
        this
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // Before it leaves the list: a connection is in it for as long as it may have calls.
        self.connection.close();
        // Dropped after the lock: the last of a holder's memory takes it from its quota.
        let _open = self.connections.lock().remove(self.key);
    }
}

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
        MemoryShare::new(&self.limit, PeerKey::new(addresses.peer), number, &self.pressure)
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

/// Makes room whenever memory is short, and never returns.
pub(super) async fn relieve(shared: &Shared) -> Infallible {
    loop {
        shared.memory.pressure().raised().await;
        // Several listeners share the memory: one of them makes room at a time.
        let _turn = shared.memory.relief.lock().await;
        let mut relief = Relief::default();
        while look(shared, &mut relief) {
            sleep(LOOK_INTERVAL).await;
        }
    }
}

/// Ends the connections that have to give way. Returns true if another look is due.
fn look(shared: &Shared, relief: &mut Relief) -> bool {
    // Before the look at what is held: a refusal that comes during it counts for the next look.
    let want = shared.memory.pressure().take();
    let (now, usage) = (Instant::now().into_std(), shared.memory.usage());
    let holdings = shared.connections.holdings();
    let ended = relief.look(now, usage, &holdings, want);
    for connection in shared.connections.with_numbers(&ended) {
        let addresses = connection.info().addresses;
        // Not closed: a client that reads nothing would keep what is flushed to it.
        connection.abort(CloseReason::MemoryShort);
        let setting = "server.max_memory";
        limited_log!(
            target: "farcall::server",
            shared.log, WARN, "closed a connection that reads too little while memory is short",
            %addresses, setting
        );
    }
    relief.is_needed(&shared.memory.usage())
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
            self.found.lock().push(count);
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
                accepts_compressed: false,
                sends_compressed: false,
                calls_in_flight: 0,
                path: None,
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
        assert_eq!(*curious.found.lock(), [1]);
        drop(registered);
        assert_eq!(connections.lock().len(), 0);
    }
}
