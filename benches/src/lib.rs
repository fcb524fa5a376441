//! What the benchmarks share: the service that they call.
#![forbid(unsafe_code)]

pub mod service;

/// Messages, tonic's modules and farcall's, from `proto/bench.proto`.
#[allow(missing_docs, missing_debug_implementations, clippy::all, clippy::pedantic)]
#[allow(unreachable_pub)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/farcall.bench.rs"));
}
