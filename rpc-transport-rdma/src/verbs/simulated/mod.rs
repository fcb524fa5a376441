//! The provider over a simulated network: the objects that the queues above hold, as thin as those
//! of `ibverbs` are over the library. The network itself is `sim`, which has no unsafe code.

mod completion_queue;
mod context;
mod device;
mod memory_window;
mod provider;
mod queue_pair;
mod receive_queue;
mod region;
#[cfg(test)]
mod tests;

pub use provider::SimProvider;
