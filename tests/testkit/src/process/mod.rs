//! Child processes: none outlives the value that stands for it, and every wait for one is bounded.
//!
//! [`bounded`] runs a command to its end. [`Process`] is a child that answers lines with lines.
//! `registry` knows every running child, so that an interrupt or a watchdog can kill them all.

pub mod bounded;
mod child;
mod command_line;
mod dialogue;
mod error;
mod log;
mod registry;

pub use child::Group;
pub use dialogue::Process;
pub use error::ProcessError;
pub use log::ProcessLog;
pub use nix::sys::signal::Signal;
pub use registry::{interrupt, interrupted, kill_all};
