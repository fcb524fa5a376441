//! Failover and failback of a channel: which connection it has, and which it makes next.
//!
//! ```text
//!                  a caller asks               made
//!  Disconnected ─────────────────> Connecting ──────> Connected <──────────────────┐
//!    ^  ^  ^                           │               │     │                      │
//!    │  │  └──────────failed───────────┘               │     └──failback is due──┐  │ made, or
//!    │  └─────────────────────ended────────────────────┘                         v  │ failed
//!    └──────────failed, and its connection had ended────────────────────── FailingBack
//! ```
//!
//! A session never changes its path: when the upgraded path fails, its connection ends, and the
//! next one takes the path below. Failback makes a connection over the upgraded path beside the one
//! in use, which it replaces once the path is proven. A caller that needs a connection goes before
//! failback: asking in `FailingBack` after the connection has ended leads to `Connecting`.
//!
//! `reconnect` says how soon a server is tried again, and `breaker` how soon the upgraded path is.
//! What a connection is, who waits for it and how it is made are up to the caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backoff::{Lifespan, Reconnect};
use super::breaker::{Breaker, Denial, PathGain};
use crate::Reason;

/// The path that a connection must take, of those in its `UpgradePolicy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The best that can be had.
    Best,
    /// The bootstrap, because a better one has failed, for this reason; where a better one is
    /// required, that.
    Bootstrap(Arc<str>),
    /// A better one, or no connection.
    Upgraded,
}

/// The behavior of calls while the upgraded path is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhileBroken {
    /// They take the path below, and the channel fails back when it can.
    UseBootstrap,
    /// They fail until an attempt at the path is due.
    Wait,
}

/// The state of one channel's connection. `C` is a handle to a connection.
#[derive(Debug)]
pub struct Failover<C> {
    while_broken: WhileBroken,
    stage: Stage<C>,
    breaker: Breaker,
    reconnect: Reconnect,
}

#[derive(Debug)]
enum Stage<C> {
    /// There is no connection, and none is being made.
    Disconnected,
    /// Callers wait for an attempt.
    Connecting(Attempt),
    /// There is a connection.
    Connected(Current<C>),
    /// An attempt at the upgraded path is under way. `current` may have ended since it began, and
    /// no caller has needed another.
    FailingBack { attempt: Attempt, current: Option<Current<C>> },
}

#[derive(Debug)]
struct Attempt {
    wanted: Wanted,
    began_at: Instant,
}

#[derive(Debug)]
struct Current<C> {
    connection: C,
    attempted_at: Instant,
    connected_at: Instant,
}

/// The next step of a caller that needs a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Take the connection that there is.
    Take,
    /// Wait for the attempt that has just begun, and which is to be made.
    Begin(Wanted),
    /// Wait for the attempt that is under way.
    Wait,
    /// Fail.
    Fail(Refusal),
}

/// Why no attempt to connect is made yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why the last one failed.
    pub reason: Reason,
    /// Time until the next one may begin.
    pub wait: Duration,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// True if the connection takes the upgraded path.
    pub is_upgraded: bool,
    /// Why it does not, where it was to.
    pub fallback: Option<Denial>,
}

/// The changes by a new connection.
#[derive(Debug, PartialEq, Eq)]
pub struct Handover<C> {
    /// The connection that the new one replaces; it ends with its last call.
    pub replaced: Option<C>,
    /// The change of the upgraded path.
    pub gain: PathGain,
}

/// Why an attempt made no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The whole reason.
    pub reason: Reason,
    /// Verdict on the upgraded path, if the path failed and not the server.
    pub path_verdict: Option<Denial>,
}

impl Failure {
    /// Returns the verdict of an attempt that `wanted` a path on the upgraded one. A server that
    /// does not answer gives none, unless the attempt was for that path.
    #[must_use]
    pub fn verdict(&self, wanted: &Wanted) -> Option<Denial> {
        let by_server = || Denial { reason: self.reason.clone(), can_pass: true };
        self.path_verdict.clone().or_else(|| (*wanted == Wanted::Upgraded).then(by_server))
    }
}

/// The end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Its transport.
    pub transport: &'static str,
    /// True if it took the upgraded path.
    pub is_upgraded: bool,
    /// Its two ends, in words.
    pub addresses: String,
    /// The calls that were answered over it.
    pub answered_count: u64,
    /// Cause of the end.
    pub cause: Cause,
}

/// The cause of a connection's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The link failed under its two ends.
    Link(Reason),
    /// The peer closed it, or broke the protocol.
    Peer(Reason),
    /// This side closed it, in the end because the server had sent it away.
    SentAway,
    /// The runtime that served it ended, which says nothing of server or path.
    RuntimeEnded,
}

