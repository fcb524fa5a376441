//! Quotas: how what is scarce is divided between those that compete for it.
//!
//! `queue` decides, purely, who is served and in what order; `semaphore` holds the tasks that wait.
//! `slots` divides the receive slots of a lane between its connections by a dynamic threshold,
//! `half_open` its places between addresses, and `admission` a device's firmware between
//! handshakes.

pub(crate) mod admission;
pub(crate) mod half_open;
pub(crate) mod queue;
pub(crate) mod semaphore;
pub(crate) mod slots;
