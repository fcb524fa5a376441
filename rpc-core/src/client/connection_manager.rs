//! The connection of a channel: made when a call needs it, replaced when it ends.
//!
//! A session never changes its path. When the upgraded path fails, the connection on it ends, and
//! the next one uses the path below. `failback` brings the upgraded path back.
//!
//! Lock order: `attempt` or `failback_task`, then `current`, then `breaker` or `reconnect`. None of
//! these is held while a connection is made; `connecting` is, so that only one is.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::failback::{FailbackAttempt, PathOwner, failback};
use super::{Connect, Connection, Path, PathCounts};
use crate::connect::{ConnectError, ConnectionInfo, UpgradePolicy, Wanted};
use crate::limited_log;
use crate::limits::log::LogLimit;
use crate::policy::breaker::{Breaker, FirstAttempt};
use crate::policy::reconnect::{Lifespan, Reconnect};
use crate::policy::retry_budget::RetryBudget;
use crate::transport::CloseReason;

/// The connection that calls are started on, and how it is renewed.
#[derive(Debug)]
pub(super) struct ConnectionManager {
    connector: Arc<dyn Connect>,
    current: Mutex<Option<Current>>,
    /// Notified of each new connection.
    connected: Notify,
    /// The attempt to connect that callers wait for, while there is one.
    attempt: Mutex<Option<Attempt>>,
    /// Held while connecting, so that a channel is busy with one handshake at most.
    connecting: Arc<tokio::sync::Mutex<()>>,
    /// How many attempts callers wait for. They go before an attempt at failback.
    pending_callers: Arc<watch::Sender<usize>>,
    breaker: Mutex<Breaker>,
    reconnect: Mutex<Reconnect>,
    retry_budget: Mutex<RetryBudget>,
    /// The task that fails back to the upgraded path, while there is one.
    failback_task: Mutex<Option<AbortOnDropHandle<()>>>,
    /// How many lines the server can write into the log: each of its connections is a reason.
    log: LogLimit,
}

impl Drop for ConnectionManager {
    fn drop(&mut self) {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(Current { connection, .. }) = current {
            connection.close();
        }
    }
}

/// The connection in use, and when it was made.
#[derive(Debug)]
struct Current {
    connection: Arc<dyn Connection>,
    attempted_at: std::time::Instant,
    connected_at: std::time::Instant,
}

impl Current {
    fn lifespan(&self) -> Lifespan {
        Lifespan {
            attempted_at: self.attempted_at,
            connected_at: self.connected_at,
            answered_count: self.connection.answered_count(),
        }
    }
}

/// The outcome of an attempt to connect, the same for every caller that waited for it.
type Outcome = Result<Arc<dyn Connection>, Arc<ConnectError>>;

/// An attempt to connect, which runs in a task of its own: the call that asked for it may end
/// earlier, and the next one is to find it further on. Absent where the runtime or the channel has
/// ended before it.
type Attempt = Shared<BoxFuture<'static, Option<Outcome>>>;

/// What an attempt has to do.
enum NextStep {
    /// There is a connection.
    Reuse(Arc<dyn Connection>),
    Connect(Wanted),
}

/// Counts a caller that waits for a connection, until it is dropped.
struct PendingCallers(Arc<watch::Sender<usize>>);

impl PendingCallers {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for PendingCallers {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// A value behind a lock under which nothing can be left half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// The refusal of an attempt that is not due yet; the time is rounded up, so that a caller who
/// waits for that long does not come too early.
fn waiting(reason: &str, wait: Duration) -> ConnectError {
    ConnectError::Waiting { reason: reason.to_owned(), wait_ms: wait.as_millis() + 1 }
}

impl ConnectionManager {
    pub(super) fn new(connector: impl Connect) -> Self {
        let config = connector.config();
        let first = match &config.policy {
            UpgradePolicy::Require(_) => FirstAttempt::AtOnce,
            UpgradePolicy::Prefer(_) | UpgradePolicy::Never => FirstAttempt::Delayed,
        };
        Self {
            current: Mutex::new(None),
            connected: Notify::new(),
            attempt: Mutex::new(None),
            connecting: Arc::default(),
            pending_callers: Arc::new(watch::Sender::new(0)),
            breaker: Mutex::new(Breaker::new(config.backoff, first, fastrand::u64(..))),
            reconnect: Mutex::new(Reconnect::new(config.connect_backoff, fastrand::u64(..))),
            retry_budget: Mutex::new(RetryBudget::new(config.replays, now())),
            failback_task: Mutex::new(None),
            log: LogLimit::default(),
            connector: Arc::new(connector),
        }
    }

