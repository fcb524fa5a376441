//! Ranges of settings and the text that errors have of them.

use std::fmt::Debug;
use std::ops::{RangeFrom, RangeFull, RangeInclusive, RangeToInclusive};
use std::time::Duration;

use super::{InvalidSetting, MAX_DELAY, MAX_DURATION};

/// The values that a setting can have.
pub trait Allowed<T: ?Sized> {
    /// Checks a value of the setting `name`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the range and `reason` if the value is out of range.
    fn check(
        &self,
        name: &'static str,
        value: &T,
        reason: &impl Reason,
    ) -> Result<(), InvalidSetting>;

    /// The range in words; `None` for one that has none.
    fn text(&self) -> Option<String>;
}

/// Checks a value of the setting `name`.
///
/// # Errors
///
/// Returns an error that names the range and `reason` if the value is out of range.
#[allow(clippy::needless_pass_by_value, reason = "ranges and reasons are literals")]
pub fn check<T, R: Allowed<T>>(
    name: &'static str,
    value: &T,
    range: R,
    reason: impl Reason,
) -> Result<(), InvalidSetting> {
    range.check(name, value, &reason)
}

/// The reason for a range.
pub trait Reason {
    /// The range and the reason in a sentence.
    fn rule(&self, range: &str) -> String;
}

impl Reason for &str {
    /// A reason that begins with a sign follows the range as it is, and any other after "since".
    /// An empty one leaves the range alone.
    fn rule(&self, range: &str) -> String {
        match self.starts_with([',', ';', ':']) || self.is_empty() {
            true => format!("{range}{self}"),
            false => format!("{range}, since {self}"),
        }
    }
}

/// A text with the range and its reason, in the place of what the range says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Whole(pub &'static str);

impl Reason for Whole {
    fn rule(&self, _: &str) -> String {
        self.0.to_owned()
    }
}

/// A value at the end of a range.
pub trait Bound: PartialOrd + Debug {
    /// The bound as errors have it.
    fn bound(&self) -> String;

    /// A range that begins here and has no end.
    fn or_more(&self) -> String {
        format!("at least {}", self.bound())
    }

    /// Returns true unless the value is infinite or no number.
    fn is_finite(&self) -> bool {
        true
    }
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Bound for $type {
            fn bound(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 usize }

impl Bound for f32 {
    fn bound(&self) -> String {
        self.to_string()
    }
}

impl Bound for f64 {
    fn bound(&self) -> String {
        self.to_string()
    }

    fn or_more(&self) -> String {
        format!("a finite number, at least {self}")
    }

    fn is_finite(&self) -> bool {
        Self::is_finite(*self)
    }
}

impl Bound for Duration {
    fn bound(&self) -> String {
        match *self {
            MAX_DURATION => "365 days".to_owned(),
            MAX_DELAY => "a day".to_owned(),
            other if other.subsec_nanos() == 0 => format!("{} s", other.as_secs()),
            other => format!("{} ms", other.as_millis()),
        }
    }
}

fn ensure<T: Debug>(
    is_allowed: bool,
    (name, value): (&'static str, &T),
    range: &impl Allowed<T>,
    reason: &impl Reason,
) -> Result<(), InvalidSetting> {
    let rule = || reason.rule(&range.text().unwrap_or_default()).into();
    if is_allowed { Ok(()) } else { Err(InvalidSetting::with_rule(name, value, rule())) }
}

impl<T: ?Sized> Allowed<T> for RangeFull {
    fn check(&self, _: &'static str, _: &T, _: &impl Reason) -> Result<(), InvalidSetting> {
        Ok(())
    }

    fn text(&self) -> Option<String> {
        None
    }
}

impl<T: Bound> Allowed<T> for RangeFrom<T> {
    fn check(
        &self,
        name: &'static str,
        value: &T,
        reason: &impl Reason,
    ) -> Result<(), InvalidSetting> {
        let is_allowed = self.contains(value) && value.is_finite();
        ensure(is_allowed, (name, value), self, reason)
    }

    fn text(&self) -> Option<String> {
        Some(self.start.or_more())
    }
}

impl<T: Bound> Allowed<T> for RangeInclusive<T> {
    fn check(
        &self,
        name: &'static str,
        value: &T,
        reason: &impl Reason,
    ) -> Result<(), InvalidSetting> {
        ensure(self.contains(value), (name, value), self, reason)
    }

    fn text(&self) -> Option<String> {
        Some(format!("from {} to {}", self.start().bound(), self.end().bound()))
    }
}

impl<T: Bound> Allowed<T> for RangeToInclusive<T> {
    fn check(
        &self,
        name: &'static str,
        value: &T,
        reason: &impl Reason,
    ) -> Result<(), InvalidSetting> {
        ensure(self.contains(value), (name, value), self, reason)
    }

    fn text(&self) -> Option<String> {
        Some(format!("at most {}", self.end.bound()))
    }
}

/// Values that a function checks, whose error has the rule.
#[allow(missing_debug_implementations, reason = "functions have no text")]
pub struct Checked<F>(pub F);

impl<T, F: Fn(&T) -> Result<(), InvalidSetting>> Allowed<T> for Checked<F> {
    fn check(&self, name: &'static str, value: &T, _: &impl Reason) -> Result<(), InvalidSetting> {
        (self.0)(value).map_err(|error| error.with_name(name))
    }

    fn text(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_and_reason_make_the_message() {
        let day = MAX_DELAY;
        let table = [
            (check("a", &0u8, 1.., "b"), "a is 0: at least 1, since b"),
            (check("a", &9u8, ..=8, ": b"), "a is 9: at most 8: b"),
            (check("a", &0u64, 1..=31, ", b"), "a is 0: from 1 to 31, b"),
            (check("a", &0.5, 1.0.., "b"), "a is 0.5: a finite number, at least 1, since b"),
            (check("a", &f64::INFINITY, 1.0.., "b"), "a is inf: a finite number, at least 1, sin"),
            (check("a", &f64::NAN, 0.0..=1.0, "b"), "a is NaN: from 0 to 1, since b"),
            (check("a", &(day * 2), ..=day, "b"), "a is 172800s: at most a day, since b"),
            (check("a", &0u8, 1.., Whole("b")), "a is 0: b"),
        ];
        for (checked, message) in table {
            let error = checked.expect_err("the value is out of range").to_string();
            assert!(error.starts_with(message), "{error}");
        }
        assert_eq!(check("a", &0u8, .., ""), Ok(()));
    }
}
