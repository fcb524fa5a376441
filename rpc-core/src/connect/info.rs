//! Descriptions of connections, and the reasons why one has no upgraded path.
//!
//! Each reason may have a name and text of the peer, which are escaped and cut where they are read.
//! A peer may give eight of them, and all together go into one line of the log, into
//! [`ConnectionInfo::fallback`] and into errors: so their joined text is cut as well.

use std::fmt;

use super::{Declined, Obstacle};
use crate::transport::{Addresses, PathInfo, TransportStats};
use crate::wire::PeerText;

/// Maximum length of the joined text. Only the first reason may exceed it: it has at most a name
/// and a text of the peer of [`PeerText::LEN_MAX`] each.
const LEN_MAX: usize = 2 * PeerText::LEN_MAX;

/// The state of a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The transport that carries its calls, for example `tcp` or `rdma`.
    pub transport: &'static str,
    /// Its two ends.
    pub addresses: Addresses,
    /// True if it moved from the path that it started on to an upgraded one.
    pub is_upgraded: bool,
    /// True if its client wanted an upgraded path, as with `auto://`.
    pub wanted_upgrade: bool,
    /// Why it did not move to an upgraded path. Never absent where one was wanted and is not in
    /// use.
    pub fallback: Option<String>,
    /// True if that reason can pass while both processes run. The channel then tries again in the
    /// background.
    pub fallback_can_pass: bool,
    /// Set where the reason is that one side has no device at all, which is no fault.
    #[doc(hidden)]
    pub is_without_device: bool,
    /// True if the peer may send compressed messages: never over RDMA.
    pub accepts_compressed: bool,
    /// True if this side may send compressed messages: never over RDMA.
    pub sends_compressed: bool,
    /// The calls in flight on it at this moment.
    pub calls_in_flight: usize,
    /// Parameters of the path over RDMA; `None` over other transports.
    pub path: Option<PathInfo>,
    /// Counts of its transport.
    pub stats: TransportStats,
}

impl ConnectionInfo {
    /// Returns the info of a connection of another protocol.
    #[doc(hidden)]
    #[must_use]
    pub fn new(
        transport: &'static str,
        addresses: Addresses,
        calls_in_flight: usize,
        stats: TransportStats,
    ) -> Self {
        Self {
            transport,
            addresses,
            is_upgraded: false,
            wanted_upgrade: false,
            fallback: None,
            fallback_can_pass: false,
            is_without_device: false,
            accepts_compressed: false,
            sends_compressed: false,
            calls_in_flight,
            path: None,
            stats,
        }
    }
}

/// Why a connection whose client wanted an upgraded path has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The reasons of all paths that were tried.
    pub reason: String,
    /// True if one of them can pass while both processes run. Then the client tries again.
    pub can_pass: bool,
    /// Set where each reason is that a host has no device at all, or not even the library. Nothing
    /// is wrong then, and every connection of the process would say so again.
    pub is_without_device: bool,
}

impl Fallback {
    /// The reason for people. It says so where the path is not tried again.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.can_pass {
            true => self.reason.clone(),
            false => format!("{}; not tried again on this connection", self.reason),
        }
    }
}

/// The paths that could not be had, each with its reason.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    reasons: Vec<String>,
    can_pass: bool,
    /// Set once a reason is another than that a host has no device.
    has_fault: bool,
}

impl Failures {
    /// Adds the path `name`, for `reason`, a peer's or another one that is a fault.
    pub(crate) fn add(&mut self, name: &str, reason: impl fmt::Display, can_pass: bool) {
        self.reasons.push(format!("{name}: {reason}"));
        self.can_pass |= can_pass;
        self.has_fault = true;
    }

    /// Adds the path `name`, which the peer declined. It sends a text in place of its obstacle.
    pub(crate) fn add_peers(&mut self, name: &str, reason: &PeerText, can_pass: bool) {
        self.reasons.push(format!("{name}: the server: {reason}"));
        self.can_pass |= can_pass;
        self.has_fault |= !is_without_device(reason.as_str());
    }

    /// Adds the reason that a client gives in its Hello for what it does not offer.
    pub(crate) fn add_clients(&mut self, reason: &PeerText) {
        self.reasons.push(format!("the client says: {reason}"));
        // The client knows whether that can pass, and tries by itself.
        self.can_pass = true;
        let text = reason.as_str();
        let text = text.split_once(": ").map_or(text, |(_path, reason)| reason);
        self.has_fault |= !is_without_device(text);
    }

