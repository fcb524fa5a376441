//! The methods of `grpc.channelz.v1`, and its messages with the fields that a server here can fill.
//!
//! Written by hand by the numbers of gRPC's proposal A14. Fields that nothing fills are left out,
//! which other implementations read as unset.
#![allow(missing_docs, reason = "gRPC's proposal A14 documents the fields")]

use rpc_core::{CallKind, Idempotency, MethodDescriptor, ServiceDescriptor};

/// The service.
pub static CHANNELZ: ServiceDescriptor =
    ServiceDescriptor { name: "grpc.channelz.v1.Channelz", methods: &METHODS };

static METHODS: [MethodDescriptor; 7] = [
    method("/grpc.channelz.v1.Channelz/GetTopChannels"),
    method("/grpc.channelz.v1.Channelz/GetServers"),
    method("/grpc.channelz.v1.Channelz/GetServer"),
    method("/grpc.channelz.v1.Channelz/GetServerSockets"),
    method("/grpc.channelz.v1.Channelz/GetChannel"),
    method("/grpc.channelz.v1.Channelz/GetSubchannel"),
    method("/grpc.channelz.v1.Channelz/GetSocket"),
];

const fn method(path: &'static str) -> MethodDescriptor {
    MethodDescriptor::new(path, CallKind::Unary, Idempotency::NoSideEffects)
}

/// A page of the program's channels, from an id on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetTopChannelsRequest {
    #[prost(int64, tag = "1")]
    pub start_channel_id: i64,
    #[prost(int64, tag = "2")]
    pub max_results: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetTopChannelsResponse {
    #[prost(message, repeated, tag = "1")]
    pub channel: Vec<Channel>,
    #[prost(bool, tag = "2")]
    pub end: bool,
}

/// A page of servers, from an id on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServersRequest {
    #[prost(int64, tag = "1")]
    pub start_server_id: i64,
    #[prost(int64, tag = "2")]
    pub max_results: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServersResponse {
    #[prost(message, repeated, tag = "1")]
    pub server: Vec<Server>,
    #[prost(bool, tag = "2")]
    pub end: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServerRequest {
    #[prost(int64, tag = "1")]
    pub server_id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServerResponse {
    #[prost(message, optional, tag = "1")]
    pub server: Option<Server>,
}

/// A page of a server's connections, from an id on.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServerSocketsRequest {
    #[prost(int64, tag = "1")]
    pub server_id: i64,
    #[prost(int64, tag = "2")]
    pub start_socket_id: i64,
    #[prost(int64, tag = "3")]
    pub max_results: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetServerSocketsResponse {
    #[prost(message, repeated, tag = "1")]
    pub socket_ref: Vec<SocketRef>,
    #[prost(bool, tag = "2")]
    pub end: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetChannelRequest {
    #[prost(int64, tag = "1")]
    pub channel_id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetChannelResponse {
    #[prost(message, optional, tag = "1")]
    pub channel: Option<Channel>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSubchannelRequest {
    #[prost(int64, tag = "1")]
    pub subchannel_id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSubchannelResponse {
    #[prost(message, optional, tag = "1")]
    pub subchannel: Option<Subchannel>,
}

/// A request for a socket, with its options unless `summary` is set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSocketRequest {
    #[prost(int64, tag = "1")]
    pub socket_id: i64,
    #[prost(bool, tag = "2")]
    pub summary: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetSocketResponse {
    #[prost(message, optional, tag = "1")]
    pub socket: Option<Socket>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ChannelRef {
    #[prost(int64, tag = "1")]
    pub channel_id: i64,
    #[prost(string, tag = "2")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SubchannelRef {
    #[prost(int64, tag = "7")]
    pub subchannel_id: i64,
    #[prost(string, tag = "8")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SocketRef {
    #[prost(int64, tag = "3")]
    pub socket_id: i64,
    #[prost(string, tag = "4")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerRef {
    #[prost(int64, tag = "5")]
    pub server_id: i64,
    #[prost(string, tag = "6")]
    pub name: String,
}

/// A channel of the program.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Channel {
    #[prost(message, optional, tag = "1")]
    pub r#ref: Option<ChannelRef>,
    #[prost(message, optional, tag = "2")]
    pub data: Option<ChannelData>,
    #[prost(message, repeated, tag = "4")]
    pub subchannel_ref: Vec<SubchannelRef>,
}

/// One server of a channel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Subchannel {
    #[prost(message, optional, tag = "1")]
    pub r#ref: Option<SubchannelRef>,
    #[prost(message, optional, tag = "2")]
    pub data: Option<ChannelData>,
    #[prost(message, repeated, tag = "5")]
    pub socket_ref: Vec<SocketRef>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ChannelData {
    #[prost(message, optional, tag = "1")]
    pub state: Option<ChannelConnectivityState>,
    #[prost(string, tag = "2")]
    pub target: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ChannelConnectivityState {
    /// 1 is idle, 2 connecting, 3 ready, and 4 a transient failure.
    #[prost(int32, tag = "1")]
    pub state: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Server {
    #[prost(message, optional, tag = "1")]
    pub r#ref: Option<ServerRef>,
    #[prost(message, optional, tag = "2")]
    pub data: Option<ServerData>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerData {
    #[prost(int64, tag = "2")]
    pub calls_started: i64,
    #[prost(int64, tag = "3")]
    pub calls_succeeded: i64,
    #[prost(int64, tag = "4")]
    pub calls_failed: i64,
}

/// A connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Socket {
    #[prost(message, optional, tag = "1")]
    pub r#ref: Option<SocketRef>,
    #[prost(message, optional, tag = "2")]
    pub data: Option<SocketData>,
    #[prost(message, optional, tag = "3")]
    pub local: Option<Address>,
    #[prost(message, optional, tag = "4")]
    pub remote: Option<Address>,
    #[prost(message, optional, tag = "5")]
    pub security: Option<Security>,
    #[prost(string, tag = "6")]
    pub remote_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SocketData {
    #[prost(int64, tag = "1")]
    pub streams_started: i64,
    #[prost(message, repeated, tag = "13")]
    pub option: Vec<SocketOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SocketOption {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Address {
    #[prost(oneof = "AddressKind", tags = "1, 2, 3")]
    pub address: Option<AddressKind>,
}

/// The kinds of an address.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum AddressKind {
    #[prost(message, tag = "1")]
    Tcp(TcpAddress),
    #[prost(message, tag = "2")]
    Unix(UnixAddress),
    #[prost(message, tag = "3")]
    Other(OtherName),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TcpAddress {
    /// Four bytes or sixteen.
    #[prost(bytes = "vec", tag = "1")]
    pub ip_address: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub port: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UnixAddress {
    #[prost(string, tag = "1")]
    pub filename: String,
}

/// The name of another kind of address, or of other security.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OtherName {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Security {
    #[prost(oneof = "SecurityModel", tags = "1, 2")]
    pub model: Option<SecurityModel>,
}

/// The kinds of security.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum SecurityModel {
    #[prost(message, tag = "1")]
    Tls(Tls),
    #[prost(message, tag = "2")]
    Other(OtherName),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Tls {
    /// The peer's certificate in DER; empty without one.
    #[prost(bytes = "vec", tag = "4")]
    pub remote_certificate: Vec<u8>,
}
