//! A channel for unit tests of clients: a test says how each method answers, and looks afterwards
//! at what was called.
//!
//! Nothing travels; limits, connections and deadlines have no part in it.
//! What a server does belongs into a test with a real server, over `inproc://` for one.

mod calls;
mod channel;
mod script;

pub use calls::RecordedCall;
pub use channel::MockChannel;
