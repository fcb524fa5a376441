//! The part of Envoy's API that the client uses: its messages, and its one call.
//!
//! Written by hand, field by field. A list that a control plane can make long with a few bytes per
//! entry is kept as encoded entries (`bytes` equals `message` on the wire). Each entry is decoded
//! when its turn comes: a decoded entry of two bytes would take a hundred.

use farcall::client::streaming;
use farcall::{CallKind, Channel, Idempotency, MethodDescriptor, Request, Status, Streaming};
use futures::Stream;
use prost::bytes::Bytes;
use prost::{Message, Oneof};

static AGGREGATED: MethodDescriptor = MethodDescriptor::new(
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
    CallKind::Streaming,
    Idempotency::NoSideEffects,
);

/// Maximum length of a resource name inside another resource, in bytes. A name is sent with each
/// request, and appears in errors and in the log.
const MAX_NAME_LEN: usize = 1024;

/// Checks a name in a resource, such as that of another one.
///
/// # Errors
///
/// Returns an error if the name is too long or would break a line of the log.
pub(super) fn checked(name: String) -> Result<String, String> {
    match name.len() {
        _ if name.chars().any(char::is_control) => Err("a name has a control character".to_owned()),
        0..=MAX_NAME_LEN => Ok(name),
        len => Err(format!("a name has {len} bytes; the limit is {MAX_NAME_LEN}")),
    }
}

/// Decodes a part of a resource.
///
/// # Errors
///
/// Returns an error if the bytes are not such a message.
pub(super) fn decoded<M: Message + Default>(bytes: Bytes) -> Result<M, String> {
    M::decode(bytes).map_err(|error| format!("cannot decode it: {error}"))
}

/// Opens the stream for all requests and responses.
pub(super) async fn open(
    channel: &Channel,
    requests: impl Stream<Item = DiscoveryRequest> + Send + 'static,
) -> Result<Streaming<DiscoveryResponse>, Status> {
    Ok(streaming(channel, &AGGREGATED, Request::new(requests)).await?.into_inner())
}

/// The wrapper of a resource, with the type's name.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryRequest {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, optional, tag = "2")]
    pub(super) node: Option<Node>,
    #[prost(string, repeated, tag = "3")]
    pub(super) resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub(super) error_detail: Option<ErrorDetail>,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ErrorDetail {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    /// Each entry is an [`Any`].
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) resources: Vec<Bytes>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// `envoy.service.discovery.v3.Resource`, which may wrap a resource.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Wrapped {
    #[prost(message, optional, tag = "2")]
    pub(super) resource: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) cluster: String,
    /// A `google.protobuf.Struct`, encoded.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) metadata: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    pub(super) locality: Option<Locality>,
    #[prost(string, tag = "6")]
    pub(super) user_agent_name: String,
    #[prost(string, tag = "7")]
    pub(super) user_agent_version: String,
    #[prost(string, repeated, tag = "10")]
    pub(super) client_features: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Locality {
    #[prost(string, tag = "1")]
    pub(super) region: String,
    #[prost(string, tag = "2")]
    pub(super) zone: String,
    #[prost(string, tag = "3")]
    pub(super) sub_zone: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Listener {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "19")]
    pub(super) api_listener: Option<ApiListener>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ApiListener {
    /// An encoded [`HttpConnectionManager`].
    #[prost(message, optional, tag = "1")]
    pub(super) api_listener: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpConnectionManager {
    #[prost(message, optional, tag = "3")]
    pub(super) rds: Option<Rds>,
    #[prost(message, optional, tag = "4")]
    pub(super) route_config: Option<RouteConfiguration>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rds {
    #[prost(string, tag = "2")]
    pub(super) route_config_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RouteConfiguration {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Each entry is a [`VirtualHost`].
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) virtual_hosts: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VirtualHost {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Each entry is a string.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) domains: Vec<Bytes>,
    /// Each entry is a [`Route`].
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub(super) routes: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Route {
    #[prost(message, optional, tag = "1")]
    pub(super) condition: Option<RouteMatch>,
    #[prost(message, optional, tag = "2")]
    pub(super) action: Option<RouteAction>,
}

/// A route's condition. Only the prefix is decoded. The other fields narrow the match, and their
/// presence is enough to know.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RouteMatch {
    #[prost(string, optional, tag = "1")]
    pub(super) prefix: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub(super) headers: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub(super) query_parameters: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub(super) runtime_fraction: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "13")]
    pub(super) dynamic_metadata: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "16")]
    pub(super) filter_state: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "17")]
    pub(super) cookies: Option<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RouteAction {
    #[prost(string, tag = "1")]
    pub(super) cluster: String,
    #[prost(message, optional, tag = "3")]
    pub(super) weighted_clusters: Option<WeightedClusters>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WeightedClusters {
    /// Each entry is a [`ClusterWeight`].
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(super) clusters: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClusterWeight {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) weight: Option<UInt32>,
}

/// `google.protobuf.UInt32Value`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct UInt32 {
    #[prost(uint32, tag = "1")]
    pub(super) value: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Cluster {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// The `DiscoveryType`.
    #[prost(int32, optional, tag = "2")]
    pub(super) kind: Option<i32>,
    #[prost(message, optional, tag = "3")]
    pub(super) eds_cluster_config: Option<EdsClusterConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EdsClusterConfig {
    #[prost(string, tag = "2")]
    pub(super) service_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    pub(super) cluster_name: String,
    /// Each entry is a [`LocalityLbEndpoints`].
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) endpoints: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LocalityLbEndpoints {
    /// Each entry is an [`LbEndpoint`].
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) lb_endpoints: Vec<Bytes>,
    #[prost(message, optional, tag = "3")]
    pub(super) load_balancing_weight: Option<UInt32>,
    #[prost(uint32, tag = "5")]
    pub(super) priority: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    pub(super) endpoint: Option<Endpoint>,
    #[prost(int32, tag = "2")]
    pub(super) health_status: i32,
    #[prost(message, optional, tag = "4")]
    pub(super) load_balancing_weight: Option<UInt32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Endpoint {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
    #[prost(oneof = "Port", tags = "3, 4")]
    pub(super) port: Option<Port>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Port {
    #[prost(uint32, tag = "3")]
    Value(u32),
    #[prost(string, tag = "4")]
    Name(String),
}
