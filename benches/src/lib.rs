//! The benchmark harness: one driver, `farcall-bench`, for farcall on every transport and for the
//! peers that it is compared with.
//!
//! A *figure* is one line of the goals, such as T2: a ratio of two sides measured in one run, since
//! machines are shared and an absolute number proves little. `figures` says what they are and keeps
//! them; `statistics` and `rounds` are the arithmetic and the order of measuring. Sides are pairs
//! of *worker* processes, a server and a client: `worker` is what runs inside of one, `subjects`
//! the implementations it can be, `processes` how the driver starts, asks and ends them. `driver`
//! puts these together; `tcp`, `rdma` and `scale` hold the figures of the groups, `run` goes
//! through them, and `report` makes the pages that show them. `host_budgets` and
//! `rdma::BudgetOptions` count instructions.
#![forbid(unsafe_code)]

mod callgrind;
pub mod driver;
pub mod figures;
pub mod host_budgets;
pub mod processes;
pub mod rdma;
pub mod report;
pub mod rounds;
pub mod run;
pub mod scale;
pub mod service;
mod silent_recorder;
pub mod statistics;
pub mod subjects;
pub mod tcp;
pub mod worker;

/// Messages, tonic's modules and farcall's, from `proto/bench.proto`.
#[allow(missing_docs, missing_debug_implementations, clippy::all, clippy::pedantic)]
#[allow(unreachable_pub)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/farcall.bench.rs"));
}

/// The same with `Vec<u8>` fields, as they are by default.
#[allow(missing_docs, missing_debug_implementations, clippy::all, clippy::pedantic)]
#[allow(unreachable_pub)]
pub mod vectors {
    include!(concat!(env!("OUT_DIR"), "/vectors/farcall.bench.rs"));
}
