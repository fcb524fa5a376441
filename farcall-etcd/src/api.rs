//! The part of etcd's API that this crate uses: its messages and calls.
//!
//! Written by hand, field by field. The crate `etcd-client` has the whole API, but it needs
//! `protoc` to build and brings its own HTTP/2 client. This part is all that a resolver needs over
//! farcall's channel.

use std::time::Duration;

use farcall::client::{streaming, unary};
use farcall::metadata::MetadataValue;
use farcall::{
    CallKind, Channel, Code, Idempotency, MethodDescriptor, Request, Response, Status, Streaming,
};
use futures::Stream;
use prost::Message;
use tokio::time::timeout;

/// Maximum time for etcd to answer a unary call, or to send a stream's first message, which it does
/// at once.
///
/// etcd answers a list of 10,000 entries within milliseconds. An etcd that hangs with its
/// connections open would otherwise block a resolver forever.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum wait of a shutting down server for etcd.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(5);

const fn method(path: &'static str, kind: CallKind, idempotency: Idempotency) -> MethodDescriptor {
    MethodDescriptor::new(path, kind, idempotency)
}

static RANGE: MethodDescriptor =
    method("/etcdserverpb.KV/Range", CallKind::Unary, Idempotency::NoSideEffects);
static PUT: MethodDescriptor =
    method("/etcdserverpb.KV/Put", CallKind::Unary, Idempotency::Idempotent);
static WATCH: MethodDescriptor =
    method("/etcdserverpb.Watch/Watch", CallKind::Streaming, Idempotency::NoSideEffects);
static GRANT: MethodDescriptor =
    method("/etcdserverpb.Lease/LeaseGrant", CallKind::Unary, Idempotency::Unknown);
static REVOKE: MethodDescriptor =
    method("/etcdserverpb.Lease/LeaseRevoke", CallKind::Unary, Idempotency::Idempotent);
static KEEP_ALIVE: MethodDescriptor =
    method("/etcdserverpb.Lease/LeaseKeepAlive", CallKind::Streaming, Idempotency::Idempotent);
static TIME_TO_LIVE: MethodDescriptor =
    method("/etcdserverpb.Lease/LeaseTimeToLive", CallKind::Unary, Idempotency::NoSideEffects);

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create_request: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    /// The watch has ended. `compact_revision` or `cancel_reason` has the reason.
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Zero for a written key, one for a deleted key.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

/// The kind of a deleted key's event.
pub(super) const DELETED: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Lease {
    /// Time to live in seconds, in a request to grant a lease.
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseId {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

/// The answer to a grant or a heartbeat.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseState {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    /// Time to live in seconds; zero if the lease no longer exists.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseQuery {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
    /// Requests the keys attached to the lease.
    #[prost(bool, tag = "2")]
    pub(super) keys: bool,
}

/// The keys attached to a lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeys {
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub(super) keys: Vec<Vec<u8>>,
}

/// A response whose content is ignored.
#[derive(Clone, PartialEq, Message)]
struct Ignored {}

pub(super) async fn range(channel: &Channel, prefix: &str) -> Result<RangeResponse, Status> {
    let request = RangeRequest { key: prefix.into(), range_end: range_end(prefix) };
    Ok(unary(channel, &RANGE, within_timeout(request)).await?.into_inner())
}

pub(super) async fn put(channel: &Channel, request: PutRequest) -> Result<(), Status> {
    unary::<_, Ignored>(channel, &PUT, within_timeout(request)).await.map(drop)
}

/// Builds the request of a unary call, with [`ANSWER_TIMEOUT`].
fn within_timeout<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(ANSWER_TIMEOUT);
    request
}

/// Waits for the first message of a stream. A timeout of the call itself would end the stream.
async fn begun<T>(
    call: impl Future<Output = Result<Response<Streaming<T>>, Status>>,
) -> Result<Streaming<T>, Status> {
    match timeout(ANSWER_TIMEOUT, call).await {
        Ok(begun) => begun.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!(
            "etcd did not answer within \
                                                         {ANSWER_TIMEOUT:?}"
        ))),
    }
}

/// Builds the request of a stream that etcd ends when its member loses its leader. A member that is
/// cut off would otherwise answer pings and stay silent.
fn with_leader<T>(requests: T) -> Request<T> {
    let mut request = Request::new(requests);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

/// Watches a prefix from a revision on, until `requests` ends.
pub(super) async fn watch(
    channel: &Channel,
    requests: impl Stream<Item = WatchRequest> + Send + 'static,
) -> Result<Streaming<WatchResponse>, Status> {
    begun(streaming(channel, &WATCH, with_leader(requests))).await
}

pub(super) async fn grant(channel: &Channel, ttl: i64) -> Result<LeaseState, Status> {
    Ok(unary(channel, &GRANT, within_timeout(Lease { ttl })).await?.into_inner())
}

pub(super) async fn revoke(channel: &Channel, id: i64) -> Result<(), Status> {
    let mut request = Request::new(LeaseId { id });
    request.set_timeout(REVOKE_TIMEOUT);
    match unary::<_, Ignored>(channel, &REVOKE, request).await {
        // The lease has expired, or an earlier attempt has revoked it.
        Err(status) if status.code() == Code::NotFound => Ok(()),
        ended => ended.map(drop),
    }
}

pub(super) async fn keep_alive(
    channel: &Channel,
    requests: impl Stream<Item = LeaseId> + Send + 'static,
) -> Result<Streaming<LeaseState>, Status> {
    begun(streaming(channel, &KEEP_ALIVE, with_leader(requests))).await
}

/// Returns the keys attached to a lease.
pub(super) async fn lease_keys(channel: &Channel, id: i64) -> Result<LeaseKeys, Status> {
    let request = LeaseQuery { id, keys: true };
    Ok(unary(channel, &TIME_TO_LIVE, within_timeout(request)).await?.into_inner())
}

/// Builds the request for a watch of `prefix` from `start_revision` on.
pub(super) fn watch_from(prefix: &str, start_revision: i64) -> WatchRequest {
    let (key, range_end) = (prefix.into(), range_end(prefix));
    WatchRequest { create_request: Some(WatchCreateRequest { key, range_end, start_revision }) }
}

/// Returns the first key after all keys with `prefix`. A zero byte stands for the end of all keys.
fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::range_end;

    #[test]
    fn a_range_ends_after_its_prefix() {
        assert_eq!(range_end("/shop/"), b"/shop0");
        assert_eq!(range_end(""), [0]);
    }
}
