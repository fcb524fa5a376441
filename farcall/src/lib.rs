//! RPC for Rust over RDMA, TCP or in process, with tonic's service traits.
//!
//! A service is an `impl` of the trait that tonic generates; [`ServerBuilder::serve`] serves it at
//! an address, and a generated stub calls it through the [`Channel`] that
//! [`Channel::connect`] makes. Where calls travel is the address's business:
//!
//! | address | path |
//! |---|---|
//! | `auto://host:port` | RDMA when both sides can, else TCP, with the reason logged and kept |
//! | `rdma://host:port` | RDMA, or a clear error |
//! | `tcp://host:port` | TCP |
//! | `unix:///path`, `unix://./path`, `unix://@name` | a Unix socket; a file alone is replaced |
//! | `inproc://name` | queues inside the process |
//! | `tcp://a:7000,b:7000` | several servers, of which each call goes to one: [`balance`] |
//! | `grpc://host:port` | a server of gRPC over HTTP/2; feature `grpc` |
//! | `grpcs://host:port` | the same over TLS; features `grpc` and `tls` |
//! | `dns:///name:7000` | the same with all servers of a name; feature `dns` |
//! | `etcd://host:2379/prefix` | the same with all that registered with etcd: `farcall-etcd` |
//! | `xds:///name` | the same with all that a control plane names: crate `farcall-xds` |
//!
//! [`Server::bind_listener`] serves listeners that the program made, and
//! [`Server::serve_incoming`] byte streams.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod address;
pub mod balance;
mod channel;
pub mod client;
#[doc(hidden)]
pub mod codegen;
#[cfg(feature = "tonic-connect-info")]
mod connect_info;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "otel")]
pub mod otel;
mod per_core;
#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
pub mod rdma;
#[cfg(not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))))]
mod rdma;
pub mod resolve;
pub mod retry;
pub mod server;
#[cfg(feature = "settings")]
mod settings;
#[cfg(all(target_os = "linux", feature = "sim"))]
pub mod sim;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls/not_built_in.rs"]
mod tls;

pub use address::{Address, AddressError, IntoAddress};
pub use channel::{CallCredentials, Channel, ChannelBuilder};
#[cfg(feature = "tonic-connect-info")]
pub use connect_info::tonic_connect_info;
pub use per_core::per_core;
pub use server::builder::ServerBuilder;
pub use server::error::{ServeError, ServeErrorKind};
pub use server::handle::Server;
pub use server::listener::Listener;
pub use server::serve::Serve;
#[cfg(feature = "settings")]
pub use settings::{Reload, Reloader, SettingChange, Settings, SettingsError, TakesEffect};

pub use rpc_core::client::{ChannelSettings, DynCaller, Path, mock};
pub use rpc_core::connect::{ConnectError, ConnectErrorKind, ConnectionInfo};
pub use rpc_core::server::{CallContext, PeerInfo};
pub use rpc_core::transport::{
    Addresses, CloseReason, FrameProtocol, Identity, PathInfo, TransportStats,
};
pub use rpc_core::{
    Backoff, Buffer, CallExplanation, CallKind, CallStage, Caller, Code, Compression, Deadline,
    EndpointPick, Explain, ExplainedFrame, Extensions, Idempotency, InvalidSetting, Keepalive,
    LateTrailers, Limits, MayHaveExecuted, Method, MethodCompression, MethodDescriptor,
    NotExecuted, Readiness, Reason, Request, Response, Service, ServiceDescriptor, SharedMethod,
    Status, Streaming, Trailers, async_trait, buffer, layer, metadata,
};
pub use tonic::{include_file_descriptor_set, include_proto};
pub use {prost, tonic};

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
pub use rdma::handle::Rdma;
#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
pub use rpc_transport_rdma::RdmaConfig;
