//! What the runtime asks of tokio beyond its public scheduler and timers.

pub mod handoff;
pub(crate) mod long_wait;
