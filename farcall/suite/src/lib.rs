//! One set of behaviours that farcall shows over every transport, and what it takes to run them.
//!
//! A [`Behaviour`] is an async function over a [`Harness`], which knows the [`Path`] under test and
//! nothing else changes between transports: `tests/inproc.rs`, `tests/tcp.rs` and `tests/rdma.rs`
//! run the same list. [`Probe`] is the service that they call, generated from `proto/suite.proto`;
//! it also runs under tonic's own server. What only concerns bytes on a socket is not a behaviour:
//! [`raw_peer`] is for tests of that.
#![forbid(unsafe_code)]

mod behaviours;
pub mod entries;
mod failure;
mod harness;
mod payload;
mod probe;
pub mod raw_peer;
mod runner;
mod running;
pub mod soak;
mod streams;
mod watch;

/// What is generated from `proto/suite.proto`.
#[allow(missing_docs, reason = "generated")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/farcall.suite.rs"));
}

pub use behaviours::{Behaviour, behaviours};
pub use failure::{Cause, Failure};
pub use harness::{Harness, Path};
pub use payload::payload;
pub use probe::Probe;
pub use runner::run;
pub use running::Running;
pub use watch::{Event, Watch};
