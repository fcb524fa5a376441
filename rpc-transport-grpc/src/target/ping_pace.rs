//! The ping interval of a channel to gRPC servers.
//!
//! Unless configured otherwise, a gRPC server ends a connection for pings without calls, or for
//! pings less than five minutes apart (gRFC A8). Such an end doubles the channel's interval.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rpc_core::policy::keepalive::Keepalive;

/// Interval if the channel's keepalive is the default: the minimum that gRPC servers accept by
/// default.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(5 * 60);

/// Maximum interval. hyper adds it to instants.
const INTERVAL_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The ping interval of one channel.
#[derive(Debug)]
pub(super) struct PingPace {
    keepalive: Keepalive,
    doublings: AtomicU32,
}

impl PingPace {
    /// Creates the pace for a channel's keepalive. Replaces the default of farcall's own
    /// connections with gRPC's.
    pub(super) fn new(keepalive: Keepalive) -> Self {
        let keepalive = match keepalive == Keepalive::default() {
            true => keepalive.with_interval(Some(INTERVAL_DEFAULT)),
            false => keepalive,
        };
        Self { keepalive, doublings: AtomicU32::new(0) }
    }

    /// Returns the keepalive of the next connection.
    pub(super) fn keepalive(&self) -> Keepalive {
        let factor = 1_u32.checked_shl(self.doublings.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let longer = |interval: Duration| interval.saturating_mul(factor).min(INTERVAL_MAX);
        self.keepalive.with_interval(self.keepalive.interval.map(longer))
    }

    /// Doubles the interval of future connections. Logs once per doubling, so a server causes a
    /// bounded number of lines.
    pub(super) fn slow_down(&self, server: &str) {
        // Stops at the maximum. Further doublings would change nothing and log each time.
        if self.keepalive().interval.is_none_or(|interval| interval >= INTERVAL_MAX) {
            return;
        }
        self.doublings.fetch_add(1, Ordering::Relaxed);
        let interval = self.keepalive().interval.unwrap_or_default();
        tracing::warn!(
            target: "farcall::path",
            server, ?interval,
            "the server closed a connection for too many pings: doubled the channel's \
             keepalive.interval"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn interval(pace: &PingPace) -> Duration {
        pace.keepalive().interval.unwrap()
    }

    #[test]
    fn default_interval_is_five_minutes() {
        let pace = PingPace::new(Keepalive::default());
        assert_eq!(interval(&pace), 300 * SECOND);
        assert_eq!(pace.keepalive().timeout, Keepalive::default().timeout);
        let set = Keepalive::new(30 * SECOND, SECOND);
        assert_eq!(PingPace::new(set).keepalive(), set);
    }

    #[test]
    fn interval_doubles_up_to_a_year() {
        let pace = PingPace::new(Keepalive::default());
        for factor in [2, 4, 8] {
            pace.slow_down("grpc://a:1");
            assert_eq!(interval(&pace), factor * 300 * SECOND);
        }
        for _ in 0..100 {
            pace.slow_down("grpc://a:1");
        }
        assert_eq!(interval(&pace), INTERVAL_MAX);
    }

    #[test]
    fn channel_without_keepalive_stays_without() {
        let pace = PingPace::new(Keepalive::off());
        pace.slow_down("grpc://a:1");
        assert_eq!(pace.keepalive(), Keepalive::off());
    }
}
