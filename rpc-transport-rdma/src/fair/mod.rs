//! Fair shares of a resource, for holders that compete for it.

pub(crate) mod queue;
pub(crate) mod semaphore;
