//! The length of an endpoint's ejection, by gRPC's A50.
//!
//! ```text
//!   Healthy ──eject──> Ejected ──interval, after base x multiplier──> Healthy
//!     multiplier - 1 at each interval    multiplier + 1 at each ejection
//! ```

use std::time::{Duration, Instant};

use super::config::OutlierDetection;
use super::endpoint::Standing;

/// The ejections of one endpoint.
#[derive(Debug, Clone)]
pub(super) struct Ejection {
    standing: Standing,
    /// Ejections in a row, less the intervals that passed in health since.
    multiplier: u32,
}

impl Ejection {
    /// An endpoint that was never ejected.
    pub(super) fn new() -> Self {
        Self { standing: Standing::Healthy, multiplier: 0 }
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) fn is_ejected(&self) -> bool {
        matches!(self.standing, Standing::Ejected { .. })
    }

    /// Leaves the endpoint out from now on. One that is out already stays out for as long as it
    /// was to.
    pub(super) fn eject(&mut self, rules: &OutlierDetection, now: Instant) {
        if self.is_ejected() {
            return;
        }
        self.multiplier = self.multiplier.saturating_add(1);
        let longest = rules.max_ejection_time.max(rules.base_ejection_time);
        let time = rules.base_ejection_time.checked_mul(self.multiplier);
        let time: Duration = time.unwrap_or(longest).min(longest);
        self.standing = Standing::Ejected { until: now + time };
    }

    /// The interval is over; true when the endpoint returns.
    pub(super) fn handle_interval(&mut self, now: Instant) -> bool {
        match self.standing {
            Standing::Healthy => {
                self.multiplier = self.multiplier.saturating_sub(1);
                false
            }
            Standing::Ejected { until } if now >= until => {
                self.standing = Standing::Healthy;
                true
            }
            Standing::Ejected { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: OutlierDetection = OutlierDetection::new()
        .with_base_ejection_time(Duration::from_secs(30))
        .with_max_ejection_time(Duration::from_secs(100));

    fn left(ejection: &Ejection, now: Instant) -> Option<u64> {
        match ejection.standing() {
            Standing::Ejected { until } => Some((until - now).as_secs()),
            Standing::Healthy => None,
        }
    }

    #[test]
    fn ejections_in_a_row_last_longer_up_to_the_longest() {
        let (mut ejection, mut now) = (Ejection::new(), Instant::now());
        for seconds in [30, 60, 90, 100, 100] {
            ejection.eject(&RULES, now);
            assert_eq!(left(&ejection, now), Some(seconds));
            now += Duration::from_secs(seconds - 1);
            assert!(!ejection.handle_interval(now), "a second is left");
            now += Duration::from_secs(1);
            assert!(ejection.handle_interval(now));
        }
    }

    #[test]
    fn intervals_in_health_forgive() {
        let (mut ejection, now) = (Ejection::new(), Instant::now());
        ejection.eject(&RULES, now);
        ejection.eject(&RULES, now + Duration::from_secs(1));
        assert_eq!(left(&ejection, now), Some(30), "a second ejection changes nothing");
        let later = now + Duration::from_secs(30);
        assert!(ejection.handle_interval(later));
        assert!(!ejection.handle_interval(later), "it was out and is not any more");
        ejection.eject(&RULES, later);
        assert_eq!(left(&ejection, later), Some(30));
    }
}