    /// The server's address as the user wrote it.
    pub(super) fn address(&self) -> Arc<str> {
        self.connector.address()
    }

    /// How many lines about its calls the channel may still write.
    pub(super) fn log(&self) -> &LogLimit {
        &self.log
    }

    /// The current connection, if calls can be started on it.
    pub(super) fn open(&self) -> Option<Arc<dyn Connection>> {
        let current = lock(&self.current);
        let connection = &current.as_ref()?.connection;
        connection.is_open().then(|| Arc::clone(connection))
    }

    /// The current connection, or a new one. Callers share one attempt; it goes on when they are
    /// dropped.
    ///
    /// # Errors
    ///
    /// When none can be made, or none is tried yet because the last attempt failed.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt goes on for the next caller, as long as the
    /// channel lives.
    pub(super) async fn connection(self: &Arc<Self>) -> Outcome {
        // The runtime of an attempt may have ended, and then this one makes another.
        for _ in 0..2 {
            if let Some(connection) = self.open() {
                return Ok(connection);
            }
            let attempt = self.attempt().map_err(Arc::new)?;
            let outcome = attempt.clone().await;
            // The attempt has mostly removed itself already.
            lock(&self.attempt).take_if(|it| it.ptr_eq(&attempt));
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        Err(Arc::new(ConnectError::RuntimeEnded))
    }

    /// Waits for the next connection that is made after this was called, by any attempt.
    pub(super) fn connected(&self) -> Notified<'_> {
        self.connected.notified()
    }

    /// Makes the first connection, in place.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), ConnectError> {
        let (wanted, attempted_at) = (self.wanted()?, now());
        let connected = self.connector.connect(wanted).await;
        self.finish_connecting(wanted, attempted_at, connected).map(drop)
    }

    /// When the next attempt to connect may begin, once there is no connection.
    pub(super) fn next_connect(&self) -> std::time::Instant {
        let now = now();
        let reconnect = lock(&self.reconnect).backing_off(now).map(|(_, due)| due);
        let broken = lock(&self.breaker).broken().map(|(_, due)| due);
        // Under `Prefer` there is another path, and the broken one is tried in the background.
        let path = broken.filter(|_| !matches!(self.policy(), UpgradePolicy::Prefer(_)));
        reconnect.into_iter().chain(path).max().unwrap_or(now)
    }

    /// The attempt that is under way, or a new one.
    ///
    /// # Errors
    ///
    /// When none is under way, and it is too early for a new one.
    fn attempt(self: &Arc<Self>) -> Result<Attempt, ConnectError> {
        // Under this lock, since an attempt that fails records that before it leaves its place.
        let mut attempt = lock(&self.attempt);
        if let Some(attempt) = &*attempt {
            return Ok(attempt.clone());
        }
        self.reap_closed();
        self.check_backoff()?;
        Ok(attempt.insert(self.spawn_attempt()).clone())
    }

    fn check_backoff(&self) -> Result<(), ConnectError> {
        let now = now();
        let reconnect = lock(&self.reconnect);
        let Some((reason, due)) = reconnect.backing_off(now) else { return Ok(()) };
        Err(waiting(reason, due - now))
    }