    /// Adds the path `name`, which `whose` side declined.
    pub(crate) fn add_declined(&mut self, name: &str, whose: &str, declined: &Declined) {
        self.add_known(&format!("{name}: {whose}{declined}"), declined.obstacle);
    }

    /// Adds a path whose reason names it.
    pub(crate) fn add_known(&mut self, reason: &str, obstacle: Obstacle) {
        self.reasons.push(reason.to_owned());
        self.can_pass |= obstacle.can_pass();
        self.has_fault |= !obstacle.is_without_device();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    pub(crate) fn can_pass(&self) -> bool {
        self.can_pass
    }

    /// All reasons in one text.
    pub(crate) fn join(&self) -> String {
        join_reasons(&self.reasons)
    }

    /// The reason for a connection without an upgraded path; `None` if none failed.
    pub(crate) fn fallback(&self) -> Option<Fallback> {
        let (can_pass, is_without_device) = (self.can_pass, !self.has_fault);
        (!self.is_empty()).then(|| Fallback { reason: self.join(), can_pass, is_without_device })
    }
}

/// Returns true if a peer's text is the one of a host without a device, or without the library.
/// The wire has no code for it.
fn is_without_device(text: &str) -> bool {
    text == "there is no RDMA device" || text.contains("libibverbs.so.1 is not installed")
}

/// Joins reasons, the first ones whole; says how many were left out.
fn join_reasons(reasons: &[String]) -> String {
    let mut joined = String::new();
    for (index, reason) in reasons.iter().enumerate() {
        if index > 0 && joined.len() + reason.len() > LEN_MAX {
            let left_out = reasons.len() - index;
            joined.push_str(&format!("; and {left_out} more"));
            break;
        }
        if index > 0 {
            joined.push_str("; ");
        }
        joined.push_str(reason);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_reasons_are_all_there() {
        let reasons = ["rdma: no device".to_owned(), "other: off".to_owned()];
        assert_eq!(join_reasons(&reasons), "rdma: no device; other: off");
        assert_eq!(join_reasons(&reasons[..1]), "rdma: no device");
        assert_eq!(join_reasons(&[]), "");
    }

    #[test]
    fn long_ones_are_left_out_and_counted() {
        let long = PeerText::new(&"x".repeat(1000));
        let reasons = vec![format!("{long}: {long}"); 8];
        let joined = join_reasons(&reasons);
        assert_eq!(joined, format!("{}; and 7 more", reasons[0]));
        assert!(joined.len() < LEN_MAX + 100);
        let mixed = [vec!["a".repeat(100)], reasons].concat();
        assert_eq!(join_reasons(&mixed), format!("{}; and 8 more", mixed[0]));
    }

    #[test]
    fn missing_device_is_no_fault_unless_something_else_is() {
        let fallback = |obstacles: &[Obstacle]| {
            let mut failures = Failures::default();
            for obstacle in obstacles {
                failures.add_declined("rdma", "", &Declined::with(*obstacle, "whatever it says"));
            }
            failures.fallback().is_some_and(|fallback| fallback.is_without_device)
        };
        assert!(fallback(&[Obstacle::NoDevice]) && fallback(&[Obstacle::NoLibrary]));
        for fault in [Obstacle::NoSuchDevice, Obstacle::UnusableLibrary, Obstacle::NoPort] {
            assert!(!fallback(&[fault]) && !fallback(&[Obstacle::NoDevice, fault]), "{fault:?}");
        }
    }

    #[test]
    fn clients_without_a_device_are_no_fault() {
        let is_without_device = |text: &str| {
            let mut failures = Failures::default();
            failures.add_clients(&PeerText::new(text));
            failures.fallback().is_some_and(|fallback| fallback.is_without_device)
        };
        assert!(is_without_device("rdma: there is no RDMA device"));
        assert!(is_without_device("rdma: libibverbs.so.1 is not installed (Debian: libibverbs1)"));
        assert!(!is_without_device("rdma: port 1 of mlx5_0 is not active"));
        assert!(!is_without_device(""));
    }
}
