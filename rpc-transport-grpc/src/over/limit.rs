//! What the messages of a request may be, where their memory counts, and which end is theirs.

use http::Version;
use rpc_core::memory::MemoryShare;

/// The limit on a request's messages.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    /// The longest message, in bytes as it travels and inflated.
    pub(super) max_message_len: u64,
    /// Where a message counts while it is being received.
    pub(super) memory: MemoryShare,
    /// Which end of the body is the end of the requests.
    pub(super) ending: Ending,
}

/// Which end of a body is the end of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// One that `is_end_stream` confirms. A body of HTTP/2 may also end where the client has reset
    /// the stream with `NO_ERROR`, and `is_end_stream` stays false there.
    Confirmed,
    /// Every one: a body of another kind may leave `is_end_stream` at false.
    Any,
}

impl Limit {
    /// For clients at a server's port, whose bodies are of that version.
    pub(crate) fn of_port(max_message_len: u64, memory: MemoryShare, version: Version) -> Self {
        let ending = match version {
            Version::HTTP_2 => Ending::Confirmed,
            // There a body that breaks off ends with an error.
            _ => Ending::Any,
        };
        Self { max_message_len, memory, ending }
    }

    /// For clients in this process, whose memory is their own affair.
    pub(super) fn of_process(max_message_len: u64) -> Self {
        Self { max_message_len, memory: MemoryShare::default(), ending: Ending::Any }
    }
}
