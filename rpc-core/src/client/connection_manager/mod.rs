//! The connection of a channel: made when a call needs it, replaced when it ends or when the
//! upgraded path is back.
//!
//! What happens next is decided by the pure machine `policy/failover`. One task, the manager, acts
//! on it (`driver`). It alone may change the state, because it holds the writing end of the channel
//! that the state lies in (`snapshot`). Callers read the state there. One that finds no
//! open connection asks the manager and waits for its answer.
//!
//! The task exists while there is something to wait for: a connection that may end, an attempt, a
//! time. In between, and when the runtime of the task ends, the driver lies in the handle, from
//! where the next caller takes it to a task on its own runtime.

mod driver;
mod snapshot;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};

use self::driver::{Driver, ManagerTask, Parked, now};
use self::snapshot::{Requests, Snapshot, waiting};
use crate::balance::Connectivity;
use crate::client::{ClientConfig, Connect, Established};
use crate::connect::{ConnectError, ConnectFault, ConnectionInfo, UpgradePolicy};
use crate::limits::log::LogLimit;
use crate::policy::backoff::Reconnect;
use crate::policy::breaker::{Breaker, FirstAttempt, PathCounts};
use crate::policy::failover::{Failover, WhileBroken};
use crate::policy::retry::{ReplayLimits, RetryBudget};

pub use crate::policy::breaker::Path;

/// Interval between two checks of an open connection. A server that sends its clients away leaves
/// it open, with the calls in flight, and wakes nothing.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The connection that calls are started on, and how it is renewed.
#[derive(Debug)]
pub(in crate::client) struct ConnectionManager {
    connector: Arc<dyn Connect>,
    /// The state, which the driver writes.
    snapshot: watch::Receiver<Snapshot>,
    /// Number of requests for a connection. Each one wakes the driver.
    requests: watch::Sender<Requests>,
    parked: Arc<Parked>,
    /// Budget of replays, which the managers of a subchannel share.
    retry_budget: Arc<Mutex<RetryBudget>>,
    log: LogLimit,
}

/// A request for a connection.
#[derive(Debug, Clone, Copy)]
struct Asked {
    number: u64,
    /// True if the manager's task was started for it, on the caller's runtime, and answers it.
    is_driven_here: bool,
}

impl Drop for ConnectionManager {
    fn drop(&mut self) {
        // The driver closes what it has, too, but a task gets round to that later.
        let connection = self.snapshot.borrow().failover.connection().cloned();
        if let Some(connection) = connection {
            connection.close();
        }
    }
}

impl ConnectionManager {
    pub(in crate::client) fn new(connector: impl Connect) -> Self {
        let connector: Arc<dyn Connect> = Arc::new(connector);
        let replays = match connector.config().settings.replay_idempotent {
            true => ReplayLimits::DEFAULT,
            false => ReplayLimits::OFF,
        };
        let retry_budget = Arc::new(Mutex::new(RetryBudget::new(replays, now())));
        Self::with(connector, retry_budget, LogLimit::default())
    }

    /// Returns a manager of another connection to the same server. The two share the connector, the
    /// budget of replays and the limit on log lines.
    pub(in crate::client) fn sibling(&self) -> Self {
        let (connector, retry_budget) = (&self.connector, &self.retry_budget);
        Self::with(Arc::clone(connector), Arc::clone(retry_budget), self.log.clone())
    }

    fn with(
        connector: Arc<dyn Connect>,
        retry_budget: Arc<Mutex<RetryBudget>>,
        log: LogLimit,
    ) -> Self {
        let (writer, snapshot) = watch::channel(Snapshot::new(failover(connector.config())));
        let (requests, received) = watch::channel(Requests::default());
        let driver = Driver::new(Arc::clone(&connector), writer, received, log.clone());
        let parked = Arc::new(Parked::new(driver));
        Self { connector, snapshot, requests, parked, retry_budget, log }
    }

    /// The server's address as the user wrote it.
    pub(in crate::client) fn address(&self) -> Arc<str> {
        self.connector.address()
    }

