//! Many calls of all kinds at once, cancelled and timed out at random: every one ends, nothing is
//! left in any table, and memory stays flat.
//!
//! The count bounds it, not the time. `tests/soak.rs` runs a short one on every build, the program
//! `soak` a long one:
//! `cargo run --release -p farcall-rig --bin soak -- tcp`.
//!
//! `churn` is the other kind, which the time bounds: connections come and go as well, and what the
//! process has (`holdings`) is looked at over and over, and judged in the end (`flatness`).

mod call;
mod churn;
mod flatness;
mod holdings;
mod run;
mod tally;

pub use churn::{Churn, ChurnPlan, churn};
pub use run::{Plan, Report, soak};
pub use tally::{Ended, Tally};
