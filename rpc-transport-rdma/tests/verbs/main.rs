//! The verbs ring on simulated devices and on real ones, which have to agree: two ends of a
//! connection in one process.
//!
//! Real devices need two local addresses that RDMA ports have, or one: `FARCALL_RDMA_ADDRS`, by
//! default `10.0.0.1,10.0.1.1` as in the Soft-RoCE guest. Without such ports a test says that it
//! skipped them, unless `FARCALL_RDMA` is `required`. Every wait is bounded.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[cfg(feature = "ibverbs")]
mod choosing;
mod closing;
mod events;
mod faults;
#[cfg(feature = "ibverbs")]
mod hardware;
mod lossy;
mod messages;
mod rates;
mod reads;
mod rig;
mod windows;
mod wrong_reads;