    fn spawn_attempt(self: &Arc<Self>) -> Attempt {
        let (this, pending_callers) =
            (Arc::downgrade(self), PendingCallers::new(&self.pending_callers));
        let (connector, connecting) = (Arc::clone(&self.connector), Arc::clone(&self.connecting));
        let task = tokio::spawn(async move {
            let _pending = pending_callers;
            let _alone = connecting.lock().await;
            let attempted_at = now();
            let making = AssertUnwindSafe(Self::make_attempt(&this, &*connector));
            let outcome = match making.catch_unwind().await {
                Ok(outcome) => outcome?,
                Err(_) => {
                    this.upgrade()?.handle_failed(attempted_at, &ConnectError::Panicked);
                    Err(ConnectError::Panicked)
                }
            };
            let attempt = lock(&this.upgrade()?.attempt).take();
            drop(attempt);
            Some(outcome.map_err(Arc::new))
        });
        let task = AbortOnDropHandle::new(task);
        task.map(|joined| joined.ok().flatten()).boxed().shared()
    }

    /// Makes an attempt for a channel, unless that has gone or needs none any more.
    async fn make_attempt(
        this: &Weak<Self>,
        connector: &dyn Connect,
    ) -> Option<Result<Arc<dyn Connection>, ConnectError>> {
        let next_step = this.upgrade()?.next_step();
        let wanted = match next_step {
            Ok(NextStep::Reuse(connection)) => return Some(Ok(connection)),
            Ok(NextStep::Connect(wanted)) => wanted,
            Err(error) => return Some(Err(error)),
        };
        let attempted_at = now();
        let connected = connector.connect(wanted).await;
        match (this.upgrade(), connected) {
            (Some(this), connected) => {
                Some(this.finish_connecting(wanted, attempted_at, connected))
            }
            (None, Ok(connection)) => {
                connection.close();
                None
            }
            (None, Err(_)) => None,
        }
    }

    fn next_step(&self) -> Result<NextStep, ConnectError> {
        // An attempt at failback may have made one while this waited for it.
        if let Some(connection) = self.open() {
            return Ok(NextStep::Reuse(connection));
        }
        self.reap_closed();
        self.wanted().map(NextStep::Connect)
    }

    /// Records the outcome of an attempt, and makes its connection the current one.
    fn finish_connecting(
        self: &Arc<Self>,
        wanted: Wanted,
        attempted_at: std::time::Instant,
        connected: Result<Arc<dyn Connection>, ConnectError>,
    ) -> Result<Arc<dyn Connection>, ConnectError> {
        self.record_outcome(wanted, &connected);
        if let Err(error) = &connected {
            self.handle_failed(attempted_at, error);
        }
        let connection = connected?;
        let ConnectionInfo { transport, addresses, fallback, .. } = connection.info();
        if let Some(reason) = fallback {
            limited_log!(
                target: "farcall::path",
                self.log, WARN, "connected over TCP, without RDMA",
                transport, %addresses, %reason
            );
        }
        self.replace(attempted_at, Arc::clone(&connection));
        self.reap_when_ended(&connection);
        self.start_failback();
        Ok(connection)
    }

    /// Records an attempt that made no connection. The breaker delays
    /// attempts at a required path, except at one that was never in use.
    fn handle_failed(&self, attempted_at: std::time::Instant, error: &ConnectError) {
        let is_of_path = matches!(error, ConnectError::UpgradeRequired { .. });
        // The breaker has refused this attempt, which was none.
        let is_none = matches!(error, ConnectError::Waiting { .. });
        if is_none || (is_of_path && lock(&self.breaker).broken().is_some()) {
            return;
        }
        tracing::debug!(target: "farcall::path", %error, "cannot connect");
        lock(&self.reconnect).handle_failed(attempted_at, now(), error.to_string());
    }

    /// Makes a connection the current one, and returns the one before it.
    fn replace(
        &self,
        attempted_at: std::time::Instant,
        connection: Arc<dyn Connection>,
    ) -> Option<Arc<dyn Connection>> {
        let current = Current { connection, attempted_at, connected_at: now() };
        let replaced = lock(&self.current).replace(current);
        self.connected.notify_waiters();
        Some(replaced?.connection)
    }

