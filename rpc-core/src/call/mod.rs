//! What describes one call, on either side: its method, its deadline, and the marks on its status.

pub(crate) mod call_options;
pub(crate) mod deadline;
pub(crate) mod descriptor;
pub(crate) mod execution;
pub(crate) mod late_trailers;
pub(crate) mod log;
pub(crate) mod message_limits;
pub(crate) mod metadata_names;
pub(crate) mod method;
pub(crate) mod refusal;

use std::fmt;

use tonic::metadata::MetadataMap;

use self::metadata_names::MetadataNames;

/// Joins two pieces of metadata; entries of the second take the place of those with the same key.
pub(crate) fn merge(first: MetadataMap, second: MetadataMap) -> MetadataMap {
    let mut headers = first.into_headers();
    headers.extend(second.into_headers());
    MetadataMap::from_headers(headers)
}

/// Trailing metadata of a successful unary call, which tonic's `Response` has no field for.
///
/// A handler inserts it into `response.extensions_mut()` to send trailing metadata with a success;
/// a client finds it in `response.extensions()`, and, as with tonic, merged into
/// `response.metadata()`.
#[derive(Clone, Default)]
pub struct Trailers(pub MetadataMap);

impl fmt::Debug for Trailers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trailers").field(&MetadataNames(&self.0)).finish()
    }
}

/// What a call does while its channel has no connection and backs off: gRPC's wait-for-ready.
///
/// The channel has one for all its calls (`ChannelBuilder::readiness`), and a stub for its own
/// (`with_wait_for_ready`). One in `request.extensions_mut()` takes their place for that call.
///
/// A call that finds an attempt to connect under way waits for it in either case. tower's balancers
/// ask a channel before they make a call on it, and make none while it has no connection: see
/// [`crate::client::LayeredChannel`].
///
/// # Examples
///
/// ```
/// use farcall::{Readiness, Request};
///
/// let mut request = Request::new(());
/// request.set_timeout(std::time::Duration::from_secs(30));
/// request.extensions_mut().insert(Readiness::WaitForReady);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readiness {
    /// It fails at once with `UNAVAILABLE`, the reason of the last attempt, and the time of the
    /// next one. It was not executed ([`crate::NotExecuted`]).
    #[default]
    FailFast,
    /// It waits until the channel is connected, however many attempts that takes. Give it a
    /// deadline: it ends with `DEADLINE_EXCEEDED` and the reason of the last attempt, and without
    /// one it waits for ever.
    WaitForReady,
}
