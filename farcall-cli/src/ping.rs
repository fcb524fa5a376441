//! `farcall ping`: the path that calls take and its reason, and the time of round trips.

use std::time::{Duration, Instant};

use farcall::balance::{Connectivity, EndpointStatus};
use farcall::prost::Message;
use farcall::{CallKind, Channel, Code, ConnectionInfo, Idempotency, MethodDescriptor};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::args::{Global, PingArgs};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::target::{self, Connected};

/// A request of gRPC's health service: the state of the whole server.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "farcall::prost")]
struct HealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// Its answer.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "farcall::prost")]
struct HealthReply {
    #[prost(int32, tag = "1")]
    status: i32,
}

static CHECK: MethodDescriptor = MethodDescriptor::new(
    "/grpc.health.v1.Health/Check",
    CallKind::Unary,
    Idempotency::NoSideEffects,
);

/// The measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Calls of the health service.
    Health,
    /// Calls that the server refuses as unknown, over HTTP/2: a round trip all the same.
    Refusal,
    /// Connections with their handshake. farcall's own protocol refuses an unknown method without
    /// a round trip.
    Connect,
}

/// Round trips, and what they showed.
#[derive(Debug)]
pub(crate) struct Pings {
    pub(crate) probe: Probe,
    /// The answer of the health service, as `SERVING`.
    pub(crate) health: Option<&'static str>,
    /// Round trips, in nanoseconds.
    pub(crate) times: Histogram<u64>,
}

/// The output of `--format json`.
#[derive(Debug, Serialize)]
struct Report {
    target: String,
    connect_us: f64,
    transport: Option<&'static str>,
    reason: String,
    health: Option<&'static str>,
    probe: &'static str,
    count: u64,
    min_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    servers: Vec<ServerReport>,
}

/// One server of a target.
#[derive(Debug, Serialize)]
pub(crate) struct ServerReport {
    pub(crate) address: String,
    pub(crate) state: &'static str,
    pub(crate) transport: Option<&'static str>,
    pub(crate) reason: String,
}

pub(crate) async fn run(global: &Global, args: &PingArgs, output: &Output) -> Result<(), Failure> {
    let Connected { channel, took } = target::connect(global, &args.target).await?;
    let pings = measure(global, &channel, &args.target, args.count).await?;
    let servers = target::settled(&channel, target::connect_limit(global)).await;
    let path = channel.path();
    if output.is_json() {
        return output.value(&Report {
            target: args.target.clone(),
            connect_us: micros(took),
            transport: path.transport(),
            reason: target::reason(&path),
            health: pings.health,
            probe: pings.probe.name(),
            count: pings.times.len(),
            min_us: pings.quantile_us(0.0),
            p50_us: pings.quantile_us(0.5),
            p99_us: pings.quantile_us(0.99),
            max_us: pings.quantile_us(1.0),
            servers: servers.iter().map(ServerReport::new).collect(),
        });
    }
    let transport = path.transport().unwrap_or("no connection");
    let ends = match servers.as_slice() {
        [EndpointStatus { info: Some(info), .. }] => ends(info),
        _ => String::new(),
    };
    output.line(&format!("connected in {} over {transport}{ends}", output::duration(took)))?;
    output.line(&format!("  why this path  {}", target::reason(&path)))?;
    if servers.len() > 1 {
        for server in servers.iter().map(ServerReport::new) {
            let ServerReport { address, state, transport, reason } = server;
            let transport = transport.unwrap_or(state);
            output.line(&format!("  server         {address} over {transport} ({reason})"))?;
        }
    }
    if let Some(health) = pings.health {
        output.line(&format!("  health         {health}"))?;
    }
    let times: Vec<_> = [("min", 0.0), ("p50", 0.5), ("p99", 0.99), ("max", 1.0)]
        .into_iter()
        .map(|(name, quantile)| format!("{name} {}", output::duration(pings.quantile(quantile))))
        .collect();
    let (count, unit) = (pings.times.len(), pings.probe.unit());
    output.line(&format!("  {count:<3} {unit:<10} {}", times.join("  ")))
}

