//! What generated code says of a service: its name, its methods and what may be done with them.
//!
//! These are `'static` data that stubs and services share; how a call runs is not decided here.

use crate::Detach;

/// A protobuf service: its full name and its methods in the order of the `.proto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceDescriptor {
    /// The full name, for example `etcdserverpb.KV`.
    pub name: &'static str,
    /// The methods; a method's index here is what [`crate::Service::call`] is given.
    pub methods: &'static [MethodDescriptor],
}

/// One method of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodDescriptor {
    /// The path that names the method, as gRPC spells it: `/package.Service/Method`.
    pub path: &'static str,
    /// Which sides stream.
    pub kind: CallKind,
    /// What the `.proto` promises about calling the method twice.
    pub idempotency: Idempotency,
    /// How a long `bytes` field of its messages is sent from where it lies.
    pub detach: Detach,
}

impl MethodDescriptor {
    /// The full name of the service, for example `etcdserverpb.KV`.
    #[must_use]
    pub fn service(&self) -> &'static str {
        split_path(self.path).0
    }

    /// The method's own name, for example `Range`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        split_path(self.path).1
    }
}

/// Splits a path into the names of its service and its method.
pub(crate) fn split_path(path: &str) -> (&str, &str) {
    let names = path.strip_prefix('/').unwrap_or(path);
    names.rsplit_once('/').unwrap_or(("", names))
}

/// Which sides of a call are streams of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// One request, one response.
    Unary,
    /// A stream of requests, one response.
    ClientStreaming,
    /// One request, a stream of responses.
    ServerStreaming,
    /// A stream each way.
    Streaming,
}

impl CallKind {
    /// Whether the client's messages are a stream.
    #[must_use]
    pub fn has_request_stream(self) -> bool {
        matches!(self, Self::ClientStreaming | Self::Streaming)
    }

    /// Whether the server's messages are a stream.
    #[must_use]
    pub fn has_response_stream(self) -> bool {
        matches!(self, Self::ServerStreaming | Self::Streaming)
    }
}

/// The `idempotency_level` option of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idempotency {
    /// Nothing is promised: the call must not be repeated by the runtime.
    Unknown,
    /// `NO_SIDE_EFFECTS`: the call changes nothing and may be repeated.
    NoSideEffects,
    /// `IDEMPOTENT`: calling twice has the effect of calling once.
    Idempotent,
}
