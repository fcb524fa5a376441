//! What a server keeps in memory because of its clients, and the bound on it.
//!
//! Every connection has limits of its own, and ten thousand of them have ten thousand times as
//! much. So the connections of a server share one budget, by demand (see [`crate::quota`]). It
//! counts what clients decide the size or the time of:
//!
//! - *queued*: answers that wait for memory, and frames that a transport has and the network has
//!   not taken;
//! - *received*: large requests from their announcement until their call's handler has ended, and
//!   large frames of streams until they have arrived;
//! - handshakes, each as much as it may say.
//!
//! What does not fit is refused before it is received or executed, with the limit's name. What
//! exists already is counted although it does not fit: frames of streams within their windows,
//! frames that were encoded. Then others get less, and a new call nothing.
//!
//! Left out is what handlers keep, messages that wait in the windows of streams, which the limits
//! of each connection bound, and registered memory of RDMA devices, which has pools with limits of
//! their own.

mod machine;
mod share;

pub use share::{MemoryCharge, MemoryShare};
pub(crate) use share::{MemoryHolder, memory_limit};
