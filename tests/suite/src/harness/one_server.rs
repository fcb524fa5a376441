//! The connection of a channel to one server.

use farcall::PathCounts;
use farcall::{Channel, ConnectionInfo};

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
        self.endpoints().first().map(|server| server.path_counts).unwrap_or_default()
    }
}
