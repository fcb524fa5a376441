//! The messages and the method of `farcall.admin.v1`. `proto/admin.proto` has and documents them.
//!
//! Written by hand, field by field: generated code would need a compiler of schemas in every build
//! of this crate. A test of the command `farcall` compares them with the file.
#![allow(missing_docs, reason = "the .proto file documents the fields")]

use rpc_core::{CallKind, Idempotency, MethodDescriptor, ServiceDescriptor};

/// The service.
pub static SERVICE: ServiceDescriptor =
    ServiceDescriptor { name: "farcall.admin.v1.Admin", methods: &METHODS };

static METHODS: [MethodDescriptor; 2] = [
    MethodDescriptor::new(
        "/farcall.admin.v1.Admin/GetSnapshot",
        CallKind::Unary,
        Idempotency::NoSideEffects,
    ),
    MethodDescriptor::new(
        "/farcall.admin.v1.Admin/WatchCalls",
        CallKind::ServerStreaming,
        Idempotency::NoSideEffects,
    ),
];

/// Most connections that a snapshot has.
pub const CONNECTIONS_MAX: usize = 1000;

/// A request for a snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SnapshotRequest {
    #[prost(uint32, tag = "1")]
    pub max_connections: u32,
}

/// The state of a server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Snapshot {
    #[prost(uint64, tag = "1")]
    pub unix_ms: u64,
    #[prost(uint64, tag = "2")]
    pub uptime_ms: u64,
    #[prost(string, tag = "3")]
    pub version: String,
    #[prost(uint32, tag = "4")]
    pub pid: u32,
    #[prost(uint64, tag = "5")]
    pub rss_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub calls_running: u64,
    #[prost(uint64, tag = "7")]
    pub memory_held: u64,
    #[prost(uint64, tag = "8")]
    pub memory_limit: u64,
    #[prost(message, repeated, tag = "9")]
    pub paths: Vec<PathCount>,
    #[prost(message, repeated, tag = "10")]
    pub connections: Vec<Connection>,
    #[prost(message, repeated, tag = "11")]
    pub methods: Vec<Method>,
    #[prost(message, repeated, tag = "12")]
    pub failed_calls: Vec<FailedCall>,
    #[prost(message, repeated, tag = "13")]
    pub settings: Vec<Setting>,
    #[prost(message, repeated, tag = "14")]
    pub devices: Vec<Device>,
    #[prost(message, repeated, tag = "15")]
    pub lanes: Vec<Lane>,
    #[prost(message, repeated, tag = "16")]
    pub channels: Vec<Channel>,
    #[prost(message, repeated, tag = "17")]
    pub certificates: Vec<Certificate>,
    #[prost(message, optional, tag = "18")]
    pub last_reload: Option<Reload>,
    #[prost(message, repeated, tag = "19")]
    pub history: Vec<Sample>,
}

/// Connections on one path.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PathCount {
    #[prost(string, tag = "1")]
    pub transport: String,
    #[prost(string, tag = "2")]
    pub fallback: String,
    #[prost(uint64, tag = "3")]
    pub count: u64,
}

/// An open connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Connection {
    #[prost(string, tag = "1")]
    pub peer: String,
    #[prost(string, tag = "2")]
    pub identity: String,
    #[prost(string, tag = "3")]
    pub transport: String,
    #[prost(string, tag = "4")]
    pub reason: String,
    #[prost(uint64, tag = "5")]
    pub age_ms: u64,
    #[prost(uint64, tag = "6")]
    pub calls_started: u64,
    #[prost(uint64, tag = "7")]
    pub calls_in_flight: u64,
    #[prost(uint64, tag = "8")]
    pub memory_held: u64,
    #[prost(bool, tag = "9")]
    pub is_sending: bool,
    #[prost(uint64, tag = "10")]
    pub sent_bytes: u64,
    #[prost(uint64, tag = "11")]
    pub received_bytes: u64,
    #[prost(uint64, optional, tag = "12")]
    pub credits: Option<u64>,
    #[prost(uint64, optional, tag = "13")]
    pub queued_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "14")]
    pub window_bytes: Option<u64>,
}

/// The calls of a method.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Method {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(message, repeated, tag = "3")]
    pub codes: Vec<CodeCount>,
    #[prost(message, repeated, tag = "4")]
    pub latency: Vec<Bucket>,
}

/// Calls that ended with one code.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CodeCount {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(uint64, tag = "2")]
    pub count: u64,
}

/// Calls that took less than a bound.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Bucket {
    #[prost(uint64, tag = "1")]
    pub below_us: u64,
    #[prost(uint64, tag = "2")]
    pub count: u64,
}

/// A call that failed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FailedCall {
    #[prost(uint64, tag = "1")]
    pub unix_ms: u64,
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(string, tag = "3")]
    pub peer: String,
    #[prost(string, tag = "4")]
    pub transport: String,
    #[prost(int32, tag = "5")]
    pub code: i32,
    #[prost(string, tag = "6")]
    pub message: String,
    #[prost(uint64, tag = "7")]
    pub took_us: u64,
}

/// A setting in force.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Setting {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(string, tag = "3")]
    pub source: String,
}

