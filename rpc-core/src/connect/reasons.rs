//! Why no upgraded path came about, in one text.
//!
//! Each reason may have a name and words of the peer, which are escaped and cut where they are
//! read. A peer may give eight of them, and all together go into one line of the log, into
//! `ConnectionInfo::fallback` and into errors: so what they are joined to is cut as well.

use super::{Declined, Obstacle};
use crate::wire::PeerText;

/// Why a connection whose client wanted an upgraded path has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// The reasons of all paths that were tried.
    pub reason: String,
    /// Whether one of them can pass while both processes run: then the client tries again.
    pub can_pass: bool,
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
pub(super) struct Failures {
    reasons: Vec<String>,
    can_pass: bool,
}

impl Failures {
    /// Adds the path `name`, for `reason`.
    pub(super) fn add(&mut self, name: &str, reason: impl std::fmt::Display, can_pass: bool) {
        self.reasons.push(format!("{name}: {reason}"));
        self.can_pass |= can_pass;
    }

    /// Adds the path `name`, which `whose` side declined.
    pub(super) fn add_declined(&mut self, name: &str, whose: &str, declined: &Declined) {
        self.add(name, format_args!("{whose}{declined}"), declined.obstacle.can_pass());
    }

    /// Adds a path whose reason names it.
    pub(super) fn add_known(&mut self, reason: &str, obstacle: Obstacle) {
        self.reasons.push(reason.to_owned());
        self.can_pass |= obstacle.can_pass();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    pub(super) fn can_pass(&self) -> bool {
        self.can_pass
    }

    /// All reasons in one text.
    pub(super) fn join(&self) -> String {
        join_reasons(&self.reasons)
    }

    /// The reason for a connection without an upgraded path; `None` if none failed.
    pub(super) fn fallback(&self) -> Option<Fallback> {
        (!self.is_empty()).then(|| Fallback { reason: self.join(), can_pass: self.can_pass })
    }
}

/// How long the joined text may get by reasons behind the first: that has at most a name and
/// words of the peer of [`PeerText::LEN_MAX`] each.
const LEN_MAX: usize = 2 * PeerText::LEN_MAX;

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

/// Returns true if the reason is that this host, or the peer's, has no device at all, or not even
/// the library. Nothing is wrong then, and every connection of the process would say so again.
pub(crate) fn is_without_device(reason: &str) -> bool {
    reason.ends_with("there is no RDMA device")
        || reason.contains("libibverbs.so.1 is not installed")
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
}
