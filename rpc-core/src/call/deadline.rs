//! Deadlines: where a call's comes from and how it crosses the wire.
//!
//! A deadline is an instant of the local clock; what is sent is what is left of it, in
//! microseconds, so that the clocks of two hosts need not agree. Nothing here waits.

use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// The instant at which a call ends with `DEADLINE_EXCEEDED` if it has not ended before.
///
/// Insert one into `request.extensions_mut()` to set a call's deadline without the cost of
/// `Request::set_timeout`, which formats a header; a handler finds its call's deadline in
/// `request.extensions()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Instant);

/// The key under which `Request::set_timeout` leaves the timeout.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// The longest timeout that is told apart from none: a year keeps every sum of instants in range.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

impl Deadline {
    /// The deadline `timeout` after `now`.
    #[must_use]
    pub fn after(now: Instant, timeout: Duration) -> Self {
        Self(now + timeout.min(TIMEOUT_MAX))
    }

    /// The deadline that a request header carries, from now on: 0 stands for none. The clock is
    /// looked at only where there is one.
    #[must_use]
    pub fn from_wire(timeout_us: u64) -> Option<Self> {
        (timeout_us > 0).then(|| Self::after(Instant::now(), Duration::from_micros(timeout_us)))
    }

    /// What is left at `now`, in microseconds for the wire; at least 1, since 0 stands for none.
    #[must_use]
    pub fn to_wire(self, now: Instant) -> u64 {
        let left = self.0.saturating_duration_since(now);
        u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Whether the deadline has passed at `now`.
    #[must_use]
    pub fn has_passed(self, now: Instant) -> bool {
        self.0 <= now
    }
}

/// A length of time without the digits that a reader of a message has no use for: to a thousandth
/// of its unit.
pub(crate) fn rounded(time: Duration) -> Duration {
    let step = match time.as_nanos() {
        1_000_000_000.. => 1_000_000,
        1_000_000.. => 1_000,
        _ => 1,
    };
    let steps = (time.as_nanos() + step / 2) / step;
    Duration::from_nanos(u64::try_from(steps * step).unwrap_or(u64::MAX))
}

/// Takes the timeout that `Request::set_timeout` left in `metadata` out of it.
///
/// The value is gRPC's: at most eight digits and a unit of `H`, `M`, `S`, `m`, `u` or `n`. One that
/// does not parse is left out of the call, as tonic does.
pub(crate) fn take_grpc_timeout(metadata: &mut MetadataMap) -> Option<Duration> {
    if metadata.is_empty() {
        return None;
    }
    let value = metadata.remove(GRPC_TIMEOUT)?;
    parse_grpc_timeout(value.to_str().ok()?)
}

fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_timeout_is_understood_and_taken_out() {
        let mut request = tonic::Request::new(());
        request.set_timeout(Duration::from_millis(1500));
        let taken = take_grpc_timeout(request.metadata_mut());
        assert_eq!(taken, Some(Duration::from_millis(1500)));
        assert!(request.metadata().is_empty());
    }

    #[test]
    fn a_length_of_time_is_rounded_to_what_a_reader_can_use() {
        for (nanos, words) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_500_499, "1.5ms"),
            (1_999_970_000, "2s"),
            (61_234_567_890, "61.235s"),
        ] {
            assert_eq!(format!("{:?}", rounded(Duration::from_nanos(nanos))), words);
        }
    }

    #[test]
    fn malformed_timeouts_are_left_out() {
        for text in ["", "S", "12", "123456789S", "1.5S", "-1S", "1x", "é"] {
            assert_eq!(parse_grpc_timeout(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_passed_deadline_still_crosses_the_wire_as_a_deadline() {
        let now = Instant::now();
        let deadline = Deadline(now);
        assert!(deadline.has_passed(now));
        assert_eq!(deadline.to_wire(now), 1);
        assert_eq!(Deadline::from_wire(0), None);
        assert!(Deadline::from_wire(u64::MAX).is_some());
    }
}