/// An RDMA device.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Device {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bool, tag = "2")]
    pub is_open: bool,
    #[prost(uint64, tag = "3")]
    pub events: u64,
}

/// A completion queue of a device with its connections.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Lane {
    #[prost(string, tag = "1")]
    pub device: String,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(uint64, tag = "3")]
    pub connections: u64,
    #[prost(uint64, tag = "4")]
    pub receive_slots: u64,
    #[prost(uint64, tag = "5")]
    pub promised_slots: u64,
    #[prost(uint64, tag = "6")]
    pub missing_slots: u64,
    #[prost(uint64, tag = "7")]
    pub send_slots_in_use: u64,
    #[prost(uint64, tag = "8")]
    pub read_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub registered_bytes: u64,
    #[prost(uint64, tag = "10")]
    pub credit_waits: u64,
}

/// A channel of the program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Channel {
    #[prost(string, tag = "1")]
    pub target: String,
    #[prost(message, repeated, tag = "2")]
    pub endpoints: Vec<Endpoint>,
}

/// A server of a channel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Endpoint {
    #[prost(string, tag = "1")]
    pub address: String,
    #[prost(string, tag = "2")]
    pub connectivity: String,
    #[prost(bool, tag = "3")]
    pub is_ejected: bool,
    #[prost(string, tag = "4")]
    pub path: String,
    #[prost(uint32, tag = "5")]
    pub in_flight: u32,
    #[prost(uint64, tag = "6")]
    pub failovers: u64,
    #[prost(uint64, tag = "7")]
    pub latency_us: u64,
    #[prost(uint32, tag = "8")]
    pub weight: u32,
    #[prost(uint64, tag = "9")]
    pub cost_us: u64,
}

/// A certificate of TLS.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Certificate {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int64, tag = "2")]
    pub expires_unix: i64,
}

/// The last reload of the settings file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reload {
    #[prost(uint64, tag = "1")]
    pub unix_ms: u64,
    #[prost(string, repeated, tag = "2")]
    pub changes: Vec<String>,
    #[prost(string, tag = "3")]
    pub error: String,
}

/// A few seconds of a server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sample {
    #[prost(uint64, tag = "1")]
    pub unix_ms: u64,
    #[prost(uint64, tag = "2")]
    pub calls: u64,
    #[prost(uint64, tag = "3")]
    pub failed: u64,
    #[prost(uint64, tag = "4")]
    pub p50_us: u64,
    #[prost(uint64, tag = "5")]
    pub p99_us: u64,
    #[prost(message, repeated, tag = "6")]
    pub paths: Vec<PathCount>,
    #[prost(uint32, tag = "7")]
    pub interval_ms: u32,
}

/// A choice of calls to be shown as they end.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WatchCallsRequest {
    #[prost(string, tag = "1")]
    pub method: String,
    #[prost(int32, repeated, tag = "2")]
    pub codes: Vec<i32>,
    #[prost(uint32, tag = "3")]
    pub sample_ppm: u32,
}

/// A call that has ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EndedCall {
    #[prost(uint64, tag = "1")]
    pub unix_ms: u64,
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(string, tag = "3")]
    pub peer: String,
    #[prost(string, tag = "4")]
    pub transport: String,
    #[prost(int32, tag = "5")]
    pub code: i32,
    #[prost(uint64, tag = "6")]
    pub took_us: u64,
    #[prost(uint64, tag = "7")]
    pub requests: u64,
    #[prost(uint64, tag = "8")]
    pub request_bytes: u64,
    #[prost(uint64, tag = "9")]
    pub responses: u64,
    #[prost(uint64, tag = "10")]
    pub response_bytes: u64,
    #[prost(string, repeated, tag = "11")]
    pub metadata_keys: Vec<String>,
    #[prost(uint64, tag = "12")]
    pub dropped: u64,
}

/// Returns the time that a share of the calls is below, in microseconds; `None` without a call.
#[must_use]
pub fn quantile(latency: &[Bucket], share: f64) -> Option<u64> {
    let total: u64 = latency.iter().map(|bucket| bucket.count).fold(0, u64::saturating_add);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a rank")]
    #[expect(clippy::cast_precision_loss, reason = "a rank needs no last bit")]
    let rank = (total as f64 * share).ceil() as u64;
    let mut seen = 0_u64;
    let found = latency.iter().find(|bucket| {
        seen = seen.saturating_add(bucket.count);
        bucket.count > 0 && seen >= rank
    });
    found.map(|bucket| bucket.below_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_the_bound_of_its_bucket() {
        let bucket = |(below_us, count)| Bucket { below_us, count };
        let latency = [(10, 0), (20, 98), (40, 1), (80, 1), (160, 0)].map(bucket);
        let quantiles = [0.0, 0.5, 0.98, 0.99, 1.0].map(|share| quantile(&latency, share));
        assert_eq!(quantiles, [20, 20, 20, 40, 80].map(Some));
        assert_eq!(quantile(&latency[..1], 0.5), None);
        let huge = [(1, u64::MAX), (2, u64::MAX)].map(bucket);
        assert_eq!(quantile(&huge, 1.0), Some(1));
    }
}