    /// Sets further addresses of the server for later attempts.
    pub(in crate::client) fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>) {
        self.connector.set_alternatives(alternatives);
    }

    /// Returns true if each runtime that makes calls has a connection of its own.
    pub(in crate::client) fn is_per_runtime(&self) -> bool {
        self.connector.config().settings.per_runtime
    }

    /// Returns true if its connections speak another protocol.
    pub(in crate::client) fn is_encoded(&self) -> bool {
        self.connector.is_encoded()
    }

    /// Returns the limit on the channel's log lines about its calls.
    pub(in crate::client) fn log(&self) -> &LogLimit {
        &self.log
    }

    /// The current connection, if calls can be started on it.
    #[inline(always)]
    pub(in crate::client) fn open(&self) -> Option<Established> {
        self.snapshot.borrow().open()
    }

    /// The current connection, or a new one. Callers share one attempt; it goes on when they are
    /// dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if no connection can be made, or if the backoff after a failure is not
    /// over.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt goes on for the next caller, as long as the
    /// channel lives.
    pub(in crate::client) async fn connection(&self) -> Result<Established, Arc<ConnectError>> {
        let mut snapshot = self.snapshot.clone();
        // A connection that ends before this caller is woken does not repeat this for ever: from
        // the second one in a row on that was of no use, the next attempt is delayed.
        loop {
            // In each turn: another caller's attempt may have ended well meanwhile.
            if let Some(connection) = self.open() {
                return Ok(connection);
            }
            // The driver resets the backoff first where it was told to.
            let is_reset = self.requests.borrow().resets > self.snapshot.borrow().resets;
            let refusal = self.snapshot.borrow().failover.refusal(now());
            if let Some(refusal) = refusal.filter(|_| !is_reset) {
                return Err(Arc::new(waiting(refusal)));
            }
            let Asked { number, is_driven_here } = self.ask();
            let answer = match snapshot.wait_for(|state| state.answer.up_to >= number).await {
                Ok(state) => state.answer.outcome.clone(),
                Err(_) => Err(Arc::new(ConnectError::from(ConnectFault::RuntimeEnded))),
            };
            match answer {
                Ok(()) => {}
                // That of another caller: this one has the attempt made on its own. Each turn takes
                // another runtime that has ended, so that this does not go on for ever.
                Err(error)
                    if matches!(error.fault(), ConnectFault::RuntimeEnded) && !is_driven_here => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks for a connection. The first answer to the request's number or a later one is the answer
    /// to it.
    fn ask(&self) -> Asked {
        // First, since it panics outside of a runtime: the driver would be lost with it.
        let runtime = Handle::current();
        let number = self.request();
        // After the request: a driver that parks at this moment has either seen it or is found
        // here.
        self.drive(number, &runtime)
    }

    /// Returns the number of a new request.
    fn request(&self) -> u64 {
        let mut number = 0;
        self.requests.send_modify(|requests| {
            requests.count += 1;
            number = requests.count;
        });
        number
    }

    /// Starts the driver for a request, if no task has it.
    fn drive(&self, number: u64, runtime: &Handle) -> Asked {
        let driver = self.parked.take();
        // A driver whose runtime has ended since the request has answered it with that.
        let is_answered = self.snapshot.borrow().answer.up_to >= number;
        let is_driven_here = driver.is_some() && !is_answered;
        if let Some(driver) = driver {
            runtime.spawn(ManagerTask::new(driver, &self.parked).run());
        }
        Asked { number, is_driven_here }
    }

    /// Makes the next request forget the delays after earlier attempts: there is news of the
    /// server.
    pub(in crate::client) fn reset_backoff(&self) {
        // A count and no flag: the driver notes up to which reset it has come, so that one which
        // arrives meanwhile is not lost.
        self.requests.send_modify(|requests| requests.resets += 1);
    }

    /// Waits for the next connection that is made after this was called, by any attempt.
    pub(in crate::client) fn connected(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut snapshot = self.snapshot.clone();
        // Read now, and not when the future is polled: a connection made in between counts.
        let made_count = snapshot.borrow().made_count;
        async move {
            // It closes with the channel alone.
            let _ = snapshot.wait_for(|state| state.made_count > made_count).await;
        }
    }

    /// Makes the first connection, in place.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down.
    pub(in crate::client) async fn connect(&self) -> Result<(), ConnectError> {
        // No other task has the channel yet, so that the driver is parked.
        let Some(driver) = self.parked.take() else {
            return Err(ConnectError::from(ConnectFault::RuntimeEnded));
        };
        // After an error or a cancel, its drop parks the driver for the next caller.
        let mut task = ManagerTask::new(driver, &self.parked);
        task.connect().await?;
        tokio::spawn(task.run());
        Ok(())
    }

    /// Returns the time at which the next attempt to connect may begin, once there is no
    /// connection.
    pub(in crate::client) fn next_connect(&self) -> std::time::Instant {
        self.snapshot.borrow().failover.next_connect(now())
    }

    /// Takes one replay from the budget; false when it is empty.
    pub(in crate::client) fn take_replay(&self) -> bool {
        self.retry_budget.lock().take(now())
    }

    /// Returns the connection's info, with the reason if it is not on the upgraded path.
    pub(in crate::client) fn info(&self) -> Option<ConnectionInfo> {
        let info = self.open()?.info();
        Some(self.snapshot.borrow().info(info))
    }

    /// The transport of the current connection, or of the last one; `None` before the first.
    pub(in crate::client) fn transport(&self) -> Option<&'static str> {
        self.snapshot.borrow().transport
    }

    /// Returns the path that calls take.
    pub(in crate::client) fn path(&self) -> Path {
        let info = self.open().map(|connection| connection.info());
        self.snapshot.borrow().path(info, now())
    }

    /// Returns the number of failures and returns of the upgraded path.
    pub(in crate::client) fn path_counts(&self) -> PathCounts {
        self.snapshot.borrow().path_counts()
    }

    #[cfg(test)]
    fn is_parked(&self) -> bool {
        self.parked.has_driver()
    }
}

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

/// The state of a channel with these rules that has not connected yet.
fn failover(config: &ClientConfig) -> Failover<Established> {
    let (first, while_broken) = match &config.policy {
        UpgradePolicy::Prefer(_) => (FirstAttempt::Delayed, WhileBroken::UseBootstrap),
        UpgradePolicy::Require(_) => (FirstAttempt::AtOnce, WhileBroken::Wait),
        UpgradePolicy::Never => (FirstAttempt::Delayed, WhileBroken::Wait),
    };
    let breaker = Breaker::new(config.settings.path_backoff, first, fastrand::u64(..));
    let reconnect = Reconnect::new(config.settings.connect_backoff, fastrand::u64(..));
    Failover::new(while_broken, breaker, reconnect)
}

#[cfg(test)]
mod tests;
