//! The rules for the connections of one listener, and the life of each after its handshake, on one
//! timer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::connect::Upgrade;
use crate::limited_log;
use crate::limits::log::LogLimit;
use crate::long_wait::wait_until;
use crate::policy::keepalive::{Action, Keepalive, KeepaliveTimer};
use crate::policy::lifetime::{GOODBYE_TIMEOUT, Lifetime, LifetimeRules, Retiring, Stage};
use crate::policy::progress::Progress;
use crate::server::serve::shared::Shared;
use crate::server::{MethodAccess, Offers, ServerConnection, ServerHandshake};
use crate::transport::CloseReason;

/// Between two looks whether answers are on their way.
const FLUSH_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The rules for the connections of one listener.
#[derive(Debug)]
pub(in crate::server) struct Rules {
    pub(in crate::server) handshake: ServerHandshake,
    pub(in crate::server) handshake_timeout: Duration,
    pub(in crate::server) life: LifeRules,
    /// From which length on responses are compressed, by method id; empty where the handshake's
    /// compression says it for all.
    pub(in crate::server) compress_from: Arc<[u32]>,
    /// Set when the listener is shut down.
    pub(in crate::server) draining: CancellationToken,
}

impl Rules {
    pub(in crate::server) fn new(server: &Shared, offers: &Offers) -> Self {
        let settings = server.settings.borrow();
        Self {
            handshake: ServerHandshake {
                limits: settings.limits,
                compression: settings.compression,
                methods: server.router.paths(),
                method_kinds: server.router.kinds(),
                access: MethodAccess::new(&server.router),
                upgrades: upgrades(&server.upgrades, &offers.upgrades),
                protocols: offers.protocols.clone(),
            },
            handshake_timeout: settings.handshake_timeout,
            life: LifeRules {
                keepalive: settings.keepalive,
                progress_timeout: settings.progress_timeout,
                lifetime: settings.lifetime(),
                drain_timeout: settings.drain_timeout,
            },
            compress_from: settings.methods.lens(server.router.methods(), settings.compression),
            draining: CancellationToken::new(),
        }
    }
}

/// The rules for every connection of a server.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct LifeRules {
    pub(in crate::server) keepalive: Keepalive,
    pub(in crate::server) progress_timeout: Option<Duration>,
    pub(in crate::server) lifetime: LifetimeRules,
    pub(in crate::server) drain_timeout: Duration,
}

/// The machines that look after a connection.
struct Life<'a> {
    connection: &'a dyn ServerConnection,
    log: &'a LogLimit,
    keepalive_timer: Option<KeepaliveTimer>,
    progress: Option<Progress>,
    lifetime: Lifetime,
}

