//! The goals, the measured figures, and the file and the table that show them.
//!
//! Nothing here measures.

mod figure;
mod goals;
mod results;
mod table;

pub use figure::{Figure, Part, Sides, Standing};
pub use goals::{Better, GOALS, Goal, Group, PartGoal, goal};
pub use results::Results;
pub use table::Table;
pub(crate) use table::short;
