//! The list of targets.

use rpc_transport_rdma::fuzzing;

use crate::{client, port, proxy_header, records, server, wire};

/// Something that takes any bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and its corpus's.
    pub name: &'static str,
    /// Panics when a property does not hold.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Number of mutated inputs of a short campaign.
    pub runs: u32,
}

/// All targets.
#[must_use]
pub fn targets() -> Vec<Target> {
    // A decoder takes a microsecond, a session a hundred: each target gets a few seconds of a
    // debug build.
    let decoder = |name, run, seeds| Target { name, run, seeds, runs: 40_000 };
    let session = |name, run, seeds| Target { name, run, seeds, runs: 3_000 };
    vec![
        decoder("header", wire::header, wire::header_seeds),
        decoder("metadata", wire::metadata, wire::metadata_seeds),
        decoder("outcome", wire::outcome, wire::outcome_seeds),
        decoder("hello", wire::hello, wire::hello_seeds),
        decoder("records", records::run, records::seeds),
        decoder("proxy_header", proxy_header::run, proxy_header::seeds),
        decoder("rdma_message", fuzzing::message, fuzzing::message_seeds),
        decoder("rdma_blob", fuzzing::conn_params, fuzzing::conn_params_seeds),
        Target {
            runs: 10_000,
            ..session("rdma_connection", fuzzing::connection, fuzzing::connection_seeds)
        },
        session("client", client::run, client::seeds),
        session("server", server::run, server::seeds),
        session("port", port::run, port::seeds),
    ]
}
