//! The driver: what `farcall-bench` does with its arguments.
//!
//! `bench` is what every figure is measured with: how much `effort`, which programs. `side` and
//! `pair` start the two processes of a side, on the cores and with the connections of a `setting`;
//! `comparison` measures sides against each other,
//! `system_calls` counts what they ask of the kernel, and `run` goes through the figures. `by_hand`
//! is for a person: one server, one client, one line.

mod bench;
mod by_hand;
mod comparison;
mod effort;
mod options;
mod pair;
mod run;
mod sample;
mod setting;
mod side;
pub mod system_calls;

pub use bench::{Bench, LOOPBACK};
pub use by_hand::HandCommand;
pub(crate) use comparison::medians;
pub use comparison::{Comparison, Metric};
pub use effort::Effort;
pub use options::Options;
pub use pair::Pair;
pub use run::run;
pub use sample::Sample;
pub use setting::Setting;
pub use side::Side;
