//! Items that generated code uses. Not meant to be used by hand.

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
pub use crate::method::{CallKind, Idempotency, MethodDescriptor, ServiceDescriptor};
pub use crate::payload::tail_field::{
    BytesField, Detach, Detached, Detacher, NESTING_MAX, detach_longest,
};
pub use crate::server::{HandlerFuture, ServerCall, Service};
