//! An endpoint, one server of many that offer the same services, and the length of its ejection, by
//! gRPC's A50.
//!
//! ```text
//!   Healthy ──eject──> Ejected ──interval, after base x multiplier──> Healthy
//!     multiplier - 1 at each interval    multiplier + 1 at each ejection
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::OutlierDetection;
use crate::connect::ConnectionInfo;
use crate::policy::breaker::Path;

// Of `core`, which has addresses and no sockets: nothing here connects.
use core::net::SocketAddr;

/// A server's address and what the resolver says of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Endpoint {
    /// The address, by which two endpoints are the same one.
    pub address: Arc<str>,
    /// Its share of the calls beside the other endpoints' weights. From 1 to 65,535: a weight of
    /// zero counts as 1, since a server that shall have no calls is not in the list.
    pub weight: u16,
    /// Further addresses of the same server, for example those of the other address family. An
    /// attempt to connect tries them after [`address`](Self::address), as RFC 8305 has it.
    pub alternatives: Arc<[SocketAddr]>,
}

impl Endpoint {
    /// An endpoint of weight 1.
    #[must_use]
    pub fn new(address: impl Into<Arc<str>>) -> Self {
        Self { address: address.into(), weight: 1, alternatives: Arc::default() }
    }

    /// Sets [`weight`](Self::weight).
    #[must_use]
    pub fn with_weight(mut self, weight: u16) -> Self {
        self.weight = weight.max(1);
        self
    }

    /// Sets [`alternatives`](Self::alternatives). They are for addresses of the network: a Unix
    /// socket and a server of this process have none.
    #[must_use]
    pub fn with_alternatives(mut self, alternatives: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.alternatives = alternatives.into_iter().collect();
        self
    }
}

/// Names one endpoint of a channel for as long as it is in the list, and one of its connections
/// where it has several. An address that leaves the list and comes back has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId {
    pub(super) endpoint: u64,
    pub(super) connection: u16,
}

impl EndpointId {
    /// Returns true if both are connections of one endpoint.
    #[must_use]
    pub fn is_of_same_endpoint(self, other: Self) -> bool {
        self.endpoint == other.endpoint
    }
}

/// The connectivity state of an endpoint: gRPC's states of the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connectivity {
    /// No connection, and no attempt: none was asked for yet, or the last one ended in peace.
    Idle,
    /// An attempt is under way.
    Connecting,
    /// There is a connection.
    Ready {
        /// True if calls use the upgraded path (RDMA).
        is_upgraded: bool,
    },
    /// The last attempt failed, and the next one is not due yet.
    TransientFailure,
}

impl Connectivity {
    /// The state of a channel with endpoints in these states: the best of them, as gRPC has it.
    pub(super) fn best_of(states: impl IntoIterator<Item = Self>) -> Self {
        let rank = |state: &Self| match state {
            Self::Ready { is_upgraded: true } => 4,
            Self::Ready { is_upgraded: false } => 3,
            Self::Connecting => 2,
            Self::Idle => 1,
            Self::TransientFailure => 0,
        };
        states.into_iter().max_by_key(rank).unwrap_or(Self::TransientFailure)
    }
}

/// The status of one endpoint, or of one of its connections if it has several.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Number of the connection among the endpoint's, from 0 on.
    pub connection: u16,
    /// Its name in the roster.
    pub(crate) id: EndpointId,
    /// Connectivity of its connection.
    pub connectivity: Connectivity,
    /// Time of its return after failures: no call goes to it before while another endpoint lives.
    /// The return happens at the first timer after that. `None` for one that has its share.
    pub ejected_until: Option<Instant>,
    /// True if it gets calls although it is ejected, because no other endpoint lives.
    pub is_last_resort: bool,
    /// Calls in flight.
    pub in_flight: u32,
    /// Average latency as of the last answer, by which the balancer weighs it. `None` before the
    /// first, and where calls have no other endpoint.
    pub latency: Option<Duration>,
    /// The path that its calls take, and why not a better one.
    pub path: Path,
    /// Upgraded connections that ended by a failure of their path.
    pub failovers: u64,
    /// Connections that took over from a fallback.
    pub failbacks: u64,
    /// The current connection: its transport, addresses and counters. `None` without one.
    pub info: Option<ConnectionInfo>,
}

impl EndpointStatus {
    /// Describes the one server of a channel.
    pub(crate) fn single(endpoint: Endpoint, connectivity: Connectivity) -> Self {
        Self {
            endpoint,
            connection: 0,
            id: EndpointId { endpoint: 0, connection: 0 },
            connectivity,
            ejected_until: None,
            is_last_resort: false,
            in_flight: 0,
            latency: None,
            path: Path::Disconnected { reason: None, retry_in: None },
            failovers: 0,
            failbacks: 0,
            info: None,
        }
    }
}

/// The ejections of one endpoint.
#[derive(Debug, Clone)]
pub(super) struct Ejection {
    /// The end of the one under way.
    until: Option<Instant>,
    /// Ejections in a row, less the intervals that passed in health since.
    multiplier: u32,
}

impl Ejection {
    /// An endpoint that was never ejected.
    pub(super) fn new() -> Self {
        Self { until: None, multiplier: 0 }
    }

    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn is_ejected(&self) -> bool {
        self.until.is_some()
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
        self.until = Some(now + time);
    }

    /// The interval is over; true when the endpoint returns.
    pub(super) fn handle_interval(&mut self, now: Instant) -> bool {
        match self.until {
            None => {
                self.multiplier = self.multiplier.saturating_sub(1);
                false
            }
            Some(until) if now >= until => {
                self.until = None;
                true
            }
            Some(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: OutlierDetection = OutlierDetection::DEFAULTS
        .with_base_ejection_time(Duration::from_secs(30))
        .with_max_ejection_time(Duration::from_secs(100));

    fn left(ejection: &Ejection, now: Instant) -> Option<u64> {
        Some((ejection.until()? - now).as_secs())
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
