//! Settings are checked where they are set.
//!
//! A setting in a program's code is the programmer's: the setter panics at the line that has the
//! bad value, as tokio's `worker_threads(0)` does. A setting in a file is the operator's: the code
//! that reads the file calls `check` of the setting's type, or one of the functions here, and
//! reports the error.
//!
//! Settings that have a type of their own are declared once, by [`define_settings`]: name, type,
//! default, effect, range and reason stand there with the documentation. The type, its setters, its
//! check and its [`Table`] of a settings file derive from that. [`range`] has the ranges and their
//! text, [`mod@format`] reads and writes values, and [`table`] is what a file's reader sees.
//!
//! A builder keeps [`Layers`]: what a file sets, and what the program's code sets. Its setters come
//! from the same declaration, by [`builder_setters`].

mod composed;
mod define;
pub mod format;
pub mod range;
mod setters;
#[cfg(unix)]
mod small_file;
pub mod table;

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::{RangeInclusive, RangeToInclusive};
use std::time::Duration;

use thiserror::Error;

pub use crate::{builder_setters, define_overlay, define_settings};
pub use composed::{Layers, Named, Settings};
pub use format::{Mismatch, Raw, Units, Value};
pub use range::{Checked, Whole, check};
#[cfg(unix)]
pub use small_file::read_small_file;
pub use table::{Description, Effect, Group, Key, Read, Shown, Slot, Slots, Table};

/// A setting with a value that it cannot have.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("{name} is {value}: {rule}")]
pub struct InvalidSetting {
    name: Cow<'static, str>,
    value: String,
    rule: Cow<'static, str>,
}

crate::readable_debug!(InvalidSetting);

impl InvalidSetting {
    /// The setting `name` cannot have `value`, because of `rule`.
    #[must_use]
    pub fn new(name: &'static str, value: impl Debug, rule: &'static str) -> Self {
        Self::with_rule(name, value, rule.into())
    }

    /// Makes an error like [`new`](Self::new), with a formatted rule.
    fn with_rule(name: &'static str, value: impl Debug, rule: Cow<'static, str>) -> Self {
        Self { name: name.into(), value: format!("{value:?}"), rule }
    }

    /// The same error under another name.
    fn with_name(self, name: &'static str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The same error of a key in `group`, whose type names it in another way.
    #[doc(hidden)]
    #[must_use]
    pub fn in_group(self, group: &str) -> Self {
        let key = self.name.rsplit_once('.').map_or(&*self.name, |(_, key)| key);
        Self { name: format!("{group}.{key}").into(), ..self }
    }

    /// The setting's full name, for example `limits.max_calls`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value that the setting was given.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The values that the setting can have, and the reason.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

/// The shortest timeout. The timers of tokio count milliseconds.
pub const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// The longest duration of any setting: a year keeps every sum of instants in range.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

/// The longest delay between attempts. A client that comes back after more than a day is a new one.
pub const MAX_DELAY: Duration = Duration::from_secs(24 * 3600);

/// Durations in which something has to happen.
pub const TIMEOUT: RangeInclusive<Duration> = MIN_TIMEOUT..=MAX_DURATION;

/// Durations in which something may go on; zero ends it at once.
pub const PERIOD: RangeToInclusive<Duration> = ..=MAX_DURATION;

/// The reason for the shortest timeout.
pub const NO_TIME: &str = "a shorter time amounts to none";

/// The reason for the longest period; zero ends it at once.
pub const COMPUTED: &str = ", so that its end can be computed; 0 means at once";

/// The reason for counts of one at least.
pub const SERVED: &str = "nothing would be served";

/// The least memory budget of a server, in bytes: what one handshake may hold. That is the longest
/// Hello of a client, 64 KiB, and as much again for what it is decoded to.
pub const MIN_MEMORY: u64 = 128 << 10;

/// The least memory budget of a server, and the reason for it.
pub const LEAST_MEMORY: &str =
    "at least 131072 (128 KiB), since a client's handshake may take as much";

/// Returns the error for `name` unless `is_valid`.
///
/// # Errors
///
/// Unless `is_valid`.
pub fn ensure(
    is_valid: bool,
    name: &'static str,
    value: impl Debug,
    rule: &'static str,
) -> Result<(), InvalidSetting> {
    if is_valid { Ok(()) } else { Err(InvalidSetting::new(name, value, rule)) }
}

/// Checks a timeout: from 1 ms to a year.
///
/// # Errors
///
/// Returns `InvalidSetting` if it is shorter or longer.
pub fn check_timeout(name: &'static str, timeout: Duration) -> Result<(), InvalidSetting> {
    check(name, &timeout, MIN_TIMEOUT..=MAX_DURATION, NO_TIME)
}

/// Checks a period in which something may still go on; zero ends it at once. At most a year.
///
/// # Errors
///
/// Returns `InvalidSetting` if it is longer.
pub fn check_period(name: &'static str, period: Duration) -> Result<(), InvalidSetting> {
    check(name, &period, ..=MAX_DURATION, COMPUTED)
}

/// Panics at the caller's line when a setting that is set in code cannot have its value.
///
/// # Panics
///
/// Panics with the error's message.
#[track_caller]
pub fn expect_valid(checked: Result<(), InvalidSetting>) {
    if let Err(error) = checked {
        panic!("{error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn values_out_of_range_are_named_with_their_range() {
        let timeout = "from 1 ms to 365 days, since a shorter time amounts to none";
        let period = "at most 365 days, so that its end can be computed; 0 means at once";
        let table = [
            (check_timeout("a", Duration::ZERO), "0ns", timeout),
            (check_timeout("a", MIN_TIMEOUT / 2), "500µs", timeout),
            (check_timeout("a", 366 * DAY), "31622400s", timeout),
            (check_period("a", 366 * DAY), "31622400s", period),
        ];
        for (checked, value, rule) in table {
            let error = checked.expect_err("the value is out of range");
            assert_eq!((error.name(), error.value(), error.rule()), ("a", value, rule));
            assert_eq!(error.to_string(), format!("a is {value}: {rule}"));
        }
    }

    #[test]
    fn the_ends_of_each_range_are_in_it() {
        let table = [
            check_timeout("a", MIN_TIMEOUT),
            check_timeout("a", 365 * DAY),
            check_period("a", Duration::ZERO),
            check_period("a", 365 * DAY),
        ];
        for checked in table {
            assert_eq!(checked, Ok(()));
        }
    }
}
