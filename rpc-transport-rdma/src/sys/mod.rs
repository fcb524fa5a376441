//! The bottom of the crate: libibverbs' ABI, with its calls as functions of checked types, and the
//! [`provider`] of verbs.
//!
//! The declarations and functions of libibverbs own nothing and decide nothing: they translate one
//! call into values with checked types.
//!
//! # Claims
//!
//! - **S1 (layout).** Every structure that crosses the boundary has C's size and offsets. A test
//!   (`layout.rs`) compiles a C file against the installed header and compares.
//! - **S2 (plain data).** The attribute structures are integers, arrays of integers, C enums that
//!   are declared as integers, and nullable pointers. All-zero bytes are a valid value.
//! - **S3 (values of the device are not Rust enums).** An event's type, a port's state or a
//!   completion's status is read as an integer and matched with a catch-all arm, so that a value
//!   of a newer kernel is a value and not undefined behaviour.
//! - **S4 (thread safety).** libibverbs may be called from any thread on any object at any time
//!   (ibv_open_device(3) onward: its verbs take the object's own lock), as long as the object is
//!   not being destroyed meanwhile; the owner of an object guarantees that.

#[cfg(feature = "ibverbs")]
pub(crate) mod abi;
#[cfg(feature = "ibverbs")]
mod async_event;
#[cfg(feature = "ibverbs")]
mod errno;
#[cfg(feature = "ibverbs")]
mod gid_table;
#[cfg(feature = "ibverbs")]
#[cfg(test)]
mod layout;
#[cfg(feature = "ibverbs")]
mod port;
pub(crate) mod provider;

#[cfg(feature = "ibverbs")]
pub(crate) use async_event::{EventSubject, RawAsyncEvent, next_async_event};
#[cfg(feature = "ibverbs")]
pub(crate) use errno::{check_errno, check_pointer};
#[cfg(feature = "ibverbs")]
pub(crate) use gid_table::{RawGidEntry, query_gid_table};
#[cfg(feature = "ibverbs")]
pub(crate) use port::{query_device, query_port};
