//! One set of behaviours that farcall shows over every transport, and what it takes to run them.
//!
//! A [`Behaviour`] is an async function over a [`Harness`], which knows the [`Path`] under test and
//! nothing else changes between transports: `tests/inproc.rs`, `tests/tcp.rs`, `tests/tls.rs`,
//! `tests/unix.rs`, `tests/stream.rs`, `tests/rdma_sim.rs`, `tests/rdma_sim_windows.rs` and
//! `tests/rdma.rs` run the same list, and `tests/tonic.rs` what tonic itself has a counterpart of.
//! [`Probe`], of `tests/probe`, is the service that they call; it also runs under
//! tonic's own server, as does that of gRPC's interoperability tests. What only concerns bytes on a
//! socket is not a behaviour: [`raw_peer`] is for tests of that.
#![forbid(unsafe_code)]

mod behaviours;
mod certificates;
pub mod control_plane;
mod failure;
mod harness;
mod interop;
mod payload;
pub mod raw_peer;
mod runner;
mod shared_settings;

/// Code generated from gRPC's own `.proto` files for interoperability tests.
#[allow(missing_docs, rustdoc::all, clippy::all, reason = "generated from others' comments")]
pub mod interop_proto {
    include!(concat!(env!("OUT_DIR"), "/grpc.testing.rs"));
}

/// The `FileDescriptorSet` of gRPC's own files.
pub const INTEROP_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/interop.bin"));

pub use behaviours::{Behaviour, behaviours, ping_pong};
pub use failure::{Cause, Failure, check};
pub use farcall_probe::watch::{Watch, WatchEvent};
pub use farcall_probe::{Probe, entries, proto, small_calls};
pub use harness::on_loopback::OnLoopback;
pub use harness::one_server::OneServer;
pub use harness::running::Running;
pub use harness::{Harness, Path, Rules};
pub use interop::interop_servers;
pub use payload::payload;
pub use runner::{run, run_all};
pub use shared_settings::SharedSettings;
