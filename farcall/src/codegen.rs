//! Items that generated code uses. Not meant to be used by hand.

pub use rpc_core::codegen::{
    Arc, BytesField, CallKind, CallOptions, Caller, Detach, Detacher, FieldVisitor, HandlerFuture,
    Idempotency, Intercepted, Interceptor, IntoRequest, IntoStreamingRequest, MessageLimits,
    MethodDescriptor, NESTING_MAX, NamedService, Request, Response, ServerCall, Service,
    ServiceDescriptor, Status, Streaming, client_streaming, prost, server_streaming, streaming,
    tonic, tonic_prost, unary, with_detach, with_fields,
};

pub use crate::{Channel, ConnectError, IntoAddress};

/// Connects a channel for a stub's `connect`.
pub async fn connect(address: impl IntoAddress) -> Result<Channel, ConnectError> {
    Channel::connect(address).await
}
