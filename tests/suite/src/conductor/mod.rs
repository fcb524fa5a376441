//! What conducts the faults and the attacks: processes in roles of their own, and a last bound.

pub(crate) mod process;
pub(crate) mod watchdog;
