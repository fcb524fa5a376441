//! How much of large frames is sent at a time, and how much the peer may not have read yet. Free
//! of I/O and of clocks.

pub(crate) mod acks;
pub(crate) mod chunk_len;
pub(crate) mod window;