impl Life<'_> {
    async fn send_away(
        mut self,
        retiring: Retiring,
        drain_timeout: Duration,
        drain: &CancellationToken,
    ) {
        let connection = self.connection;
        tracing::debug!(
            target: "farcall::server",
            addresses = %connection.info().addresses, ?retiring, "asks a client to leave"
        );
        // Calls that cross this come back marked as not executed, and the client makes them
        // elsewhere.
        connection.go_away();
        tokio::select! {
            // Its client is gone, or has closed: there is nothing to drain.
            () = connection.closed() => return,
            () = dismissed(connection, drain_timeout) => {}
            () = self.until_over(drain_timeout, drain) => {
                let setting = retiring.setting();
                let addresses = connection.info().addresses;
                limited_log!(
                    target: "farcall::server",
                    self.log, WARN, "closed: the client did not leave in time", %addresses, setting
                );
            }
        }
        // Closing flushes the last answers; the link says when it is done.
        connection.close();
        connection.closed().await;
    }

    async fn until_retired(&mut self) -> Retiring {
        loop {
            if let Stage::Retire(retiring) = self.look().await {
                return retiring;
            }
        }
    }

    /// Waits until the time for leaving is over, which a server that shuts down may shorten.
    async fn until_over(&mut self, drain_timeout: Duration, drain: &CancellationToken) {
        // A connection may be sent away for its age before the server shuts down, whose time is
        // another.
        let mut is_shutting_down = drain.is_cancelled();
        loop {
            tokio::select! {
                stage = self.look() => if stage == Stage::Over {
                    return;
                },
                // A cancelled token stays ready: without the flag this loop would spin. Dropping
                // `look` loses nothing, since it changes no state before its timer has fired.
                () = drain.cancelled(), if !is_shutting_down => {
                    is_shutting_down = true;
                    self.lifetime.retire(Instant::now().into_std(), Some(drain_timeout));
                }
            }
        }
    }

    /// Waits for what is due next, and looks.
    async fn look(&mut self) -> Stage {
        let due = [
            self.keepalive_timer.as_ref().map(KeepaliveTimer::due),
            self.progress.as_ref().map(Progress::due),
            self.lifetime.due(),
        ];
        match due.into_iter().flatten().min() {
            // One timer for all three: an idle connection keeps one at most.
            Some(due) => wait_until(due).await,
            None => std::future::pending().await,
        }
        let now = Instant::now().into_std();
        if let Some(keepalive_timer) = &mut self.keepalive_timer {
            match keepalive_timer.handle_tick(now, self.connection.traffic()) {
                Action::Wait => {}
                Action::Ping => self.connection.ping(keepalive_timer.ping_count()),
                // The unread bytes may hold the pong: this side is slow, the peer is not silent.
                Action::Close if self.connection.has_unread() => keepalive_timer.handle_unread(now),
                Action::Close => {
                    let timeout = keepalive_timer.timeout();
                    self.connection.abort(CloseReason::Silent { timeout });
                    // The task that waits for the end of the connection goes on.
                    std::future::pending::<()>().await;
                }
            }
        }
        if let Some(progress) = &mut self.progress
            && let Some(stalled) = progress.handle_tick(now, self.connection.flows())
        {
            let timeout = progress.timeout();
            self.connection
                .abort(CloseReason::Stalled { takes_nothing: stalled.takes_nothing(), timeout });
            // The tasks that wait for the end of the connection go on.
            std::future::pending::<()>().await;
        }
        self.lifetime.handle_tick(now, self.connection.calls())
    }
}

/// Returns the upgrades of the server, and those of the listener that have other names.
fn upgrades(server: &[Arc<dyn Upgrade>], listener: &[Arc<dyn Upgrade>]) -> Vec<Arc<dyn Upgrade>> {
    // Of one name, the server's own: a client names an upgrade, and means one.
    let is_other = |it: &&Arc<dyn Upgrade>| server.iter().all(|own| own.name() != it.name());
    server.iter().chain(listener.iter().filter(is_other)).cloned().collect()
}

/// Serves a connection until it has ended: by itself, or because it has to.
pub(in crate::server) async fn live(
    connection: &dyn ServerConnection,
    rules: &LifeRules,
    log: &LogLimit,
    drain: &CancellationToken,
) {
    let now = Instant::now().into_std();
    let mut life = Life {
        connection,
        log,
        keepalive_timer: KeepaliveTimer::new(rules.keepalive, now),
        progress: rules.progress_timeout.map(|timeout| Progress::new(timeout, now)),
        lifetime: Lifetime::new(rules.lifetime, now, fastrand::f64()),
    };
    let retiring = tokio::select! {
        () = connection.closed() => return,
        () = drain.cancelled() => {
            life.lifetime.retire(Instant::now().into_std(), Some(rules.drain_timeout));
            Retiring::Shutdown
        }
        retiring = life.until_retired() => retiring,
    };
    // In memory of its own, which an idle connection need not hold.
    Box::pin(life.send_away(retiring, rules.drain_timeout, drain)).await;
}

/// Waits until the calls are over, and the client has had time to see that it is to go: requests
/// that it sent before are still refused in words.
async fn dismissed(connection: &dyn ServerConnection, flush_timeout: Duration) {
    answered(connection, flush_timeout).await;
    // Left to the client for a while: it closes once it has its answers.
    let _ = timeout(GOODBYE_TIMEOUT, connection.closed()).await;
    // A call that was refused meanwhile has its answer.
    connection.drained().await;
}

/// Waits until no call is in flight, and the answers are on their way: a large one takes its time
/// on a long way. Nothing announces that, and it is asked while a connection ends, and then only.
async fn answered(connection: &dyn ServerConnection, flush_timeout: Duration) {
    connection.drained().await;
    let flushed = async {
        while !connection.is_flushed() {
            tokio::time::sleep(FLUSH_LOOK_INTERVAL).await;
        }
    };
    // A client that reads nothing more gets nothing more.
    let _ = timeout(flush_timeout, flushed).await;
}

#[cfg(test)]
#[path = "life_tests.rs"]
mod tests;
