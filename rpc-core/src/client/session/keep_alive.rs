//! A client connection's timer: keepalive and progress.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::Instant;

use crate::policy::keepalive::{Action, Keepalive, KeepaliveTimer};
use crate::policy::progress::Progress;
use crate::runtime::long_wait::wait_until;
use crate::stream::SessionIo;
use crate::transport::CloseReason;

/// What is looked after.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct WatchRules {
    pub(in crate::client) keepalive: Keepalive,
    pub(in crate::client) progress_timeout: Option<Duration>,
}

impl WatchRules {
    /// Whether there is anything to look after.
    pub(in crate::client) fn watch_anything(&self) -> bool {
        self.keepalive.interval.is_some() || self.progress_timeout.is_some()
    }
}

/// Watches the transport of a session until the session is gone. Ends it when the server is silent
/// or has stopped taking what waits for it.
pub(super) async fn keep_alive(session: Weak<dyn SessionIo>, rules: WatchRules) {
    let now = Instant::now().into_std();
    let mut timer = KeepaliveTimer::new(rules.keepalive, now);
    let mut progress = rules.progress_timeout.map(|timeout| Progress::new(timeout, now));
    loop {
        let due = [timer.as_ref().map(KeepaliveTimer::due), progress.as_ref().map(Progress::due)];
        let Some(due) = due.into_iter().flatten().min() else { return };
        wait_until(due).await;
        let Some(session) = session.upgrade() else { return };
        let (core, now) = (session.core(), Instant::now().into_std());
        if let Some(timer) = &mut timer {
            match timer.handle_tick(now, core.traffic()) {
                Action::Wait => {}
                Action::Ping => core.ping(timer.ping_count()),
                Action::Close if core.transport.has_unread() => timer.handle_unread(now),
                Action::Close => {
                    let timeout = timer.timeout();
                    return core.transport.abort(CloseReason::Silent { timeout });
                }
            }
        }
        if let Some(progress) = &mut progress
            && let Some(stalled) = progress.handle_tick(now, core.transport.flows())
        {
            let timeout = progress.timeout();
            return core.transport.abort(CloseReason::Stalled { stalled, timeout });
        }
    }
}
