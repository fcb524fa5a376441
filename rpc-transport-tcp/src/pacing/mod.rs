//! Limits on large frames: the length of chunks, and the bytes that the peer has not read. Free of
//! I/O and of clocks.

pub(crate) mod acks;
pub(crate) mod chunk_len;
pub(crate) mod window;
