//! The rules that every call of a server looks at, and that may change while it serves.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use super::ServerSettings;
use crate::call::log::CallLog;

/// The rules that every call looks at. A look is one relaxed load: each rule stands alone, and
/// guards no other memory.
#[derive(Debug)]
pub(super) struct CallRules {
    /// In nanoseconds; 0 where unary calls have no timeout.
    unary_timeout: AtomicU64,
    log: AtomicU8,
}

const FAILURES: u8 = 1;
const ACCESS: u8 = 2;

impl Default for CallRules {
    fn default() -> Self {
        let rules = Self { unary_timeout: AtomicU64::new(0), log: AtomicU8::new(0) };
        rules.set_log(CallLog::default());
        rules
    }
}

impl CallRules {
    pub(super) fn unary_timeout(&self) -> Option<Duration> {
        let nanos = self.unary_timeout.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Takes what calls look at of `settings`.
    pub(super) fn set(&self, settings: &ServerSettings) {
        self.set_unary_timeout(settings.unary_timeout);
        let (failures, access) = (settings.log_failed_calls, settings.access_log);
        self.set_log(CallLog { failures, access });
    }

    fn set_unary_timeout(&self, timeout: Option<Duration>) {
        // The longest is 365 days, which are 2^55 ns.
        let nanos = timeout.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
        self.unary_timeout.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn log(&self) -> CallLog {
        let bits = self.log.load(Ordering::Relaxed);
        CallLog { failures: bits & FAILURES != 0, access: bits & ACCESS != 0 }
    }

    fn set_log(&self, CallLog { failures, access }: CallLog) {
        let bits = if failures { FAILURES } else { 0 } | if access { ACCESS } else { 0 };
        self.log.store(bits, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_call_looks_at_comes_back_as_it_was_set() {
        let rules = CallRules::default();
        assert_eq!((rules.unary_timeout(), rules.log()), (None, CallLog::default()));
        let year = Duration::from_secs(365 * 24 * 3600);
        for timeout in [Some(Duration::from_millis(1)), Some(year), None] {
            rules.set_unary_timeout(timeout);
            assert_eq!(rules.unary_timeout(), timeout);
        }
        for (failures, access) in [(false, false), (false, true), (true, false), (true, true)] {
            rules.set_log(CallLog { failures, access });
            assert_eq!(rules.log(), CallLog { failures, access });
        }
    }
}
