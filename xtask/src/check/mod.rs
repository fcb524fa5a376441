//! `cargo xtask test`: every check of the workspace, each within a bound, with a table at the end.
//!
//! `step` names the steps, `steps` runs them in order, and `beside` runs some beside those. `unit`
//! is the step with the most programs. `cost` measures time, and `summary` is the table at the end.

mod api_page;
mod beside;
mod cost;
mod step;
mod steps;
mod summary;
mod unit;
mod user_docs;

pub use cost::{Cost, Meter};
pub use step::CheckStep;
pub(crate) use steps::{list, run};
