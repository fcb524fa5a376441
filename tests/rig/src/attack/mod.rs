//! Attacks over TCP on loopback: one hostile peer a row, honest clients beside it, and a verdict.
//!
//! `rows` is the table of attacks with the bounds of their verdicts, `judge` compares what was
//! measured with the bounds, `tally` and `log_text` count; these are pure. `conduct` takes a row
//! from its beginning to its end. The server, the honest client and the hostile peer are processes
//! of their own, so that memory and processor time are the victim's alone: `serve`, `call` and
//! `hostile`. The hostile peers write frames by hand ([`farcall_suite::raw_peer`]).
//!
//! Attacks on RDMA paths are elsewhere: they need devices, simulated ones in tests of the suite
//! and of the RDMA crate, and Soft-RoCE in `rdma_path`.

mod call;
mod conduct;
mod control;
mod exposure;
mod hostile;
mod judge;
mod log_text;
mod matrix;
mod measure;
mod message;
mod row;
mod rows;
mod scale;
mod serve;
mod table;
mod tally;

pub use call::{CallPlan, call};
pub use exposure::Exposure;
pub use hostile::{Assault, Trap, assault, trap};
pub use matrix::{list, matrix};
pub use scale::Scale;
pub use serve::{ServePlan, serve};
