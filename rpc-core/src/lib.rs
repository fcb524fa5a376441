//! The farcall runtime: wire format, call protocol, transport trait, client and server.
//!
//! Three rings. [`wire`], [`calls`] and [`policy`] are pure: values in, values out, no socket, no
//! clock, no task. [`transport`] is the seam: it moves opaque frames of any size with memory from
//! the transport's own pool. [`client`], [`server`] and [`connect`] are the async drivers that join
//! the two. No transport is named here, save the in-process one, which is nothing but a queue.
#![doc(html_root_url = "https://docs.rs/farcall-core/latest")]
#![forbid(unsafe_code)]

// Every crate of farcall is above this one, so that nothing else fails before.
#[cfg(windows)]
compile_error!("farcall does not support Windows: build it for Linux or macOS");

pub mod balance;
mod call;
pub mod calls;
pub mod client;
mod compression;
pub mod connect;
mod deadline;
pub mod handoff;
pub mod inproc;
pub mod layer;
pub mod limits;
mod long_wait;
mod method;
pub mod metrics;
mod payload;
pub mod policy;
pub mod readable;
pub mod server;
mod session;
pub mod settings;
mod stream;
pub mod transport;
pub mod wire;

pub use call::execution::{MayHaveExecuted, NotExecuted};
pub use call::explain::Explain;
pub use call::explanation::{CallExplanation, CallStage, EndpointPick, ExplainedFrame};
pub use call::metadata::{LateTrailers, Trailers};
pub use call::options::Readiness;
pub use client::{Caller, Channel};
pub use compression::{Compression, Negotiated, check_min_len};
pub use deadline::{Deadline, grpc_timeout, is_grpc_timeout};
pub use limits::connection::Limits;
pub use method::{
    ANY_METHOD_PATH, CALLED_PATH_KEY, CallKind, Idempotency, Method, MethodDescriptor,
    ServiceDescriptor, SharedMethod,
};
pub use payload::buffer::{Buffer, BufferMemory, BufferSource, offer_source};
pub use policy::backoff::Backoff;
pub use policy::keepalive::Keepalive;
pub use readable::Reason;
pub use server::{MethodCompression, Server, Service, buffer};
pub use settings::InvalidSetting;
// What transports build on.
pub use limits::{memory, quota};
pub use payload::pool;
pub use transport::byte_budget;

/// Items that generated code uses. Not meant to be used by hand.
pub mod codegen {
    pub use std::sync::Arc;

    pub use tonic::server::NamedService;
    pub use tonic::service::Interceptor;
    pub use tonic::{IntoRequest, IntoStreamingRequest, Request, Response, Status, Streaming};

    pub use {prost, tonic, tonic_prost};

    pub use crate::call::options::CallOptions;
    pub use crate::call::options::MessageLimits;
    pub use crate::client::{
        Caller, Channel, Intercepted, client_streaming, server_streaming, streaming, unary,
    };
    pub use crate::method::{
        CallKind, Idempotency, MethodDescriptor, ServiceDescriptor, with_detach,
    };
    pub use crate::payload::encode::NESTING_MAX;
    pub use crate::payload::tail_field::{BytesField, Detach, Detacher, FieldVisitor, with_fields};
    pub use crate::server::{HandlerFuture, ServerCall, Service};
}

/// The tables of a settings file, which are declared with their types.
#[doc(hidden)]
pub mod overlays {
    pub use crate::balance::BalanceOverlay;
    pub use crate::client::ChannelSettingsOverlay;
    pub use crate::compression::{CompressionOverlay, compressed_from};
    pub use crate::limits::connection::LimitsOverlay;
    pub use crate::policy::backoff::BackoffOverlay;
    pub use crate::policy::keepalive::KeepaliveOverlay;
    pub use crate::policy::retry_config::RetryBudgetOverlay;
    pub use crate::server::ServerOverlay;
    pub use crate::server::method_compression::{MethodCompressionOverlay, MethodOverlay};
}

pub use tonic::{Code, Extensions, Request, Response, Status, Streaming, async_trait, metadata};