/// Measures `count` round trips: by the health service if the server has one.
pub(crate) async fn measure(
    global: &Global,
    channel: &Channel,
    target: &str,
    count: u32,
) -> Result<Pings, Failure> {
    // Three digits, up to an hour.
    let times = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let mut pings = Pings { probe: Probe::Health, health: None, times };
    // The first round trip says which probe it is, and warms the path up.
    let first = check(global, channel).await;
    match first {
        Ok(status) => pings.health = Some(health_name(status)),
        Err(status) if status.code() == Code::NotFound => pings.health = Some("not reported"),
        Err(status) if status.code() == Code::Unimplemented => {
            let is_http = channel.path().transport() == Some("grpc");
            pings.probe = if is_http { Probe::Refusal } else { Probe::Connect };
        }
        Err(status) => return Err(Failure::call(&status)),
    }
    for _ in 0..count {
        let start = Instant::now();
        let took = match pings.probe {
            Probe::Connect => target::connect(global, target).await?.took,
            _ => match check(global, channel).await {
                Err(status) if !is_answer(status.code()) => return Err(Failure::call(&status)),
                _ => start.elapsed(),
            },
        };
        pings.times.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(pings)
}

async fn check(global: &Global, channel: &Channel) -> Result<i32, farcall::Status> {
    check_service(global, channel, String::new()).await
}

/// Asks the health service for the state of one service.
pub(crate) async fn check_service(
    global: &Global,
    channel: &Channel,
    service: String,
) -> Result<i32, farcall::Status> {
    let request = global.request(HealthRequest { service });
    let reply = farcall::client::unary::<_, HealthReply>(channel, &CHECK, request).await?;
    Ok(reply.into_inner().status)
}

/// Returns true if the server itself answers with `code`.
fn is_answer(code: Code) -> bool {
    matches!(code, Code::NotFound | Code::Unimplemented)
}

fn health_name(status: i32) -> &'static str {
    match status {
        1 => "SERVING",
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "UNKNOWN",
    }
}

impl Probe {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Refusal => "refusal",
            Self::Connect => "connect",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Connect => "connects",
            Self::Health | Self::Refusal => "pings",
        }
    }
}

impl Pings {
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.times.value_at_quantile(quantile))
    }

    fn quantile_us(&self, quantile: f64) -> f64 {
        micros(self.quantile(quantile))
    }
}

impl ServerReport {
    pub(crate) fn new(server: &EndpointStatus) -> Self {
        Self {
            address: server.endpoint.address.to_string(),
            state: state(server.connectivity),
            transport: server.path.transport(),
            reason: target::reason(&server.path),
        }
    }
}

fn state(connectivity: Connectivity) -> &'static str {
    match connectivity {
        Connectivity::Idle => "idle",
        Connectivity::Connecting => "connecting",
        Connectivity::Ready { .. } => "ready",
        Connectivity::TransientFailure => "failed",
    }
}

/// Returns the two ends of a connection, where it has socket addresses.
fn ends(info: &ConnectionInfo) -> String {
    match (info.addresses.local, info.addresses.peer, &info.addresses.unix) {
        (Some(local), Some(peer), _) => format!("  {local} -> {peer}"),
        (_, Some(peer), _) => format!("  -> {peer}"),
        (_, _, Some(socket)) => format!("  -> {socket}"),
        _ => String::new(),
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use farcall::sim::SimNetwork;
    use farcall::{Rdma, RdmaConfig, Server};

    use super::*;
    use crate::args::Cli;

    #[tokio::test]
    async fn rdma_path_is_pinged_and_named() {
        let network = SimNetwork::new(1);
        network.add_device("sim0", &["127.0.0.1".parse().unwrap()]);
        let rdma = Rdma::simulated(&network, RdmaConfig::default());
        let (_, health) = tonic_health::server::health_reporter();
        let listener = Server::builder()
            .add_grpc_service(health, tonic_health::pb::FILE_DESCRIPTOR_SET)
            .rdma(&rdma)
            .bind("auto://127.0.0.1:0")
            .await
            .unwrap();
        let address = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        let builder = Channel::builder(&address).unwrap();
        let channel = builder.rdma(&rdma).connect().await.unwrap();
        let global = Cli::parse_from(["farcall", "ping", &address]).global;
        let pings = measure(&global, &channel, &address, 3).await.unwrap();
        let measured = (pings.probe, pings.health, pings.times.len());
        assert_eq!(measured, (Probe::Health, Some("SERVING"), 3));
        let path = channel.path();
        assert_eq!(path.transport(), Some("rdma"));
        assert_eq!(target::reason(&path), "both sides offered RDMA");
        serving.abort();
    }
}
