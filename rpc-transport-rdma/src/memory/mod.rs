//! Registered memory: who owns which bytes, and when the CPU may look at them.
//!
//! A [`Mapping`] is anonymous memory of our own; a [`Region`] is a mapping that a device knows. A
//! [`SlotPool`] cuts one region into equal slots for small messages, a [`RegionPool`] cuts as many
//! as its budget allows into blocks for large ones. Moving is the typestate: a [`Slot`] or
//! [`LargeBuffer`] gives slices while it is owned; posted, it has been moved into a queue and gives
//! none.
//!
//! Deliberately not here: posting, and any decision about what is sent from where.
//!
//! # Claims
//!
//! - **M1 (mapping).** A [`Mapping`] alone owns its pages: `len` bytes from a page-aligned `base`,
//!   readable, writable and zeroed at first, until it is dropped. Every byte is therefore
//!   initialised at any time, whatever a device has written since.
//! - **M2 (bounds).** `Region::span` asserts that a span lies within the mapping.
//! - **M3 (one owner).** A span belongs to one value at a time. Slot `i` of a pool begins at
//!   `i * stride` with `stride >= slot_len`, so slots are disjoint; an index is in the free list
//!   or in one [`Slot`], never in two places. Block `i` of a slab is the `i`-th run of its class's
//!   bytes, so blocks are disjoint; a block is in a free list or in one [`LargeBuffer`]. A [`Sink`]
//!   has no way to its bytes but giving the buffer back.
//! - **M4 (no device writes into owned memory).** A device writes only on behalf of a posted
//!   receive or READ: remote writes are never granted ([`Access`] has no such value) and receives
//!   write only into the region of their own queue, which hands out no slots. READs write into
//!   buffers that were moved into a queue pair inside a [`Sink`]. So while a `Slot` or a
//!   `LargeBuffer` can be dereferenced, no device writes to it. A *peer* may read a source region
//!   at any time; reading changes nothing that this process could observe.
//! - **M5 (order).** A region is deregistered before it is unmapped, and leaked if it cannot be
//!   ([`RawMemoryRegion`](crate::sys::provider::RawMemoryRegion)'s contract).
//! - **M6 (fork).** Mappings are not inherited by child processes, so a fork never makes the
//!   kernel move a pinned page away from under the device; libibverbs protects its own memory.

#[forbid(unsafe_code)]
mod block_store;
#[forbid(unsafe_code)]
mod handout;
mod large_buffer;
#[forbid(unsafe_code)]
mod lent_buffer;
#[forbid(unsafe_code)]
mod memlock;
#[forbid(unsafe_code)]
mod pool_share;
mod region;
#[forbid(unsafe_code)]
mod region_pool;
#[forbid(unsafe_code)]
mod registration;
#[forbid(unsafe_code)]
mod slabs;
mod slot_pool;
#[forbid(unsafe_code)]
mod window;

pub use block_store::{Lent, MemlockArbiter};
pub use handout::Handout;
pub use large_buffer::{LargeBuffer, Sink};
pub use lent_buffer::LentBuffer;
pub(crate) use pool_share::PoolShare;
pub use region::Region;
pub use region_pool::{PoolBytes, PoolError, PoolRules, RegionPool};
pub use slot_pool::{Slot, SlotPool};
pub(crate) use window::MemoryWindows;
pub use window::{Binding, Window};

pub use crate::sys::provider::{Access, Mapping, PageKind};
