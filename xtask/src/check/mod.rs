//! `cargo xtask test`: every check of the workspace, each within a bound, with a table at the end.
//!
//! `step` names the steps, `steps` runs them, `unit` the one with the most programs, `cost` is what
//! they took, `summary` shows how they went.

mod api_page;
mod cost;
mod step;
mod steps;
mod summary;
mod unit;
mod user_docs;

pub use cost::{Cost, Meter};
pub use step::Step;
pub(crate) use steps::{list, run};
