//! The fault matrix: what calls of every kind see when processes, links and devices fail, over TCP
//! and over RDMA, and whether that is what they may see.
//!
//! `rows` is the table of faults and of what each allows, `rule` judges, and both are pure. `load`
//! makes calls while `conduct` takes a row from its beginning to its end on its own thread, so that
//! nothing which the fault does to the runtime can keep it from being lifted. The server is another
//! process. Everything waits within bounds, and `conductor::watchdog` names what hangs in spite of
//! them.
//!
//! It runs in the virtual machine only (`cargo xtask faults`), because it breaks its host. What the
//! simulated device can show, with seeds and in any order, is not here.

mod call;
mod cancellations;
mod cancels;
mod column;
mod conduct;
mod config;
mod counters;
mod device;
mod far_host;
mod fault;
mod lab;
mod link;
mod load;
mod matrix;
mod newcomer;
mod rows;
mod rule;
mod sample;
mod serve;
mod table;

pub use cancels::{CancelPlan, cancels};
pub(crate) use device::Resources;
pub use load::run_for_ever;
pub use matrix::{list, matrix, two_hosts};
pub use serve::serve;
