//! Rules for the calls of a channel, which it passes down with each call, and the deadline of a
//! call with what set it.
//!
//! A call can have up to three limits: its request's, its stub's or its channel's, and that of the
//! call whose handler makes it. The earliest counts, and the status of a call that is over it names
//! it.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use crate::call::log::CallLog;
use crate::call::refusal;
use crate::client::{ChannelSettings, ChannelSettingsOverlay};
use crate::{CallKind, Deadline};

/// Rules for calls that set nothing themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRules {
    /// Timeout of calls of every kind. A stream that is still open then ends, too.
    pub timeout: Option<Duration>,
    /// Timeout of unary calls, in place of `timeout`.
    pub unary_timeout: Option<Duration>,
    /// Lets calls wait while the channel cannot connect.
    pub wait_for_ready: bool,
    /// Logs each call that fails.
    pub log_failures: bool,
}

impl CallRules {
    /// No timeouts. Calls do not wait, and those that fail are logged.
    pub const DEFAULT: Self =
        Self { timeout: None, unary_timeout: None, wait_for_ready: false, log_failures: true };

    /// Returns the rules of a channel with these settings.
    #[must_use]
    pub const fn new(settings: &ChannelSettings) -> Self {
        Self {
            timeout: settings.timeout,
            unary_timeout: settings.unary_timeout,
            wait_for_ready: settings.wait_for_ready,
            log_failures: settings.log_failed_calls,
        }
    }

    /// Lays the settings in code over these rules.
    pub(in crate::client) fn under(self, code: &ChannelSettingsOverlay) -> Self {
        Self {
            timeout: code.timeout.unwrap_or(self.timeout),
            unary_timeout: code.unary_timeout.unwrap_or(self.unary_timeout),
            wait_for_ready: code.wait_for_ready.unwrap_or(self.wait_for_ready),
            log_failures: code.log_failed_calls.unwrap_or(self.log_failures),
        }
    }

    /// Returns the timeout of a call of this kind.
    pub(in crate::client) fn timeout_of(&self, kind: CallKind) -> Option<(Duration, SetBy)> {
        match self.unary_timeout.filter(|_| kind == CallKind::Unary) {
            Some(timeout) => Some((timeout, SetBy::UnaryTimeout)),
            None => self.timeout.map(|timeout| (timeout, SetBy::Timeout)),
        }
    }

    /// Returns the calls that have a line in the log.
    pub(in crate::client) fn log(&self) -> CallLog {
        CallLog { failures: self.log_failures, access: false, is_counted: false }
    }
}

impl Default for CallRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The origin of the limit on a call's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum SetBy {
    /// The request: `Request::set_timeout`, or a [`Deadline`] among its extensions.
    Request,
    /// The stub.
    Stub,
    /// The channel's timeout for calls of every kind.
    Timeout,
    /// The channel's timeout for unary calls.
    UnaryTimeout,
    /// The call that is being handled where this one is made.
    Inherited,
    /// A layer of the client.
    Layer,
    /// The service config of the channel.
    MethodConfig,
}

impl SetBy {
    fn describe(self) -> &'static str {
        match self {
            Self::Request => "the request's timeout",
            Self::Stub => "the stub's timeout",
            Self::Timeout => "the channel's timeout",
            Self::UnaryTimeout => "the channel's unary_timeout",
            Self::Inherited => "the time left to the handler that made the call",
            Self::Layer => "the deadline that a layer set",
            Self::MethodConfig => "the timeout of the channel's service config",
        }
    }
}

/// The deadline of a call, and the origin of that limit.
#[derive(Debug, Clone, Copy)]
pub struct CallDeadline {
    deadline: Deadline,
    /// Time that the call had when it began.
    timeout: Duration,
    set_by: SetBy,
}

impl CallDeadline {
    /// A limit of `timeout` from `now` on.
    pub(in crate::client) fn after(now: Instant, timeout: Duration, set_by: SetBy) -> Self {
        Self { deadline: Deadline::after(now, timeout), timeout, set_by }
    }

    /// An instant that was set, for a call that begins `now`.
    pub(in crate::client) fn at(deadline: Deadline, now: Instant, set_by: SetBy) -> Self {
        Self { deadline, timeout: deadline.0.saturating_duration_since(now), set_by }
    }

    /// The instant.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// The status of a call that is over this limit.
    #[must_use]
    pub fn exceeded(&self) -> Status {
        refusal::over_time(self.timeout, self.set_by.describe())
    }

