//! The provider over a simulated network: the objects that queues hold, as thin as those of
//! `ibverbs` are over the library. The network itself has no unsafe code.

mod context;
mod device;
mod memory;
mod queue_pair;
mod queues;
#[cfg(test)]
mod tests;

pub use context::SimProvider;
