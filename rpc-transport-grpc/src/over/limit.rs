//! Limits on the messages of a request.

use http::Version;
use rpc_core::memory::MemoryShare;

/// The limit on a request's messages.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    /// Maximum message length in bytes, both on the wire and inflated.
    pub(super) max_message_len: u64,
    /// The budget that a message counts against while it arrives.
    pub(super) memory: MemoryShare,
    /// The ends of the body that complete the requests.
    pub(super) ending: Ending,
}

/// The ends of a body that complete the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Only an end that `is_end_stream` confirms. An HTTP/2 body also ends where the client has
    /// reset the stream with `NO_ERROR`, and `is_end_stream` stays false there.
    Confirmed,
    /// Every end. Other bodies may leave `is_end_stream` at false.
    Any,
}

impl Limit {
    /// Returns the limit for clients at a server's port that speak HTTP `version`.
    pub(crate) fn for_port(max_message_len: u64, memory: MemoryShare, version: Version) -> Self {
        let ending = match version {
            Version::HTTP_2 => Ending::Confirmed,
            // A truncated HTTP/1 body ends with an error, so every clean end is a real one.
            _ => Ending::Any,
        };
        Self { max_message_len, memory, ending }
    }

    /// Returns the limit for clients in this process. Their memory is not counted.
    pub(super) fn for_process(max_message_len: u64) -> Self {
        Self { max_message_len, memory: MemoryShare::default(), ending: Ending::Any }
    }
}
