//! Peers of gRPC as they are: statuses that they accept, metadata that they send, and sockets that
//! they come over.

mod metadata;
mod raw;
mod service;
mod statuses;
mod unix;

use std::time::Duration;

/// The bound on every wait.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits for something, within a bound.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}
