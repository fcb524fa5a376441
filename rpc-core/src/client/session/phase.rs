//! The life of a client's session, from its start to the end of its connection.
//!
//! ```text
//!   Open ──GOAWAY, or replaced──> Draining ──send failed──> Cut ──closed──> Closed
//!     │                               │                      ^                ^
//!     ├──────────────send failed──────┼──────────────────────┘                │
//!     └───────────────────────────────┴─────────────closed────────────────────┘
//! ```
//!
//! New calls are started in `Open` alone. Calls in flight go on while the session drains.
//!
//! A connection's one timer watches it by keepalive and progress.

use std::sync::Weak;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use crate::call::refusal;
use crate::long_wait::wait_until;
use crate::policy::keepalive::{Action, Keepalive, KeepaliveTimer};
use crate::policy::progress::Progress;
use crate::stream::SessionIo;
use crate::transport::CloseReason;

/// Why a session starts no more calls although its connection lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Draining {
    /// The server sent GOAWAY.
    SentAway,
    /// Another connection of the channel has replaced this one.
    Replaced,
}

/// The phase of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client) enum Phase {
    Open,
    Draining(Draining),
    /// The transport takes no more frames; its handler has not been told yet.
    Cut {
        reason: CloseReason,
        draining: Option<Draining>,
    },
    Closed {
        reason: CloseReason,
    },
}

impl Phase {
    /// Starts to drain. GOAWAY outranks a replacement, since its status names the server's reason.
    pub(in crate::client) fn drain(&mut self, why: Draining) {
        let draining = match self {
            Self::Open => return *self = Self::Draining(why),
            Self::Draining(before) => before,
            Self::Cut { draining, .. } => draining.get_or_insert(why),
            Self::Closed { .. } => return,
        };
        // The server's word counts more than a replacement by this side.
        if why == Draining::SentAway {
            *draining = why;
        }
    }

    /// Records that the transport refused a frame because it is closed.
    pub(in crate::client) fn cut(&mut self, reason: &CloseReason) {
        let draining = match self {
            Self::Open => None,
            Self::Draining(why) => Some(*why),
            // The first reason stays: later ones follow from it.
            Self::Cut { .. } | Self::Closed { .. } => return,
        };
        *self = Self::Cut { reason: reason.clone(), draining };
    }

    /// Records the end of the connection; true when the server had sent GOAWAY before.
    pub(in crate::client) fn close(&mut self, reason: CloseReason) -> bool {
        // Read before the phase is replaced, which forgets it.
        let was_sent_away = self.draining() == Some(Draining::SentAway);
        *self = Self::Closed { reason };
        was_sent_away
    }

    /// Returns true if new calls are started.
    pub(in crate::client) fn is_open(&self) -> bool {
        *self == Self::Open
    }

    /// Why the session drains, while its connection has not ended.
    pub(in crate::client) fn draining(&self) -> Option<Draining> {
        match self {
            Self::Open | Self::Closed { .. } => None,
            Self::Draining(why) => Some(*why),
            Self::Cut { draining, .. } => *draining,
        }
    }

    /// Why the connection has ended, or is about to.
    pub(in crate::client) fn closed(&self) -> Option<&CloseReason> {
        match self {
            Self::Open | Self::Draining(_) => None,
            Self::Cut { reason, .. } | Self::Closed { reason } => Some(reason),
        }
    }

    /// The status of a new call on this connection to `server`; `None` when the call is started.
    pub(in crate::client) fn refusal(&self, server: &str) -> Option<Status> {
        match (self.draining(), self.closed()) {
            (Some(Draining::SentAway), _) => Some(refusal::going_away()),
            (Some(Draining::Replaced), _) => Some(refusal::retired()),
            (None, Some(reason)) => Some(refusal::lost(server, reason)),
            (None, None) => None,
        }
    }
}

/// The rules of the connection's watch.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct WatchRules {
    pub(in crate::client) keepalive: Keepalive,
    pub(in crate::client) progress_timeout: Option<Duration>,
}

impl WatchRules {
    /// Returns true if there is anything to watch.
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
        // Upgraded for one tick alone: a task that held it would keep the connection.
        let Some(session) = session.upgrade() else { return };
        let (core, now) = (session.core(), Instant::now().into_std());
        if let Some(timer) = &mut timer {
            match timer.handle_tick(now, core.traffic()) {
                Action::Wait => {}
                Action::Ping => core.ping(timer.ping_count()),
                // The pong may be in what this side has not read yet: a driver that is held up is
                // no silent peer.
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
            return core
                .transport
                .abort(CloseReason::Stalled { takes_nothing: stalled.takes_nothing(), timeout });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: CloseReason = CloseReason::Peer;

    type Step = fn(&mut Phase);

    /// Every step, by its name.
    const STEPS: [(&str, Step); 4] = [
        ("sent away", |phase| phase.drain(Draining::SentAway)),
        ("replaced", |phase| phase.drain(Draining::Replaced)),
        ("cut", |phase| phase.cut(&LOST)),
        ("closed", |phase| _ = phase.close(LOST)),
    ];

    fn draining(why: Draining) -> Phase {
        Phase::Draining(why)
    }

    fn cut(draining: Option<Draining>) -> Phase {
        Phase::Cut { reason: LOST, draining }
    }

    #[test]
    fn each_step_leads_from_each_phase_to_one_other() {
        use Draining::{Replaced, SentAway};
        let closed = || Phase::Closed { reason: LOST };
        let sent_away = || draining(SentAway);
        let table = [
            (Phase::Open, [sent_away(), draining(Replaced), cut(None), closed()]),
            (sent_away(), [sent_away(), sent_away(), cut(Some(SentAway)), closed()]),
            (draining(Replaced), [sent_away(), draining(Replaced), cut(Some(Replaced)), closed()]),
            (cut(None), [cut(Some(SentAway)), cut(Some(Replaced)), cut(None), closed()]),
            (closed(), [closed(), closed(), closed(), closed()]),
        ];
        for (before, afters) in table {
            for ((name, step), after) in STEPS.into_iter().zip(afters) {
                let mut phase = before.clone();
                step(&mut phase);
                assert_eq!(phase, after, "{before:?}: {name}");
            }
        }
    }

    #[test]
    fn the_first_reason_for_a_cut_stays() {
        let mut phase = Phase::Open;
        phase.cut(&LOST);
        phase.cut(&CloseReason::Local);
        assert_eq!(phase.closed(), Some(&LOST));
    }

    #[test]
    fn only_an_open_session_starts_calls_and_a_status_says_why_not() {
        let message = |phase: &Phase| phase.refusal("there").map(|it| it.message().to_owned());
        assert_eq!(message(&Phase::Open), None);
        let mut phase = Phase::Open;
        for (_, step) in STEPS {
            step(&mut phase);
            assert!(!phase.is_open() && message(&phase).is_some(), "{phase:?}");
        }
        let away = message(&draining(Draining::SentAway));
        assert_eq!(message(&cut(Some(Draining::SentAway))), away);
        assert_ne!(message(&draining(Draining::Replaced)), away);
        assert!(message(&Phase::Closed { reason: LOST }).unwrap().contains("there"));
    }

    #[test]
    fn a_close_tells_whether_the_server_had_announced_it() {
        for (before, was_sent_away) in [
            (Phase::Open, false),
            (draining(Draining::Replaced), false),
            (draining(Draining::SentAway), true),
            (cut(Some(Draining::SentAway)), true),
            (cut(None), false),
        ] {
            assert_eq!(before.clone().close(LOST), was_sent_away, "{before:?}");
        }
    }
}
