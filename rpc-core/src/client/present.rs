//! The present connection of a channel: made when it is needed, replaced when it ends.
//!
//! For its caller a channel *is* the connection. When a better path dies, the connection on it is
//! over, and another takes its place that does without: a session never changes its path, so that
//! none is ever between two. Winning the path back is `win_back`'s business.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::win_back::{Attempt as WinningBack, win_back};
use super::{Connect, Connection, PathInfo};
use crate::calls::breaker::{Breaker, FirstAttempt};
use crate::calls::replays::Replays;
use crate::connect::{ConnectError, ConnectionInfo, UpgradePolicy, Wanted};

/// The connection that calls are started on, and how it is renewed.
#[derive(Debug)]
pub(super) struct Present {
    connector: Arc<dyn Connect>,
    connection: Mutex<Option<Arc<dyn Connection>>>,
    /// The attempt to connect that callers wait for, while there is one.
    attempt: Mutex<Option<Attempt>>,
    /// Held while connecting, so that a channel is busy with one handshake at most.
    connecting: Arc<tokio::sync::Mutex<()>>,
    /// Whether callers want a connection: they go before an attempt to win a path back.
    wanting: Arc<watch::Sender<usize>>,
    breaker: Mutex<Breaker>,
    replays: Mutex<Replays>,
    /// The task that tries to win the path back, while there is one.
    winning_back: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Drop for Present {
    fn drop(&mut self) {
        let connection = self.connection.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connection {
            connection.close();
        }
    }
}

/// What became of an attempt to connect. All who waited for it get the same.
type Outcome = Result<Arc<dyn Connection>, Arc<ConnectError>>;

/// An attempt to connect, which runs in a task of its own: the call that asked for it may end
/// earlier, and the next one is to find it further on. Absent where the runtime or the channel has
/// ended before it.
type Attempt = Shared<BoxFuture<'static, Option<Outcome>>>;

/// What an attempt finds to be done.
enum ToDo {
    /// Nothing: there is a connection.
    Take(Arc<dyn Connection>),
    Connect(Wanted),
}

/// Says that callers want a connection, until it is dropped.
struct Wanting(Arc<watch::Sender<usize>>);

impl Wanting {
    fn new(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for Wanting {
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

impl Present {
    pub(super) fn new(connector: impl Connect) -> Self {
        let config = connector.config();
        let first = match &config.policy {
            UpgradePolicy::Require(_) => FirstAttempt::AtOnce,
            UpgradePolicy::Prefer(_) | UpgradePolicy::Never => FirstAttempt::Delayed,
        };
        Self {
            connection: Mutex::new(None),
            attempt: Mutex::new(None),
            connecting: Arc::default(),
            wanting: Arc::new(watch::Sender::new(0)),
            breaker: Mutex::new(Breaker::new(config.backoff, first)),
            replays: Mutex::new(Replays::new(config.replays, now())),
            winning_back: Mutex::new(None),
            connector: Arc::new(connector),
        }
    }

    /// The present connection, if calls can be started on it.
    pub(super) fn open(&self) -> Option<Arc<dyn Connection>> {
        lock(&self.connection).as_ref().filter(|connection| connection.is_open()).map(Arc::clone)
    }

    /// The present connection, or a new one. All who ask while one is being made wait for the same
    /// attempt, which goes on without them.
    ///
    /// # Errors
    ///
    /// When none can be made.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the attempt goes on for whoever asks next, as long as the channel lives.
    pub(super) async fn connection(self: &Arc<Self>) -> Outcome {
        // The runtime of an attempt may have ended, and then this one makes another.
        for _ in 0..2 {
            if let Some(connection) = self.open() {
                return Ok(connection);
            }
            let attempt = self.attempt();
            let outcome = attempt.clone().await;
            // Mostly it has done that itself.
            lock(&self.attempt).take_if(|it| it.ptr_eq(&attempt));
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        Err(Arc::new(ConnectError::RuntimeEnded))
    }

    /// Makes the first connection, in place.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), ConnectError> {
        let wanted = self.wanted()?;
        let connected = self.connector.connect(wanted).await;
        self.finish_connecting(wanted, connected).map(drop)
    }

    /// The attempt that is under way, or a new one.
    fn attempt(self: &Arc<Self>) -> Attempt {
        lock(&self.attempt).get_or_insert_with(|| self.spawn_attempt()).clone()
    }

    fn spawn_attempt(self: &Arc<Self>) -> Attempt {
        let (this, wanting) = (Arc::downgrade(self), Wanting::new(&self.wanting));
        let (connector, connecting) = (Arc::clone(&self.connector), Arc::clone(&self.connecting));
        let task = tokio::spawn(async move {
            let _wanting = wanting;
            let _alone = connecting.lock().await;
            let making = AssertUnwindSafe(Self::make_attempt(&this, &*connector));
            let outcome =
                making.catch_unwind().await.unwrap_or(Some(Err(ConnectError::Panicked)))?;
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
        let to_do = this.upgrade()?.to_do();
        let wanted = match to_do {
            Ok(ToDo::Take(connection)) => return Some(Ok(connection)),
            Ok(ToDo::Connect(wanted)) => wanted,
            Err(error) => return Some(Err(error)),
        };
        let connected = connector.connect(wanted).await;
        match (this.upgrade(), connected) {
            (Some(this), connected) => Some(this.finish_connecting(wanted, connected)),
            (None, Ok(connection)) => {
                connection.close();
                None
            }
            (None, Err(_)) => None,
        }
    }

    fn to_do(&self) -> Result<ToDo, ConnectError> {
        // An attempt to win the path back may have made one while this waited for it.
        if let Some(connection) = self.open() {
            return Ok(ToDo::Take(connection));
        }
        self.bury();
        self.wanted().map(ToDo::Connect)
    }

    /// Takes what an attempt has made.
    fn finish_connecting(
        self: &Arc<Self>,
        wanted: Wanted,
        connected: Result<Arc<dyn Connection>, ConnectError>,
    ) -> Result<Arc<dyn Connection>, ConnectError> {
        self.learn(wanted, &connected);
        let connection = connected?;
        *lock(&self.connection) = Some(Arc::clone(&connection));
        self.bury_when_ended(&connection);
        self.try_to_win_back();
        Ok(connection)
    }

    /// Takes the right to replay a call; false when the channel has replayed too many.
    pub(super) fn may_replay(&self) -> bool {
        lock(&self.replays).take(now())
    }

    /// What the present connection says of itself, and why it is not on the better path.
    pub(super) fn info(&self) -> Option<ConnectionInfo> {
        let mut info = self.open()?.info();
        if info.fallback.is_none() && !info.is_upgraded {
            let breaker = lock(&self.breaker);
            info.fallback = breaker.broken().map(|(reason, _)| reason.to_owned());
        }
        Some(info)
    }

    /// What has become of the better path.
    pub(super) fn path(&self) -> PathInfo {
        let breaker = lock(&self.breaker);
        let broken = breaker.broken();
        PathInfo {
            broken: broken.map(|(reason, _)| reason.to_owned()),
            next_attempt: broken.map(|(_, due)| due.saturating_duration_since(now())),
            deaths: breaker.deaths(),
            returns: breaker.returns(),
        }
    }

    /// Lets go of a connection when it ends, and not when the next call finds it so, which may
    /// never come: what it holds may be a device that somebody wants to take away.
    fn bury_when_ended(self: &Arc<Self>, connection: &Arc<dyn Connection>) {
        let ended = connection.ended();
        let (this, connection) = (Arc::downgrade(self), Arc::downgrade(connection));
        tokio::spawn(async move {
            ended.cancelled().await;
            let (Some(this), Some(connection)) = (this.upgrade(), connection.upgrade()) else {
                return;
            };
            let is_present =
                lock(&this.connection).as_ref().is_some_and(|it| Arc::ptr_eq(it, &connection));
            if is_present {
                this.bury();
            }
        });
    }

    /// Lets go of a connection that takes no calls any more, and learns what it died of.
    fn bury(&self) {
        let ended = lock(&self.connection).take_if(|connection| !connection.is_open());
        let Some(ended) = ended else { return };
        let info = ended.info();
        let reason = ended.closed().filter(|reason| info.is_upgraded && reason.is_failure());
        let Some(reason) = reason else { return };
        let reason = format!("{}: the path died: {reason}", info.transport);
        lock(&self.breaker).handle_death(now(), reason.clone());
        let next_attempt = self.path().next_attempt;
        tracing::warn!(addresses = %info.addresses, %reason, ?next_attempt, "a path died");
    }

    /// Which path the next connection is to take.
    fn wanted(&self) -> Result<Wanted, ConnectError> {
        let breaker = lock(&self.breaker);
        let Some((reason, due)) = breaker.broken() else { return Ok(Wanted::Best) };
        match &self.connector.config().policy {
            UpgradePolicy::Prefer(_) => Ok(Wanted::Bootstrap),
            UpgradePolicy::Require(_) | UpgradePolicy::Never => {
                let wait = due.saturating_duration_since(now());
                if wait.is_zero() {
                    return Ok(Wanted::Best);
                }
                let reason = reason.to_owned();
                Err(ConnectError::Waiting { reason, wait_ms: wait.as_millis() })
            }
        }
    }

    /// Tells the breaker what became of an attempt.
    fn learn(&self, wanted: Wanted, connected: &Result<Arc<dyn Connection>, ConnectError>) {
        let failure = match connected {
            Ok(connection) => {
                let info = connection.info();
                if info.is_upgraded {
                    return self.learn_upgraded(&info);
                }
                info.fallback
            }
            Err(ConnectError::UpgradeRequired { reason, .. }) => Some(reason.clone()),
            // Nobody answers: that says nothing of the path, unless the attempt was for it.
            Err(error) => (wanted == Wanted::Upgraded).then(|| error.to_string()),
        };
        if let Some(reason) = failure {
            tracing::debug!(%reason, "the better path could not be had");
            lock(&self.breaker).handle_failed(now(), reason);
        }
    }

    fn learn_upgraded(&self, info: &ConnectionInfo) {
        if lock(&self.breaker).handle_upgraded(now()) {
            let (transport, addresses) = (info.transport, &info.addresses);
            tracing::info!(transport, %addresses, "a path that had died is back");
        }
    }
}

/// What the task that wins the path back asks of the channel.
impl Present {
    /// Starts the task, unless it runs or there is nothing to be won.
    fn try_to_win_back(self: &Arc<Self>) {
        let is_second_best = matches!(self.connector.config().policy, UpgradePolicy::Prefer(_))
            && lock(&self.breaker).broken().is_some();
        let mut task = lock(&self.winning_back);
        let is_running = task.as_ref().is_some_and(|task| !task.is_finished());
        if is_second_best && !is_running {
            let attempt = WinningBack {
                connector: Arc::clone(&self.connector),
                connecting: Arc::clone(&self.connecting),
                wanting: self.wanting.subscribe(),
            };
            let winning_back = win_back(Arc::downgrade(self), attempt);
            *task = Some(AbortOnDropHandle::new(tokio::spawn(winning_back)));
        }
    }

    /// When the path is to be tried again; `None`, which ends the task, when it is whole, or when
    /// no call goes anywhere and none would gain from it.
    pub(super) fn next_attempt(&self) -> Option<std::time::Instant> {
        // Looked at under this lock, so that whoever makes a connection right now either is seen
        // here or sees that there is no task any more.
        let mut task = lock(&self.winning_back);
        let is_in_use = self.open().is_some();
        let due = lock(&self.breaker).broken().map(|(_, due)| due);
        let due = due.filter(|_| is_in_use);
        if due.is_none() {
            *task = None;
        }
        due
    }

    /// Takes the outcome of an attempt. A connection takes the place of the present one, which
    /// ends with its last call.
    pub(super) fn finish_attempt(
        self: &Arc<Self>,
        connected: Result<Arc<dyn Connection>, ConnectError>,
    ) {
        self.learn(Wanted::Upgraded, &connected);
        let Ok(connection) = connected else { return };
        self.bury_when_ended(&connection);
        let replaced = lock(&self.connection).replace(connection);
        if let Some(replaced) = replaced {
            replaced.retire();
        }
    }
}

#[cfg(test)]
#[path = "present_tests.rs"]
mod tests;
