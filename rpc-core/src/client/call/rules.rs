//! Rules for the calls of a channel. The channel passes them down with each call.

use std::time::Duration;

use crate::CallKind;
use crate::call::log::CallLog;
use crate::client::call::deadline::SetBy;
use crate::client::{ChannelSettings, ChannelSettingsOverlay};

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
        CallLog { failures: self.log_failures, access: false }
    }
}

impl Default for CallRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}
