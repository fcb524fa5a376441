//! The bytes on a stream: records, and the frames assembled from them. Free of I/O.

pub(crate) mod decoder;
pub(crate) mod read_buffer;
pub(crate) mod record;