    /// The status of a call that has found no connection until then; `error` says why.
    pub(in crate::client) fn exceeded_unconnected(&self, error: &dyn std::fmt::Display) -> Status {
        refusal::not_connected_in_time(self.timeout, self.set_by.describe(), error)
    }

    /// The earliest of the layers' limit, of a call's timeout, of the deadline that it sets, and of
    /// what it inherits. The clock is looked at only where there is one of the latter and `now` is
    /// not known.
    #[inline]
    pub(in crate::client) fn resolve(
        layers: Option<Self>,
        timeout: Option<(Duration, SetBy)>,
        explicit: Option<Deadline>,
        now: Option<Instant>,
    ) -> Option<Self> {
        match (timeout, explicit, Deadline::current()) {
            (None, None, None) => layers,
            (timeout, explicit, inherited) => {
                Self::earliest_of_all(layers, timeout, (explicit, inherited), now)
            }
        }
    }

    fn earliest_of_all(
        layers: Option<Self>,
        timeout: Option<(Duration, SetBy)>,
        (explicit, inherited): (Option<Deadline>, Option<Deadline>),
        now: Option<Instant>,
    ) -> Option<Self> {
        let now = now.unwrap_or_else(Instant::now);
        let timeout = timeout.map(|(timeout, by)| Self::after(now, timeout, by));
        let explicit = explicit.map(|deadline| Self::at(deadline, now, SetBy::Request));
        let inherited = inherited.map(|it| Self::at(it, now, SetBy::Inherited));
        // Of equal limits the first is named: the call's own before an inherited one.
        Self::earliest([layers, timeout, explicit, inherited].into_iter().flatten())
    }

    /// The earliest of several.
    pub(in crate::client) fn earliest(limits: impl IntoIterator<Item = Self>) -> Option<Self> {
        limits.into_iter().min_by_key(|limit| limit.deadline)
    }
}

/// Runs a call until its deadline; dropping it there cancels it on the peer. The deadline is named
/// by this side, also where the peer or its protocol has said so a moment earlier.
#[expect(clippy::manual_async_fn, reason = "its future would have room for the call's twice")]
pub(in crate::client) fn within<T>(
    limit: Option<&CallDeadline>,
    call: impl Future<Output = Result<T, Status>>,
) -> impl Future<Output = Result<T, Status>> {
    async move {
        match limit {
            None => call.await,
            Some(limit) => {
                let Deadline(instant) = limit.deadline();
                // The call is polled before the clock: an answer that is there at the deadline
                // still counts.
                match tokio::time::timeout_at(instant, call).await {
                    Ok(Err(status)) if limit.deadline().is_cause_of(&status) => {
                        Err(limit.exceeded())
                    }
                    Ok(ended) => ended,
                    Err(_) => Err(limit.exceeded()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NotExecuted;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn peers_status_at_the_deadline_is_told_as_ones_own() {
        let now = Instant::now();
        let limit = CallDeadline::after(now, SECOND, SetBy::Timeout);
        let after = |millis, status: Status| async move {
            tokio::time::sleep_until(now + Duration::from_millis(millis)).await;
            within::<()>(Some(&limit), async { Err(status) }).await.unwrap_err()
        };
        let early = after(999, Status::deadline_exceeded("the peer's own limit")).await;
        assert_eq!(early.message(), "the peer's own limit");
        let own = "the call did not end within 1s (the channel's timeout)";
        for status in [Status::deadline_exceeded("by the peer"), Status::cancelled("by gRPC")] {
            let late = after(1000, status).await;
            assert_eq!((late.code(), late.message()), (tonic::Code::DeadlineExceeded, own));
        }
        let unconnected = NotExecuted::mark(limit.exceeded_unconnected(&"refused"));
        assert!(after(1000, unconnected).await.message().contains("no connection"));
        assert_eq!(after(1000, Status::not_found("it")).await.code(), tonic::Code::NotFound);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_limit_counts_and_is_named_with_its_length() {
        let now = Instant::now();
        let channels = CallDeadline::after(now, 3 * SECOND, SetBy::Timeout);
        let inherited = Deadline::after(now, 2 * SECOND);
        let inherited = CallDeadline::at(inherited, now, SetBy::Inherited);
        let earliest = CallDeadline::earliest([channels, inherited]).unwrap();
        assert_eq!(earliest.deadline(), inherited.deadline());
        let message = "the call did not end within 2s (the time left to the handler that made the \
                     call)";
        assert_eq!(earliest.exceeded().message(), message);
    }
}
