//! What a channel says of its better path.

use std::time::Duration;

/// What has become of the better path of a channel, for example RDMA under `auto://`; made by
/// [`crate::Channel::path`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PathInfo {
    /// Why calls do not take it, when it was in use before; `None` while they do, and when it
    /// never was: then [`crate::connect::ConnectionInfo::fallback`] has the reason.
    pub broken: Option<String>,
    /// How long until it is tried again, when it is broken. Under `auto://` that happens in the
    /// background, as long as there is a connection; under `rdma://` with the next call from then.
    pub next_attempt: Option<Duration>,
    /// How often it has died under the channel.
    pub deaths: u64,
    /// How often it has come back.
    pub returns: u64,
}
