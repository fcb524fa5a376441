//! The limits of one side of a connection, each with the reason for its default.
//!
//! Both sides tell theirs in the Hello, so that a sender refuses what the receiver would.

use crate::calls::window::Window;

/// What one side accepts from its peer on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest message accepted, in bytes of its protobuf encoding.
    ///
    /// 4 MiB by default, as gRPC and tonic have it, so that a service moved to farcall accepts
    /// neither less nor, unasked, more than before. It may be beyond 4 GiB where the other limits
    /// and the memory are; one message of a stream has 1 GiB at most, whatever this says.
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
    /// The most bytes of large messages being received at once. Senders wait with more; a longer
    /// message comes alone.
    ///
    /// 256 MiB by default: almost four messages of the largest size that the examples use (64 MiB).
    pub receiving_bytes_max: u64,
    /// How many messages of one stream may be on their way to this side or wait to be read.
    ///
    /// 256 by default: with the smallest messages that fill one coalesced frame, so that a reader
    /// which takes them one by one never makes the sender wait for a round trip.
    pub stream_messages_max: u32,
    /// How many bytes of one stream may be on their way to this side or wait to be read.
    ///
    /// 256 KiB by default: twice what a 10 GbE link carries in 100 us, and, times the default
    /// 1,024 calls, the memory that one connection can be made to hold: 256 MiB. One message more
    /// than that may pass, and counts against `receiving_bytes_max` when it is large.
    pub stream_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_len_max: 4 << 20,
            metadata_len_max: 16 << 10,
            calls_max: 1024,
            receiving_bytes_max: 256 << 20,
            stream_messages_max: 256,
            stream_bytes_max: 256 << 10,
        }
    }
}

impl Limits {
    /// The window of each stream to this side.
    pub(crate) fn window(&self) -> Window {
        // A window of nothing would never open, and half the range of a count is ambiguous.
        Window {
            messages: self.stream_messages_max.clamp(1, 1 << 16),
            bytes: self.stream_bytes_max.clamp(1, 1 << 30),
        }
    }
}
