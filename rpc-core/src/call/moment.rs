//! The clock of calls that are counted or logged.

/// A time of the monotonic clock.
///
/// Counts of calls read it and subtract it in half of the instructions of an
/// [`Instant`](std::time::Instant), whose seconds and nanoseconds are apart. It goes on where the
/// clock of tokio is paused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(clock::Time);

impl Moment {
    /// Returns the present time.
    #[inline(always)]
    pub(crate) fn now() -> Self {
        Self(clock::now())
    }

    /// Returns the nanoseconds from `earlier` to this.
    #[inline]
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        clock::nanos_between(earlier.0, self.0)
    }

    /// Returns the nanoseconds since this.
    #[inline]
    pub(crate) fn elapsed_nanos(self) -> u64 {
        Self::now().nanos_since(self)
    }
}

#[cfg(feature = "metrics")]
mod clock {
    use nix::time::{ClockId, clock_gettime};

    /// Nanoseconds since the host's start. 2^64 are 584 years.
    pub(super) type Time = u64;

    #[inline(always)]
    pub(super) fn now() -> Time {
        // It fails on hosts without this clock alone, of which Rust supports none.
        let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return 0 };
        let seconds = now.tv_sec().cast_unsigned().wrapping_mul(1_000_000_000);
        seconds.wrapping_add(now.tv_nsec().cast_unsigned())
    }

    #[inline]
    pub(super) fn nanos_between(earlier: Time, later: Time) -> u64 {
        later.saturating_sub(earlier)
    }
}

/// Without metrics, most calls need no time, and no crate for it.
#[cfg(not(feature = "metrics"))]
mod clock {
    use std::time::Instant;

    pub(super) type Time = Instant;

    pub(super) fn now() -> Time {
        Instant::now()
    }

    pub(super) fn nanos_between(earlier: Time, later: Time) -> u64 {
        u64::try_from(later.saturating_duration_since(earlier).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_moment_agrees_with_an_instant() {
        let (outer, began) = (Instant::now(), Moment::now());
        let inner = Instant::now();
        while inner.elapsed().as_micros() < 50 {}
        let least = inner.elapsed().as_nanos();
        let nanos = u128::from(began.elapsed_nanos());
        let most = outer.elapsed().as_nanos();
        assert!(least <= nanos && nanos <= most, "{least} {nanos} {most}");
        assert_eq!(began.nanos_since(Moment::now()), 0);
    }
}
