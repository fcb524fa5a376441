//! Conducts faults and attacks: processes in roles of their own, and a last bound.

pub(crate) mod process;
pub(crate) mod watchdog;
