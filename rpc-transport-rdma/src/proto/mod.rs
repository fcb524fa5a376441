//! The protocol of an RDMA connection: what its messages say, and the state machines behind them.
//!
//! Nothing here knows a queue pair or a task: values come in, decisions go out, and time is an
//! argument.

pub(crate) mod clock;
pub(crate) mod conn_params;
pub(crate) mod connection;
pub(crate) mod endpoint;
pub(crate) mod flow;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
#[cfg(test)]
mod recorded_tests;
pub(crate) mod remote_memory;
pub(crate) mod rndv;
pub(crate) mod wire;
