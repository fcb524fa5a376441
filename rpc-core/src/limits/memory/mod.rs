//! The memory that a server keeps because of its clients, and the bound on it.
//!
//! Every connection has limits of its own, and ten thousand of them have ten thousand times as
//! much. So the peers of a server share one budget, by demand (see [`crate::limits::quota`]). A
//! holder is an address, whatever connections it has; a peer without one is a holder for each of
//! its connections. The budget counts what clients decide the size or the time of:
//!
//! - *queued*: answers that wait for memory, and frames that a transport has and the network has
//!   not taken;
//! - *received*: requests of 4 KiB and more until their call's handler has ended, large ones from
//!   their announcement on; large frames of streams until they have arrived; the windows of streams
//!   of requests, as far as they were granted, because their clients may fill them at any time, and
//!   what waits in them beyond that;
//! - handshakes: what each has said so far, and what that is decoded to.
//!
//! What does not fit is refused before it is received or executed, with the limit's name. What
//! exists already is counted although it does not fit: the one message that crosses the line of a
//! stream's window, frames that were encoded. Then others get less, and a new call nothing.
//!
//! A stream is never failed for want of memory by what it is granted. Its window begins with 16 KiB
//! and is widened while half of the budget is free and its holder keeps room for more: established
//! streams go on, slowed by flow control. The windows of a client's connection have a budget of
//! their own, beside which nothing counts.
//!
//! Left out is what handlers keep, shorter requests, what metadata is decoded to, and registered
//! memory of RDMA devices, which has pools with limits of their own.

mod relief;
mod share;

pub(crate) use relief::{Holding, MemoryHolder, Pressure, Relief, Usage};
pub use share::{MemoryCharge, MemoryShare};
pub(crate) use share::{memory_limit, memory_max};
