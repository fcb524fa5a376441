//! Conducts faults, attacks and scenarios: processes in roles of their own, and a last bound.
//!
//! `process` starts this program in another role and asks it; `role` is the other end of that
//! conversation, and `message` puts values on its lines. `command` runs programs of the system,
//! `wait` waits for what nothing announces, and `watchdog` names what hangs in spite of all bounds.

pub(crate) mod command;
pub(crate) mod message;
pub(crate) mod process;
pub(crate) mod role;
pub(crate) mod wait;
pub(crate) mod watchdog;
