//! Fair shares of a resource, for holders that compete for it.

#[cfg(any(test, feature = "sim"))]
pub(crate) mod jain;
pub(crate) mod queue;
pub(crate) mod semaphore;