    /// Takes one retry from the budget; false when it is empty.
    pub(super) fn may_retry(&self) -> bool {
        lock(&self.retry_budget).take(now())
    }

    /// What the connection says of itself, and why it is not on the upgraded path.
    pub(super) fn info(&self) -> Option<ConnectionInfo> {
        let mut info = self.open()?.info();
        if info.fallback.is_none() && !info.is_upgraded {
            let breaker = lock(&self.breaker);
            info.fallback = breaker.broken().map(|(reason, _)| reason.to_owned());
        }
        Some(info)
    }

    /// Which path calls take.
    pub(super) fn path(&self) -> Path {
        let info = self.open().map(|connection| connection.info());
        let transport = info.as_ref().map(|info| info.transport);
        if let Some(transport) =
            transport.filter(|_| info.as_ref().is_some_and(|it| it.is_upgraded))
        {
            return Path::Upgraded { transport };
        }
        let now = now();
        if let Some((reason, due)) = lock(&self.breaker).broken() {
            let retry_in = due.saturating_duration_since(now);
            return Path::Broken { transport, reason: reason.to_owned(), retry_in };
        }
        match info {
            Some(ConnectionInfo { transport, fallback: Some(reason), .. }) => {
                Path::Fallback { transport, reason }
            }
            Some(ConnectionInfo { transport, .. }) => Path::Direct { transport },
            None => {
                let reconnect = lock(&self.reconnect);
                let (reason, due) = reconnect.backing_off(now).unzip();
                Path::Disconnected {
                    reason: reason.or(reconnect.failure()).map(str::to_owned),
                    retry_in: due.map(|due| due.saturating_duration_since(now)),
                }
            }
        }
    }

    /// How often the upgraded path has failed and come back.
    pub(super) fn path_counts(&self) -> PathCounts {
        let breaker = lock(&self.breaker);
        PathCounts { failovers: breaker.failovers(), failbacks: breaker.failbacks() }
    }

    /// Drops a closed connection eagerly. Waiting for the next call could pin an RDMA device
    /// indefinitely.
    fn reap_when_ended(self: &Arc<Self>, connection: &Arc<dyn Connection>) {
        let ended = connection.ended();
        let (this, connection) = (Arc::downgrade(self), Arc::downgrade(connection));
        tokio::spawn(async move {
            ended.cancelled().await;
            let (Some(this), Some(connection)) = (this.upgrade(), connection.upgrade()) else {
                return;
            };
            let is_current = lock(&this.current)
                .as_ref()
                .is_some_and(|it| Arc::ptr_eq(&it.connection, &connection));
            if is_current {
                this.reap_closed();
            }
        });
    }

    /// Drops a connection that takes no calls any more, and records why it ended.
    fn reap_closed(&self) {
        let ended = lock(&self.current).take_if(|current| !current.connection.is_open());
        let Some(ended) = ended else { return };
        let (info, closed) = (ended.connection.info(), ended.connection.closed());
        let Some(reason) = closed.clone().filter(|it| info.is_upgraded && it.is_failure()) else {
            // This side closes after it was sent away.
            let failure = closed.filter(|it| *it != CloseReason::Local).map(|it| it.to_string());
            let reason = failure.as_deref().unwrap_or("the server sent this client away");
            let reason =
                format!("the last connection was of no use ({}): {reason}", info.addresses);
            let mut reconnect = lock(&self.reconnect);
            reconnect.handle_lost(ended.lifespan(), now(), reason);
            return reconnect.handle_end(failure);
        };
        let reason = format!("{}: the path died: {reason}", info.transport);
        lock(&self.breaker).handle_failure(now(), reason.clone());
        let next_attempt = self.next_path_attempt();
        let addresses = info.addresses;
        limited_log!(
            target: "farcall::path",
            self.log, WARN, "RDMA failed", %addresses, %reason, ?next_attempt
        );
    }

    /// How long until a path that has failed is tried again.
    fn next_path_attempt(&self) -> Option<Duration> {
        let due = lock(&self.breaker).broken().map(|(_, due)| due)?;
        Some(due.saturating_duration_since(now()))
    }

