//! Compression of messages between hosts, off by default.
//!
//! Each side says in its Hello which encodings it accepts ([`crate::wire::hello::DEFLATE`] is the
//! one there is). A sender compresses what its own settings say, if the peer accepts it; a message
//! that does not become smaller goes as it is. Nothing is compressed over RDMA, over Unix sockets
//! or within a process, where bytes cost less than the time to compress them.
//!
//! Who compresses, and who inflates, is the task of the call: the caller, the handler, the reader
//! of a stream. Both work in pieces of 64 KiB, and yield between them. The receiver knows
//! the length that a message says it grows to before it inflates: it is checked against the limits
//! and counted in the memory budget, and a message that grows beyond it ends its call.

#[cfg(feature = "compression")]
mod deflate;
#[cfg(feature = "compression")]
mod inflate;
mod message;
mod negotiated;
#[cfg(not(feature = "compression"))]
mod not_built_in;
mod settings;

#[cfg(feature = "compression")]
pub(crate) use deflate::deflate;
#[cfg(feature = "compression")]
pub(crate) use inflate::inflate;
pub(crate) use message::Deflated;
pub use negotiated::Negotiated;
pub(crate) use negotiated::is_due;
#[cfg(not(feature = "compression"))]
pub(crate) use not_built_in::{deflate, inflate};
pub use settings::{Compression, check_min_len};
#[doc(hidden)]
pub use settings::{CompressionOverlay, compressed_from};

/// What is compressed or inflated at a time, in bytes. It takes about 1 ms to compress and 0.2 ms
/// to inflate as much, which a connection's driver can wait for; longer messages yield.
#[cfg(feature = "compression")]
pub(crate) const PIECE_LEN: usize = 64 << 10;

/// What inflating holds beside the message, in bytes: deflate's window of 32 KiB, and its tables.
pub(crate) const INFLATER_HELD: u64 = 64 << 10;

/// How many bytes a codec has moved, from its counts before and after. They fit a slice, so that
/// they are always in range.
#[cfg(feature = "compression")]
fn moved(before: u64, after: u64) -> usize {
    usize::try_from(after - before).unwrap_or(usize::MAX)
}

/// How many times longer a message can be than what it was deflated to: a match of 258 bytes takes
/// two bits at least.
#[cfg(feature = "compression")]
pub(crate) const RATIO_MAX: usize = 1032;
