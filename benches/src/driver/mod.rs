//! The driver: what `farcall-bench` does with its arguments.
//!
//! `bench` is what every figure is measured with: how much `effort`, which programs, which devices
//! (`place`). `side` and `pair` start the two processes of a side, on the cores and with the
//! connections of a `setting`; `comparison` measures sides against each other, and `system_calls`
//! counts what they ask of the kernel. `by_hand` is for a person: one server, one client, one line.

mod bench;
mod by_hand;
mod comparison;
mod effort;
mod options;
mod pair;
mod place;
mod sample;
mod setting;
mod side;
pub mod system_calls;

pub use bench::{Bench, LOOPBACK};
pub(crate) use bench::{commit, machine};
pub use by_hand::HandCommand;
pub(crate) use comparison::medians;
pub use comparison::{Comparison, Metric};
pub use effort::Effort;
pub use options::Options;
pub use pair::Pair;
pub use place::Place;
pub use sample::Sample;
pub use setting::Setting;
pub use side::Side;
