//! The behaviours that every transport must show, one file per concern.

mod blocking;
mod cancel;
mod concurrency;
mod connections;
mod context;
mod deadline;
mod echo;
mod explain;
mod handover;
mod inherited;
mod interceptors;
mod interop_calls;
mod interop_ends;
mod layers;
mod limits;
mod list;
mod liveness;
mod max_calls;
mod metadata;
mod panic;
mod replay;
mod restart;
mod shutdown;
mod status;
mod streams;
mod unimplemented;
mod unread;

use std::time::Duration;

pub use interop_calls::ping_pong;
pub use list::{Behaviour, behaviours};

/// Long enough for a request to reach its handler first, or for a stream to begin, on the slowest
/// machine that is tried.
const SOON: Duration = Duration::from_secs(2);
