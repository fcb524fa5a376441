//! The service `farcall.admin.v1.Admin`: it answers with snapshots of the server. Everything is
//! counted elsewhere, and only read here.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rpc_core::server::{
    FailedCallInfo, HandlerFuture, MethodCalls, OpenConnectionInfo, ServerCall, latency_bound,
};
use rpc_core::settings::{Effect, Table as _};
use rpc_core::{Service, ServiceDescriptor};
use tonic::{Request, Response};

use super::api::{
    Bucket, CONNECTIONS_MAX, Certificate, Channel, CodeCount, Connection, Device, Endpoint,
    FailedCall, Lane, Method, Reload, SERVICE, Setting, Snapshot, SnapshotRequest,
};
use super::history::{millis, paths, unix_ms};
use super::{AdminState, ServerView, tap};
use crate::CallKind;
use crate::balance::{Connectivity, EndpointStatus};
use crate::server::settings::{ServerOverlay, ServerSettings};

/// Connections of a snapshot whose request asks for no number.
const CONNECTIONS_DEFAULT: usize = 100;

/// Most endpoints of a channel.
const ENDPOINTS_MAX: usize = 1000;

/// Answers with snapshots of the server.
pub(crate) struct AdminService(pub(crate) Arc<AdminState>);

impl Service for AdminService {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let state = Arc::clone(&self.0);
        if method == 1 {
            return tap::watch(state, call);
        }
        call.unary(|request: Request<SnapshotRequest>| async move {
            Ok(Response::new(state.snapshot(request.get_ref().max_connections)))
        })
    }
}

impl AdminState {
    /// Returns the state of the server, with as many connections. It is empty once the server is
    /// gone.
    pub(crate) fn snapshot(&self, max_connections: u32) -> Snapshot {
        let Some(view) = self.view.get() else { return Snapshot::default() };
        let Some(server) = view.core.upgrade() else { return Snapshot::default() };
        read(self, view, &server, max_connections)
    }
}

