//! The connection of a channel: made when a call needs it, replaced when it ends or when the
//! upgraded path is back.
//!
//! What happens next is decided by the pure machine `policy/failover`. One task, the manager, acts
//! on it (`driver`). It alone may change the state, because it holds the writing end of the channel
//! that the state lies in (`snapshot`). Callers read the state there. One that finds no
//! open connection asks the manager and waits for its answer (`handle`).
//!
//! The task exists while there is something to wait for: a connection that may end, an attempt, a
//! time. In between, and when the runtime of the task ends, the driver lies in the handle, from
//! where the next caller takes it to a task on its own runtime.

mod driver;
mod handle;
mod snapshot;
#[cfg(test)]
mod tests;

pub use crate::policy::path::{Path, PathCounts};
pub(super) use handle::ConnectionManager;
