//! The limits of one side of a connection, each with the reason for its default.
//!
//! Both sides tell theirs in the Hello, so that a sender refuses what the receiver would.

/// What one side accepts from its peer on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest message accepted, in bytes of its protobuf encoding.
    ///
    /// 4 MiB by default, as gRPC and tonic have it, so that a service moved to farcall accepts
    /// neither less nor, unasked, more than before.
    pub message_len_max: u64,
    /// The most bytes of metadata accepted with one request or response, trailers included.
    ///
    /// 16 KiB by default: HTTP/2's usual limit for a header list, which tonic's users know.
    pub metadata_len_max: u32,
    /// The most calls that the peer may have in flight.
    ///
    /// 1,024 by default: ten times the common HTTP/2 default of 100, and with small messages
    /// still under 1 MiB of call state for a connection.
    pub calls_max: u32,
    /// The most bytes of large messages being received at once.
    ///
    /// 256 MiB by default: four messages of the largest size that the examples use (64 MiB).
    pub receiving_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_len_max: 4 << 20,
            metadata_len_max: 16 << 10,
            calls_max: 1024,
            receiving_bytes_max: 256 << 20,
        }
    }
}

impl Limits {
    /// The longest frame that these limits allow: header, metadata and message.
    #[must_use]
    pub fn frame_len_max(&self) -> u64 {
        let head = crate::wire::HEADER_LEN as u64 + u64::from(self.metadata_len_max);
        head.saturating_add(self.message_len_max)
    }
}
