//! The server's role: the suite's service under the default rules, and a handler that blocks.

use std::time::Duration;

use farcall::ServerBuilder;
use farcall::{Keepalive, Server};
use tokio::runtime::Handle;

use super::control::{answer_until_end, log_to_stderr};
use super::message::Standing;
use crate::RigError;
use crate::conductor::message::{REPORT, line};
use crate::conductor::role::misunderstood;
use farcall_probe::relay::relay;
use farcall_suite::proto::probe_rpc::ProbeService;
use farcall_suite::{Failure, Probe, SharedSettings};

/// Rules that differ from the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::Args)]
pub struct ServePlan {
    /// The most connections at a time.
    #[arg(long)]
    connections: Option<u32>,
    /// The most memory that clients can make the server keep, in MiB.
    #[arg(long)]
    memory_mib: Option<u64>,
    /// Silence before a ping, in milliseconds. The answer may take twice as long.
    #[arg(long)]
    keepalive_ms: Option<u64>,
    /// Time that the handler of `Relay.Ask` blocks its thread, in milliseconds.
    #[arg(long, default_value_t = 0)]
    block_ms: u64,
}

/// Keepalive with a short interval, so that a row need not last half a minute.
pub(super) fn short_keepalive(interval_ms: Option<u64>) -> SharedSettings {
    SharedSettings::new(|settings| {
        if let Some(interval) = interval_ms.map(Duration::from_millis) {
            settings.keepalive = Keepalive::new(interval, 2 * interval);
        }
    })
}

/// Serves on loopback and prints where, answers questions, and ends with its standard input.
///
/// # Errors
///
/// Returns an error if it cannot listen, or if it is asked something that it does not know.
pub fn serve(runtime: &Handle, plan: &ServePlan) -> Result<(), RigError> {
    log_to_stderr();
    let (probe, _watch) = Probe::new();
    let block = Duration::from_millis(plan.block_ms);
    let blocking = relay(move |_| async move {
        // What handlers must not do, and do.
        std::thread::sleep(block);
        Ok(())
    });
    let builder = short_keepalive(plan.keepalive_ms).server(Server::builder());
    let builder = builder.add_service(ProbeService::new(probe)).add_service(blocking);
    let connections = plan.connections.into_iter();
    let builder = connections.fold(builder, ServerBuilder::max_connections);
    let memory = plan.memory_mib.map(|mib| mib << 20).into_iter();
    let builder = memory.fold(builder, ServerBuilder::max_memory);
    let server = builder.build();
    // With the offers of upgraded paths, which are a part of what hostile clients attack.
    let listener = runtime.block_on(server.bind("auto://127.0.0.1:0")).map_err(Failure::from)?;
    println!("{}", listener.local_address().to_string().replacen("auto://", "", 1));
    runtime.spawn(listener.serve());
    answer_until_end(|text| match text {
        REPORT => {
            let connections = server.connections();
            let in_flight = connections.iter().map(|it| it.calls_in_flight as u64);
            let calls_in_flight = in_flight.sum();
            line(&Standing { connections: connections.len() as u64, calls_in_flight })
        }
        other => Err(misunderstood(other)),
    })
}
