//! The way from a client to the port of a farcall server.

use std::time::Duration;

/// The bound on all cases of a column: each has one of 20 s, and together they take some seconds.
/// 20,000 calls at once take a minute more.
pub(super) const CASES_LIMIT: Duration = Duration::from_secs(300);

/// A way from a client to the port.
#[derive(Debug)]
pub(super) struct Route {
    /// Suffix of the column's name, after the client's.
    pub(super) name: &'static str,
    /// The target as gRPC's clients take it.
    pub(super) target: String,
    /// The client's side of TLS: `plain`, `tls` or `mutual`.
    pub(super) security: &'static str,
    /// The cases that are for other ways, or that a load balancer makes impossible, which the page
    /// about them says.
    pub(super) left_out: &'static [&'static str],
}
