//! The manager's driver: it makes connections, watches the current one, and answers callers. It
//! outlives the task that it runs in.

use std::fmt;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::snapshot::{Answer, Requests, Snapshot, waiting};
use crate::client::{Connect, Established};
use crate::connect::{ConnectError, ConnectFault, ConnectionInfo};
use crate::deadline::rounded;
use crate::limits::log::LogLimit;
use crate::long_wait::wait_until;
use crate::metrics::connection_opened;
use crate::policy::breaker::{Denial, PathGain};
use crate::policy::failover::{Ask, Cause, Failure, Loss, Made, Wanted};
use crate::transport::{Addresses, CloseReason};
use crate::{Reason, limited_log};

type Connected = Result<Established, ConnectError>;

/// The manager of one channel's connection. Dropped, which happens when the channel has gone, it
/// closes the connection.
pub(super) struct Driver {
    connector: Arc<dyn Connect>,
    /// The state. There is one writer of it, this one.
    snapshot: watch::Sender<Snapshot>,
    /// The number of the last request for a connection. It closes with the channel.
    requests: watch::Receiver<Requests>,
    /// The attempt under way. Dropped, it is torn down.
    attempt: Option<Attempt>,
    /// Limit on the lines that the server can cause in the log: each of its connections is a reason
    /// for one.
    log: LogLimit,
}

struct Attempt {
    wanted: Wanted,
    outcome: BoxFuture<'static, Connected>,
}

/// The last handle to the channel was dropped.
#[derive(Debug)]
pub(super) struct ChannelGone;

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(connection) = self.connection() {
            // Without a channel there are no calls left to wait for.
            connection.close();
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = self.attempt.as_ref().map(|attempt| &attempt.wanted);
        f.debug_struct("Driver").field("attempt", &wanted).finish_non_exhaustive()
    }
}

impl Driver {
    pub(super) fn new(
        connector: Arc<dyn Connect>,
        snapshot: watch::Sender<Snapshot>,
        requests: watch::Receiver<Requests>,
        log: LogLimit,
    ) -> Self {
        Self { connector, snapshot, requests, attempt: None, log }
    }

    /// Waits for the next thing to happen, and acts on it.
    ///
    /// # Errors
    ///
    /// Returns `ChannelGone` if no handle to the channel is left.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: an attempt under way stays under way.
    pub(super) async fn step(&mut self) -> Result<(), ChannelGone> {
        let ended = self.connection().map(|connection| connection.ended());
        let failback_due = self.failback_due();
        tokio::select! {
            // Callers go first: one that finds no connection cancels failback.
            biased;
            changed = self.requests.changed() => changed.map_err(|_| ChannelGone)?,
            // What the end means is decided in `reap_closed`, which finds a connection that was
            // sent away, too.
            () = set(ended) => {}
            connected = outcome(&mut self.attempt) => self.finish(connected),
            () = until(failback_due) => self.fail_back(),
        }
        // Before the answers: callers must not be given a connection that has ended.
        self.reap_closed();
        self.answer_callers();
        Ok(())
    }

