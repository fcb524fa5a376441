//! Outgoing frames, from a sender's memory to the slices of a write. Free of I/O.

pub(crate) mod batch;
pub(crate) mod frame;
pub(crate) mod pass;
pub(crate) mod queue;
pub(crate) mod scheduler;
pub(crate) mod turn;
