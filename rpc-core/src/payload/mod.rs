//! Messages as bytes: how they are encoded, and the memory that they are encoded in.

pub(crate) mod block;
pub(crate) mod buffer;
pub(crate) mod encode;
pub mod pool;
pub(crate) mod tail_field;