/// Returns the state of `server`.
fn read(
    state: &AdminState,
    view: &ServerView,
    server: &rpc_core::Server,
    max_connections: u32,
) -> Snapshot {
    let connections = server.open_connections();
    let reload = view.file.as_ref().and_then(|file| file.last_reload());
    Snapshot {
        unix_ms: unix_ms(SystemTime::now()),
        uptime_ms: millis(state.uptime()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        rss_bytes: resident_bytes().unwrap_or_default(),
        calls_running: server.calls_running(),
        memory_held: server.memory_held(),
        memory_limit: server.memory_limit(),
        paths: paths(connections.iter().map(|open| &open.info)),
        connections: listed(connections, max_connections),
        methods: server.method_calls().unwrap_or_default().iter().map(method).collect(),
        failed_calls: server.failed_calls().into_iter().map(failed_call).collect(),
        settings: settings(view, &server.settings()),
        devices: devices(view),
        lanes: lanes(view),
        channels: state.admin.channels.iter().map(channel).collect(),
        certificates: certificates(view),
        last_reload: reload.map(|(at, result)| Reload {
            unix_ms: unix_ms(at),
            error: result.as_ref().err().cloned().unwrap_or_default(),
            changes: result.unwrap_or_default(),
        }),
        history: state.history(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the resident memory of the process, where the system tells it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Returns the first connections: those that want another path, then those with most memory.
fn listed(mut connections: Vec<OpenConnectionInfo>, max: u32) -> Vec<Connection> {
    let max = match max {
        0 => CONNECTIONS_DEFAULT,
        max => usize::try_from(max).unwrap_or(CONNECTIONS_MAX).min(CONNECTIONS_MAX),
    };
    connections.sort_by_key(|open| {
        let OpenConnectionInfo { info, memory_held, .. } = open;
        (info.fallback.is_none(), std::cmp::Reverse((*memory_held, info.calls_in_flight)))
    });
    connections.truncate(max);
    connections.into_iter().map(connection).collect()
}

fn connection(open: OpenConnectionInfo) -> Connection {
    let OpenConnectionInfo { info, age, started, memory_held, is_sending, outbound, .. } = open;
    let addresses = &info.addresses;
    let peer = match addresses.peer {
        Some(peer) if addresses.unix.is_none() => peer.to_string(),
        _ => addresses.to_string(),
    };
    Connection {
        peer,
        identity: addresses.identity().map(ToString::to_string).unwrap_or_default(),
        transport: info.transport.to_owned(),
        reason: info.fallback.unwrap_or_default(),
        age_ms: millis(age),
        calls_started: started,
        calls_in_flight: info.calls_in_flight as u64,
        memory_held,
        is_sending,
        sent_bytes: info.stats.sent_bytes,
        received_bytes: info.stats.received_bytes,
        credits: outbound.credits.map(u64::from),
        queued_bytes: outbound.queued_bytes,
        window_bytes: outbound.window_bytes,
    }
}

fn method(calls: &MethodCalls) -> Method {
    let counts = calls.codes.iter().zip(0..).filter(|(count, _)| **count > 0);
    let buckets = calls.latency.iter().enumerate().filter(|(_, count)| **count > 0);
    let kind = calls.method.map(|method| match method.kind {
        CallKind::Unary => "unary",
        CallKind::ClientStreaming => "client_streaming",
        CallKind::ServerStreaming => "server_streaming",
        CallKind::Streaming => "streaming",
    });
    Method {
        path: calls.method.map_or("", |method| method.path).to_owned(),
        kind: kind.unwrap_or_default().to_owned(),
        codes: counts.map(|(count, code)| CodeCount { code, count: *count }).collect(),
        latency: buckets
            .map(|(index, count)| Bucket { below_us: latency_bound(index), count: *count })
            .collect(),
    }
}

fn failed_call(call: FailedCallInfo) -> FailedCall {
    FailedCall {
        unix_ms: unix_ms(call.at),
        method: call.method.to_owned(),
        peer: call.peer,
        transport: call.transport.to_owned(),
        code: call.code.into(),
        message: call.message,
        took_us: micros(call.took),
    }
}

/// Returns the settings that are in force, each with the place that sets it.
fn settings(view: &ServerView, now: &rpc_core::server::ServerSettings) -> Vec<Setting> {
    let settings = ServerSettings { base: now.clone(), ..ServerSettings::clone(&view.settings) };
    let in_force = ServerOverlay::from(settings);
    let mut in_code = HashSet::new();
    let none = ServerOverlay::default();
    none.each_change(&view.code, Effect::Live, &mut Vec::new(), &mut |key, _| {
        in_code.insert(key.to_vec());
    });
    let mut all = Vec::new();
    in_force.each_key(&mut Vec::new(), &mut |key, elsewhere| {
        let name = key.join(".");
        let Some(value) = in_force.written(&name).filter(|_| elsewhere.is_none()) else { return };
        let file = || view.file.as_ref().and_then(|file| file.source(key));
        let source = match in_code.contains(key) {
            true => "code".to_owned(),
            false => file().unwrap_or_else(|| "default".to_owned()),
        };
        all.push(Setting { key: name, value, source });
    });
    all
}

fn channel((target, channel): &(String, crate::Channel)) -> Channel {
    let endpoints = channel.endpoints();
    let endpoints = endpoints.iter().take(ENDPOINTS_MAX).map(endpoint);
    Channel { target: target.clone(), endpoints: endpoints.collect() }
}

fn endpoint(status: &EndpointStatus) -> Endpoint {
    let latency_us = status.latency.map_or(0, micros);
    let weight = status.endpoint.weight;
    let calls = u64::from(status.in_flight) + 1;
    let connectivity = match status.connectivity {
        Connectivity::Idle => "idle",
        Connectivity::Connecting => "connecting",
        Connectivity::Ready { .. } => "ready",
        Connectivity::TransientFailure => "transient_failure",
    };
    Endpoint {
        address: status.endpoint.address.to_string(),
        connectivity: connectivity.to_owned(),
        is_ejected: status.ejected_until.is_some(),
        path: status.path.to_string(),
        in_flight: status.in_flight,
        failovers: status.failovers,
        latency_us,
        weight: weight.into(),
        cost_us: latency_us.saturating_mul(calls) / u64::from(weight.max(1)),
    }
}

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
fn devices(view: &ServerView) -> Vec<Device> {
    let devices = view.rdma.devices().into_iter().map(|device| Device {
        name: device.device,
        is_open: device.is_open,
        events: device.events.iter().map(|(_, count)| count).sum(),
    });
    devices.collect()
}

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
fn lanes(view: &ServerView) -> Vec<Lane> {
    let lanes = view.rdma.lanes().into_iter().map(|lane| Lane {
        device: lane.device,
        number: lane.number as u64,
        connections: lane.connection_count as u64,
        receive_slots: lane.receive_slots.into(),
        promised_slots: lane.promised_slots.into(),
        missing_slots: lane.missing_slots.into(),
        send_slots_in_use: lane.send_slots_in_use as u64,
        read_bytes: lane.read_bytes_in_use,
        registered_bytes: lane.registered_bytes,
        credit_waits: lane.activity.credit_waits,
    });
    lanes.collect()
}

#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
fn devices(_: &ServerView) -> Vec<Device> {
    Vec::new()
}

#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
fn lanes(_: &ServerView) -> Vec<Lane> {
    Vec::new()
}

#[cfg(feature = "tls")]
fn certificates(view: &ServerView) -> Vec<Certificate> {
    let end = view.tls.as_ref().and_then(crate::tls::ServerTls::valid_until);
    let since = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok());
    let expires_unix = since.and_then(|since| i64::try_from(since.as_secs()).ok());
    let named = |expires_unix| Certificate { name: "server".to_owned(), expires_unix };
    expires_unix.map(named).into_iter().collect()
}

#[cfg(not(feature = "tls"))]
fn certificates(_: &ServerView) -> Vec<Certificate> {
    Vec::new()
}
