//! The provider over libibverbs.
//!
//! Each object is a pointer that libibverbs gave, an `Arc` to each parent, and a `Drop` that
//! destroys it once (V1). Where destruction fails the object is leaked with its parents, which
//! keeps the memory that the device might still use.
//!
//! Deliberately not here: accounting, checks of arguments against limits, ownership of buffers.

mod completion_queue;
mod context;
mod device;
mod memory;
mod provider;
mod queue_pair;
mod readiness;
#[forbid(unsafe_code)]
mod removal;
mod route;
mod shared_receive_queue;
#[forbid(unsafe_code)]
mod sysfs;

pub use provider::Ibverbs;
