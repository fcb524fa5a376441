//! Thousands of large calls over RDMA, most of them given up at a random moment, beside neighbours
//! on the same connections that are not: what comes is right, nothing else is harmed, and nothing
//! is left.
//!
//! `victim` makes the calls that are given up, `neighbour` the others, `run` puts them together and
//! looks at what is left, `tally` counts. The server is another process.

mod neighbour;
mod run;
mod tally;
mod victim;

pub use run::{CancelPlan, cancels};
