//! The driver: what `farcall-bench` does with its arguments.
//!
//! `bench` is what every figure is measured with: how much effort, which programs. `side` and
//! `pair` start the two processes of a side, `comparison` measures sides against each other, and
//! `run` goes through the figures. `by_hand` is for a person: one server, one client, one line.

mod bench;
mod by_hand;
mod comparison;
mod options;
mod pair;
mod run;
mod sample;
mod side;

pub use bench::{Bench, Effort};
pub use by_hand::HandCommand;
pub use comparison::{Comparison, Metric};
pub use options::Options;
pub use pair::{Pair, Setting};
pub use run::run;
pub use sample::Sample;
pub use side::Side;
