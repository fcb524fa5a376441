//! The bytes on a stream: records, and the frames that are put together from them. Free of I/O.

pub(crate) mod decoder;
pub(crate) mod read_buffer;
pub(crate) mod record;
