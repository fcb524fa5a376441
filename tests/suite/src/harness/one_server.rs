//! The connection of a channel to one server.

use farcall::{Channel, ConnectionInfo};

/// Counts of failures and returns of a channel's upgraded path.
#[derive(Debug, Clone, Copy, Default)]
pub struct PathCounts {
    pub failovers: u64,
    pub failbacks: u64,
}

/// A channel to one server, as tests look at its connection.
pub trait OneServer {
    /// Describes the current connection, if there is one.
    fn info(&self) -> Option<ConnectionInfo>;

    /// Counts failures and returns of the upgraded path.
    fn path_counts(&self) -> PathCounts;
}

impl OneServer for Channel {
    fn info(&self) -> Option<ConnectionInfo> {
        self.endpoints().into_iter().find_map(|server| server.info)
    }

    fn path_counts(&self) -> PathCounts {
        let endpoints = self.endpoints();
        let counts = endpoints
            .first()
            .map(|it| PathCounts { failovers: it.failovers, failbacks: it.failbacks });
        counts.unwrap_or_default()
    }
}