    fn policy(&self) -> &UpgradePolicy {
        &self.connector.config().policy
    }

    /// Which path the next connection is to take.
    fn wanted(&self) -> Result<Wanted, ConnectError> {
        let breaker = lock(&self.breaker);
        let Some((reason, due)) = breaker.broken() else { return Ok(Wanted::Best) };
        match self.policy() {
            UpgradePolicy::Prefer(_) => Ok(Wanted::Bootstrap),
            UpgradePolicy::Require(_) | UpgradePolicy::Never => {
                let wait = due.saturating_duration_since(now());
                if wait.is_zero() {
                    return Ok(Wanted::Best);
                }
                Err(waiting(reason, wait))
            }
        }
    }

    /// Records the outcome of an attempt in the breaker.
    fn record_outcome(
        &self,
        wanted: Wanted,
        connected: &Result<Arc<dyn Connection>, ConnectError>,
    ) {
        let failure = match connected {
            Ok(connection) => {
                let info = connection.info();
                if info.is_upgraded {
                    return self.record_upgraded(&info);
                }
                info.fallback
            }
            Err(ConnectError::UpgradeRequired { reason, .. }) => Some(reason.clone()),
            // No server answers: that says nothing of the path, unless the attempt was for it.
            Err(error) => (wanted == Wanted::Upgraded).then(|| error.to_string()),
        };
        if let Some(reason) = failure {
            tracing::debug!(target: "farcall::path", %reason, "RDMA could not be had");
            lock(&self.breaker).handle_attempt_failed(now(), reason);
        }
    }

    fn record_upgraded(&self, info: &ConnectionInfo) {
        if lock(&self.breaker).handle_upgraded(now()) {
            let (transport, addresses) = (info.transport, &info.addresses);
            limited_log!(
                target: "farcall::path",
                self.log, INFO, "RDMA is back", transport, %addresses
            );
        }
    }
}

impl ConnectionManager {
    /// Starts the failback task, unless it runs or the path is not broken.
    fn start_failback(self: &Arc<Self>) {
        let is_second_best = matches!(self.policy(), UpgradePolicy::Prefer(_))
            && lock(&self.breaker).broken().is_some();
        let mut task = lock(&self.failback_task);
        let is_running = task.as_ref().is_some_and(|task| !task.is_finished());
        if is_second_best && !is_running {
            let attempt = FailbackAttempt {
                connector: Arc::clone(&self.connector),
                connecting: Arc::clone(&self.connecting),
                pending_callers: self.pending_callers.subscribe(),
            };
            let failback = failback(Arc::downgrade(self), attempt);
            *task = Some(AbortOnDropHandle::new(tokio::spawn(failback)));
        }
    }
}

impl PathOwner for ConnectionManager {
    /// When to retry the path; `None`, which ends the task, when the path works, or when the
    /// channel has no connection.
    fn next_attempt(&self) -> Option<std::time::Instant> {
        // Checked under the lock of the task: `start_failback` either runs before this, and its
        // connection is seen here, or after it, and finds that there is no task.
        let mut task = lock(&self.failback_task);
        let is_in_use = self.open().is_some();
        let due = lock(&self.breaker).broken().map(|(_, due)| due);
        let due = due.filter(|_| is_in_use);
        if due.is_none() {
            *task = None;
        }
        due
    }

    /// Handles the outcome of an attempt. A new connection replaces the current one, which ends
    /// with its last call.
    fn finish_attempt(
        self: Arc<Self>,
        attempted_at: std::time::Instant,
        connected: Result<Arc<dyn Connection>, ConnectError>,
    ) {
        self.record_outcome(Wanted::Upgraded, &connected);
        let Ok(connection) = connected else { return };
        self.reap_when_ended(&connection);
        if let Some(replaced) = self.replace(attempted_at, connection) {
            replaced.retire();
        }
    }
}

#[cfg(test)]
#[path = "connection_manager_tests.rs"]
mod tests;
