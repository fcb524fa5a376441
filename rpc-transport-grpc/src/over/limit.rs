//! What the messages of a request may be, and where their memory counts.

use rpc_core::memory::MemoryShare;

/// The limit on a request's messages.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    /// The longest message, in bytes as it travels and inflated.
    pub(super) max_message_len: u64,
    /// Where a message counts while it is being received.
    pub(super) memory: MemoryShare,
}

impl Limit {
    /// For clients at a server's port.
    pub(crate) fn of_port(max_message_len: u64, memory: MemoryShare) -> Self {
        Self { max_message_len, memory }
    }

    /// For clients in this process, whose memory is their own affair.
    pub(super) fn of_process(max_message_len: u64) -> Self {
        Self { max_message_len, memory: MemoryShare::default() }
    }
}