    /// Makes the first connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down with the driver.
    pub(super) async fn connect(&mut self) -> Result<(), ConnectError> {
        match self.change(|state| state.failover.ask(now())) {
            Ask::Begin(wanted) => self.start(wanted),
            Ask::Take => return Ok(()),
            Ask::Wait => {}
            Ask::Fail(refusal) => return Err(waiting(refusal)),
        }
        let connected = outcome(&mut self.attempt).await;
        let wanted = self.end_attempt();
        match connected {
            Ok(connection) => self.handle_made(&wanted, connection),
            Err(error) => {
                // The caller gets the error, and with it this channel ends.
                self.handle_failed(&wanted, &error, error.to_string().into());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns true if only callers can start something.
    pub(super) fn is_idle(&self) -> bool {
        self.snapshot.borrow().failover.is_idle()
    }

    /// Returns true if a caller waits for an answer.
    pub(super) fn is_asked(&self) -> bool {
        self.requests.borrow().count > self.snapshot.borrow().answer.up_to
    }

    /// Gives up what the task of this driver was doing, because its runtime has ended. Callers
    /// that wait are told, and ask again.
    pub(super) fn abandon(&mut self) {
        self.attempt = None;
        self.change(|state| state.failover.handle_given_up());
        // Each of those that wait then has the attempt made on its own runtime.
        self.answer(Err(Arc::new(ConnectError::from(ConnectFault::RuntimeEnded))));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        let mut changed = None;
        self.snapshot.send_modify(|state| changed = Some(change(state)));
        // `send_modify` calls what it is given, once.
        changed.expect("the state was changed")
    }

    fn connection(&self) -> Option<Established> {
        self.snapshot.borrow().failover.connection().cloned()
    }

    /// Returns the time at which failback is due. `None` while no call would use it.
    fn failback_due(&self) -> Option<std::time::Instant> {
        let state = self.snapshot.borrow();
        let is_open = state.failover.connection().is_some_and(|connection| connection.is_open());
        state.failover.failback_due().filter(|_| is_open)
    }

    fn fail_back(&mut self) {
        // The connection may have ended since the time was looked up: then no call would use it.
        if self.failback_due().is_some() && self.change(|it| it.failover.begin_failback(now())) {
            self.start(Wanted::Upgraded);
        }
    }

    fn start(&mut self, wanted: Wanted) {
        let connector = Arc::clone(&self.connector);
        let attempted = wanted.clone();
        // A connector is the program's code: a panic of it fails one attempt, and not the channel.
        let outcome = AssertUnwindSafe(async move { connector.connect(attempted).await });
        let outcome = outcome
            .catch_unwind()
            .map(|it| it.unwrap_or(Err(ConnectError::from(ConnectFault::Panicked))));
        self.attempt = Some(Attempt { wanted, outcome: outcome.boxed() });
    }

    /// Takes what became of the attempt, which is the answer to the callers that have waited.
    fn finish(&mut self, connected: Connected) {
        // Callers do not wait for failback: they have a connection meanwhile.
        let is_for_callers = self.attempt.as_ref().is_some_and(|it| it.wanted != Wanted::Upgraded);
        let outcome = self.record(connected);
        if is_for_callers {
            self.answer(outcome);
        }
    }

    /// Records what became of the attempt.
    fn record(&mut self, connected: Connected) -> Result<(), Arc<ConnectError>> {
        let wanted = self.end_attempt();
        match connected {
            Ok(connection) => {
                self.handle_made(&wanted, connection);
                Ok(())
            }
            Err(error) => {
                let error = Arc::new(error);
                let reason = Reason::shared(error.to_string(), Arc::clone(&error));
                self.handle_failed(&wanted, &error, reason);
                Err(error)
            }
        }
    }

    /// Ends the attempt under way, and returns what it was for.
    fn end_attempt(&mut self) -> Wanted {
        self.attempt.take().map_or(Wanted::Best, |attempt| attempt.wanted)
    }

    fn handle_made(&self, wanted: &Wanted, connection: Established) {
        let info = connection.info();
        connection_opened("client", &info);
        let can_pass = info.fallback_can_pass;
        let ConnectionInfo { transport, addresses, fallback, is_upgraded, .. } = info;
        // That the path is broken is known already.
        let fallback = fallback.filter(|_| !matches!(wanted, Wanted::Bootstrap(_)));
        if let Some(reason) = &fallback {
            tracing::debug!(target: "farcall::path", %reason, "RDMA is unavailable");
            let is_fault = !connection.info().is_without_device;
            log_without_path(&self.log, transport, &addresses, reason, is_fault);
        }
        let fallback = fallback.map(|reason| Denial { reason: reason.into(), can_pass });
        let made = Made { is_upgraded, fallback };
        if let (Some(names), Established::Session(session)) =
            (&self.connector.config().names, &connection)
        {
            // With each connection: the next server may be of another version.
            names.check(&session.method_table());
        }
        let handover = self.change(|state| {
            state.made_count += 1;
            state.transport = Some(transport);
            state.failover.handle_made(connection, made, now())
        });
        match handover.gain {
            PathGain::None => {}
            PathGain::First => limited_log!(
                target: "farcall::path",
                self.log, INFO, "calls moved from TCP to RDMA", transport, %addresses
            ),
            PathGain::Back => limited_log!(
                target: "farcall::path",
                self.log, INFO, "calls are back on RDMA", transport, %addresses
            ),
        }
        // After the new one is known: a call that is refused here finds that.
        if let Some(replaced) = handover.replaced {
            replaced.retire();
        }
    }

    fn handle_failed(&self, wanted: &Wanted, error: &ConnectError, reason: Reason) {
        let path_verdict = match error.fault() {
            ConnectFault::UpgradeRequired { reason, can_pass, .. } => {
                Some(Denial { reason: reason.clone(), can_pass: *can_pass })
            }
            _ => None,
        };
        let failure = Failure { reason, path_verdict };
        if let Some(Denial { reason, .. }) = failure.verdict(wanted) {
            tracing::debug!(target: "farcall::path", %reason, "RDMA is unavailable");
        }
        if self.change(|state| state.failover.handle_failed(failure, now())) {
            tracing::debug!(target: "farcall::path", %error, "cannot connect");
        }
    }

    /// Drops a connection that takes no calls any more. Waiting for the next call could pin an RDMA
    /// device indefinitely.
    fn reap_closed(&self) {
        let is_closed = |it: &Established| !it.is_open() || it.ended().is_cancelled();
        // A connection that takes no more calls is replaced before its last call has ended.
        let closed = self.connection().filter(is_closed);
        let Some(connection) = closed else { return };
        let info = connection.info();
        let cause = match connection.closed() {
            Some(reason) if reason.is_failure() => {
                Cause::Link(Reason::new(reason.to_string(), reason))
            }
            // This side closes after it was sent away.
            None | Some(CloseReason::Local) => Cause::SentAway,
            Some(CloseReason::RuntimeEnded) => Cause::RuntimeEnded,
            Some(reason) => Cause::Peer(Reason::new(reason.to_string(), reason)),
        };
        let loss = Loss {
            transport: info.transport,
            is_upgraded: info.is_upgraded,
            addresses: info.addresses.to_string(),
            answered_count: connection.answered_count(),
            cause,
        };
        let lost = self.change(|state| state.failover.handle_lost(loss, now()));
        if let Some(reason) = lost.and_then(|lost| lost.path_failure) {
            let (addresses, next_attempt) = (info.addresses, self.next_path_attempt());
            limited_log!(
                target: "farcall::path",
                self.log, WARN, "RDMA failed", %addresses, %reason,
                next_attempt = next_attempt.map(|it| tracing::field::debug(rounded(it)))
            );
        }
    }

    /// Returns the time until the next attempt over the broken path.
    fn next_path_attempt(&self) -> Option<Duration> {
        let due = self.snapshot.borrow().failover.breaker().broken().map(|(_, due)| due)?;
        Some(due.saturating_duration_since(now()))
    }

    /// Answers callers that have asked, or begins the attempt that they wait for.
    fn answer_callers(&mut self) {
        let resets = self.requests.borrow().resets;
        // Before the machine is asked: it would refuse by the delay that is to be forgotten.
        if self.snapshot.borrow().resets != resets {
            self.change(|state| {
                state.resets = resets;
                state.failover.reset_backoff();
            });
        }
        if !self.is_asked() {
            return;
        }
        match self.change(|state| state.failover.ask(now())) {
            Ask::Take => self.answer(Ok(())),
            Ask::Wait => {}
            // In place of failback, where that is under way.
            Ask::Begin(wanted) => self.start(wanted),
            Ask::Fail(refusal) => self.answer(Err(Arc::new(waiting(refusal)))),
        }
    }

    /// Answers all that have asked so far.
    fn answer(&self, outcome: Result<(), Arc<ConnectError>>) {
        // All that have asked by now, those included that came during the attempt.
        let up_to = self.requests.borrow().count;
        self.change(|state| state.answer = Answer { up_to, outcome });
    }
}

/// The place of a channel's driver while no task runs it.
#[derive(Debug, Default)]
pub(super) struct Parked(Mutex<Option<Driver>>);

impl Parked {
    pub(super) fn new(driver: Driver) -> Self {
        Self(Mutex::new(Some(driver)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Driver>> {
        self.0.lock()
    }

    pub(super) fn take(&self) -> Option<Driver> {
        self.lock().take()
    }

    #[cfg(test)]
    pub(super) fn has_driver(&self) -> bool {
        self.lock().is_some()
    }
}

/// A driver in its task. Whatever ends the task, the driver is parked again, as long as there is a
/// channel.
pub(super) struct ManagerTask {
    driver: Option<Driver>,
    parked: Weak<Parked>,
}

impl ManagerTask {
    pub(super) fn new(driver: Driver, parked: &Arc<Parked>) -> Self {
        Self { driver: Some(driver), parked: Arc::downgrade(parked) }
    }

    /// Makes the first connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down with the task.
    pub(super) async fn connect(&mut self) -> Result<(), ConnectError> {
        match &mut self.driver {
            Some(driver) => driver.connect().await,
            None => Err(ConnectError::from(ConnectFault::RuntimeEnded)),
        }
    }

    /// Runs until there is nothing to wait for, or no channel.
    pub(super) async fn run(mut self) {
        while let Some(driver) = &mut self.driver {
            if driver.step().await.is_err() {
                return;
            }
            if driver.is_idle() {
                self.park();
            }
        }
    }

    /// Parks the driver, unless a caller has asked it meanwhile.
    fn park(&mut self) {
        let Some(parked) = self.parked.upgrade() else { return };
        let mut place = parked.lock();
        // Under this lock: a caller counts its request before it looks whether the driver is
        // parked. So either the request is seen here, or that caller finds the driver.
        if self.driver.as_ref().is_some_and(|driver| !driver.is_asked()) {
            *place = self.driver.take();
        }
    }
}

/// Reached with a driver when the runtime ends before the task does, or refuses to start it.
impl Drop for ManagerTask {
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else { return };
        let Some(parked) = self.parked.upgrade() else { return };
        let mut place = parked.lock();
        // Under this lock: a caller that sees the result asks again, and must find the driver.
        driver.abandon();
        *place = Some(driver);
    }
}

pub(super) fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Waits until the token is set; without one, for ever.
async fn set(token: Option<CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => pending().await,
    }
}

/// Waits for the outcome of the attempt; without one, for ever.
async fn outcome(attempt: &mut Option<Attempt>) -> Connected {
    match attempt {
        Some(attempt) => attempt.outcome.as_mut().await,
        None => pending().await,
    }
}

/// Waits until `due`; without that, for ever.
async fn until(due: Option<std::time::Instant>) {
    match due {
        Some(due) => wait_until(due).await,
        None => pending().await,
    }
}

/// Logs that a channel's connection has no upgraded path. Where there is no device at all, that is
/// no fault, and said once a process.
fn log_without_path(
    log: &LogLimit,
    transport: &str,
    addresses: &Addresses,
    reason: &str,
    is_fault: bool,
) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if is_fault {
        limited_log!(
            target: "farcall::path",
            log, WARN, "connected over TCP, without RDMA", transport, %addresses, %reason
        );
    } else if !IS_TOLD.swap(true, Ordering::Relaxed) {
        limited_log!(
            target: "farcall::path",
            log, INFO, "connected over TCP, without RDMA", transport, %addresses, %reason
        );
    }
}