/// A connection that has ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost<C> {
    /// Its handle.
    pub connection: C,
    /// Why the upgraded path counts as broken from now on, where it does.
    pub path_failure: Option<Reason>,
}

impl<C> Failover<C> {
    /// The state of a channel that has not connected yet.
    #[must_use]
    pub fn new(while_broken: WhileBroken, breaker: Breaker, reconnect: Reconnect) -> Self {
        Self { while_broken, stage: Stage::Disconnected, breaker, reconnect }
    }

    /// The current connection. It may have ended since: that is what `handle_lost` is told.
    #[must_use]
    pub fn connection(&self) -> Option<&C> {
        self.current().map(|current| &current.connection)
    }

    fn current(&self) -> Option<&Current<C>> {
        match &self.stage {
            Stage::Disconnected | Stage::Connecting(_) => None,
            Stage::Connected(current) => Some(current),
            Stage::FailingBack { current, .. } => current.as_ref(),
        }
    }

    /// Returns true if there is no connection, and none is being made. Nothing happens until a
    /// caller asks.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Disconnected)
    }

    /// Returns true if there is no connection, and one is being made.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Connecting(_) | Stage::FailingBack { current: None, .. })
    }

    /// Why an attempt for a caller cannot begin yet; `None` when it can, or when the caller needs
    /// none.
    #[must_use]
    pub fn refusal(&self, now: Instant) -> Option<Refusal> {
        match &self.stage {
            Stage::Disconnected | Stage::FailingBack { current: None, .. } => {}
            Stage::Connecting(_) | Stage::Connected(_) | Stage::FailingBack { .. } => return None,
        }
        let path_verdict = self
            .breaker
            .broken()
            .filter(|(_, due)| self.while_broken == WhileBroken::Wait && *due > now);
        let (reason, due) = self.reconnect.backing_off(now).or(path_verdict)?;
        Some(Refusal { reason: reason.clone(), wait: due - now })
    }

    /// A caller needs a connection.
    pub fn ask(&mut self, now: Instant) -> Ask {
        match &self.stage {
            Stage::Connected(_) | Stage::FailingBack { current: Some(_), .. } => return Ask::Take,
            Stage::Connecting(_) => return Ask::Wait,
            Stage::Disconnected | Stage::FailingBack { current: None, .. } => {}
        }
        if let Some(refusal) = self.refusal(now) {
            return Ask::Fail(refusal);
        }
        let wanted = match (self.breaker.broken(), self.while_broken) {
            // A path that was never in use costs little to ask for: the server may be another one.
            (Some((reason, _)), WhileBroken::UseBootstrap) if self.breaker.was_used() => {
                Wanted::Bootstrap((**reason).into())
            }
            (Some(_) | None, _) => Wanted::Best,
        };
        self.stage = Stage::Connecting(Attempt { wanted: wanted.clone(), began_at: now });
        Ask::Begin(wanted)
    }

    /// Returns the time at which failback must be attempted. `None` while the path works, or an
    /// attempt is in progress, or no call would use it.
    #[must_use]
    pub fn failback_due(&self) -> Option<Instant> {
        let is_served = matches!(self.stage, Stage::Connected(_));
        let can_fail_back = is_served && self.while_broken == WhileBroken::UseBootstrap;
        let (_, due) = self.breaker.broken().filter(|_| can_fail_back)?;
        Some(due)
    }

    /// Begins failback, which wants [`Wanted::Upgraded`]; false when it is not due.
    pub fn begin_failback(&mut self, now: Instant) -> bool {
        if self.failback_due().is_none_or(|due| due > now) {
            return false;
        }
        let attempt = Attempt { wanted: Wanted::Upgraded, began_at: now };
        match std::mem::replace(&mut self.stage, Stage::Disconnected) {
            Stage::Connected(current) => {
                self.stage = Stage::FailingBack { attempt, current: Some(current) };
                true
            }
            other => {
                self.stage = other;
                false
            }
        }
    }

    /// The attempt under way has made a connection, which becomes the current one.
    pub fn handle_made(&mut self, connection: C, made: Made, now: Instant) -> Handover<C> {
        let (attempt, replaced) = self.end_attempt();
        let attempted_at = attempt.map_or(now, |attempt| attempt.began_at);
        self.stage = Stage::Connected(Current { connection, attempted_at, connected_at: now });
        let gain = match made {
            Made { is_upgraded: true, .. } => self.breaker.handle_upgraded(now),
            Made { is_upgraded: false, fallback } => {
                if let Some(denial) = fallback {
                    self.breaker.handle_declined(now, denial);
                }
                PathGain::None
            }
        };
        Handover { replaced: replaced.map(|current| current.connection), gain }
    }

    /// The attempt under way has made none. True when the server is not tried again for a while.
    pub fn handle_failed(&mut self, failure: Failure, now: Instant) -> bool {
        let (attempt, current) = self.end_attempt();
        self.stage = current.map_or(Stage::Disconnected, Stage::Connected);
        let Some(Attempt { wanted, began_at }) = attempt else { return false };
        match (failure.verdict(&wanted), self.while_broken) {
            (Some(denial), WhileBroken::UseBootstrap) => self.breaker.handle_declined(now, denial),
            (Some(denial), WhileBroken::Wait) => {
                self.breaker.handle_attempt_failed(now, denial.reason);
            }
            (None, _) => {}
        }
        // The breaker delays attempts at a required path, except at one that was never in use.
        let is_breakers = failure.path_verdict.is_some() && self.breaker.broken().is_some();
        let is_counted = wanted != Wanted::Upgraded && !is_breakers;
        if is_counted {
            self.reconnect.handle_failed(began_at, now, failure.reason);
        }
        is_counted
    }

    /// Forgets the delays after failed attempts: there is news of the server.
    pub fn reset_backoff(&mut self) {
        self.reconnect.reset();
    }

    /// The attempt under way was given up, which says nothing of server or path.
    pub fn handle_given_up(&mut self) {
        let (_, current) = self.end_attempt();
        self.stage = current.map_or(Stage::Disconnected, Stage::Connected);
    }

    /// The current connection takes no more calls; `None` when there is none.
    pub fn handle_lost(&mut self, loss: Loss, now: Instant) -> Option<Lost<C>> {
        let Current { connection, attempted_at, connected_at } = self.take_current()?;
        let Loss { transport, is_upgraded, addresses, answered_count, cause } = loss;
        let failure = match cause {
            Cause::Link(reason) if is_upgraded => {
                let message = format!("{transport}: the path died: {reason}");
                let reason = reason.with_message(message);
                self.breaker.handle_failure(now, reason.clone());
                return Some(Lost { connection, path_failure: Some(reason) });
            }
            Cause::Link(reason) | Cause::Peer(reason) => Some(reason),
            Cause::SentAway => None,
            // Not a failed attempt: each test of a program may have a runtime of its own.
            Cause::RuntimeEnded => {
                self.reconnect.handle_end(None);
                return Some(Lost { connection, path_failure: None });
            }
        };
        let sent_away = || Reason::from("the server asked this client to leave");
        let reason = failure.clone().unwrap_or_else(sent_away);
        let message = format!("the last connection answered no call ({addresses}): {reason}");
        let reason = reason.with_message(message);
        let lifespan = Lifespan { attempted_at, connected_at, answered_count };
        self.reconnect.handle_lost(lifespan, now, reason);
        self.reconnect.handle_end(failure);
        Some(Lost { connection, path_failure: None })
    }

    fn end_attempt(&mut self) -> (Option<Attempt>, Option<Current<C>>) {
        match std::mem::replace(&mut self.stage, Stage::Disconnected) {
            Stage::Disconnected => (None, None),
            Stage::Connecting(attempt) => (Some(attempt), None),
            Stage::Connected(current) => (None, Some(current)),
            Stage::FailingBack { attempt, current } => (Some(attempt), current),
        }
    }

    fn take_current(&mut self) -> Option<Current<C>> {
        match std::mem::replace(&mut self.stage, Stage::Disconnected) {
            Stage::Connected(current) => Some(current),
            Stage::FailingBack { attempt, current } => {
                self.stage = Stage::FailingBack { attempt, current: None };
                current
            }
            other @ (Stage::Disconnected | Stage::Connecting(_)) => {
                self.stage = other;
                None
            }
        }
    }

    /// Returns the time at which the next attempt for a caller may begin, once there is no
    /// connection.
    #[must_use]
    pub fn next_connect(&self, now: Instant) -> Instant {
        let reconnect = self.reconnect.backing_off(now).map(|(_, due)| due);
        // With a path below, the broken one is tried beside the connection.
        let broken = self.breaker.broken().map(|(_, due)| due);
        let path = broken.filter(|_| self.while_broken == WhileBroken::Wait);
        reconnect.into_iter().chain(path).max().unwrap_or(now)
    }

    /// The breaker of the upgraded path.
    #[must_use]
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Returns the results of attempts at the server.
    #[must_use]
    pub fn reconnect(&self) -> &Reconnect {
        &self.reconnect
    }
}

#[cfg(test)]
#[path = "failover_tests.rs"]
mod tests;
