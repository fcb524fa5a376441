//! Methods: what generated code says of a service and its methods, and the method of one call.
//!
//! Descriptors are `'static` data that stubs and services share; how a call runs is not decided
//! here. The method of a client's call is one of generated code, or one that is named by its path
//! alone.

use std::fmt;
use std::sync::Arc;

use tonic::Status;

use crate::payload::tail_field::Detach;

/// Maximum length of a path in bytes. The names of gRPC's own services have less than 100.
const PATH_LEN_MAX: usize = 1024;

/// Path of a method that answers the calls of every method that its server does not have, for a
/// gateway. Calls of gRPC and grpc-web reach it by any path; farcall's own clients by this one.
///
/// The path of the call is in the metadata [`CALLED_PATH_KEY`].
pub const ANY_METHOD_PATH: &str = "/*";

/// Key of metadata with the path of a call that [`ANY_METHOD_PATH`] answers.
///
/// The server sets it for gRPC and grpc-web, in place of what a client sends under this key. A
/// client of farcall's own protocol chooses the value: a gateway decides by the path itself which
/// calls it passes on.
pub const CALLED_PATH_KEY: &str = "farcall-called-path";

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
    /// Sides that stream.
    pub kind: CallKind,
    /// Promise of the `.proto` about calling the method twice.
    pub idempotency: Idempotency,
    /// Accessors of its messages' `bytes` fields, by which long ones are not copied.
    pub(crate) detach: Detach,
}

impl MethodDescriptor {
    /// Describes the method at `path`.
    #[must_use]
    pub const fn new(path: &'static str, kind: CallKind, idempotency: Idempotency) -> Self {
        Self { path, kind, idempotency, detach: Detach::NONE }
    }

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

/// Describes a method whose messages are prepared for encoding.
#[must_use]
pub const fn with_detach(method: MethodDescriptor, detach: Detach) -> MethodDescriptor {
    MethodDescriptor { detach, ..method }
}

/// The sides of a call that are streams of messages.
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
    /// Returns true if the client's messages are a stream.
    #[must_use]
    pub fn has_request_stream(self) -> bool {
        matches!(self, Self::ClientStreaming | Self::Streaming)
    }

    /// Returns true if the server's messages are a stream.
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

/// The method of a client's call.
///
/// Generated code describes its methods, and such a method is a pointer. A program that passes
/// calls on, such as a proxy, knows the path alone. Until a server has described that method, it
/// counts as one with a stream each way. Clones share the path, and it goes with the last of them.
#[derive(Clone)]
pub enum Method {
    /// A method of generated code.
    Static(&'static MethodDescriptor),
    /// A method that is called by its path.
    Shared(Arc<SharedMethod>),
}

/// A method that is called by its path, and the server's description of it.
pub struct SharedMethod {
    path: Arc<str>,
    /// Absent until a server has described the method.
    description: Option<(CallKind, Idempotency)>,
}

impl Method {
    /// Names the method at `path`, `/package.Service/Method`.
    ///
    /// # Errors
    ///
    /// Returns `UNIMPLEMENTED` if the path has more than 1,024 bytes.
    pub fn by_path(path: &str) -> Result<Self, Status> {
        let len = path.len();
        if len > PATH_LEN_MAX {
            let message =
                format!("the method's path of {len} bytes is over the limit of {PATH_LEN_MAX}");
            return Err(Status::unimplemented(message));
        }
        Ok(Self::Shared(Arc::new(SharedMethod { path: path.into(), description: None })))
    }

    /// The method at `path`, as a server describes it.
    pub(crate) fn described(path: Arc<str>, description: (CallKind, Idempotency)) -> Self {
        Self::Shared(Arc::new(SharedMethod { path, description: Some(description) }))
    }

    /// Returns the path, as gRPC spells it: `/package.Service/Method`.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Static(method) => method.path,
            Self::Shared(method) => &method.path,
        }
    }

    /// Returns which sides stream: both, until a server has described the method.
    #[must_use]
    pub fn kind(&self) -> CallKind {
        match self {
            Self::Static(method) => method.kind,
            Self::Shared(method) => {
                method.description.map_or(CallKind::Streaming, |(kind, _)| kind)
            }
        }
    }

    /// Returns the promise about calling the method twice: none, until a server has described it.
    #[must_use]
    pub fn idempotency(&self) -> Idempotency {
        match self {
            Self::Static(method) => method.idempotency,
            Self::Shared(method) => {
                method.description.map_or(Idempotency::Unknown, |(_, idempotency)| idempotency)
            }
        }
    }

    /// Returns the full name of the service, for example `etcdserverpb.KV`.
    #[must_use]
    pub fn service(&self) -> &str {
        split_path(self.path()).0
    }

    /// Returns the method's own name, for example `Range`.
    #[must_use]
    pub fn name(&self) -> &str {
        split_path(self.path()).1
    }

    /// The description of generated code; `None` where messages pass through.
    pub(crate) fn descriptor(&self) -> Option<&'static MethodDescriptor> {
        match self {
            Self::Static(method) => Some(method),
            Self::Shared(_) => None,
        }
    }

    /// Accessors of a long `bytes` field; none where messages pass through.
    pub(crate) fn detach(&self) -> Detach {
        self.descriptor().map_or(Detach::NONE, |method| method.detach)
    }

    /// Returns false if the path alone is known.
    pub(crate) fn is_described(&self) -> bool {
        match self {
            Self::Static(_) => true,
            Self::Shared(method) => method.description.is_some(),
        }
    }
}

impl From<&'static MethodDescriptor> for Method {
    fn from(method: &'static MethodDescriptor) -> Self {
        Self::Static(method)
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Method").field(&self.path()).finish()
    }
}

impl fmt::Debug for SharedMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedMethod").field(&self.path).finish()
    }
}

/// Splits a path into the names of its service and its method.
pub(crate) fn split_path(path: &str) -> (&str, &str) {
    let names = path.strip_prefix('/').unwrap_or(path);
    names.rsplit_once('/').unwrap_or(("", names))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn undescribed_method_streams_each_way() {
        let method = Method::by_path("/paths.A/B").unwrap();
        assert_eq!(
            (method.path(), method.service(), method.name()),
            ("/paths.A/B", "paths.A", "B")
        );
        assert_eq!(
            (method.kind(), method.idempotency()),
            (CallKind::Streaming, Idempotency::Unknown)
        );
        assert!(!method.is_described());
    }

    #[test]
    fn longest_path_is_called_and_a_longer_one_refused() {
        let path = "m".repeat(PATH_LEN_MAX);
        assert_eq!(Method::by_path(&path).unwrap().path(), path);
        let refused = Method::by_path(&format!("{path}m")).unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
    }

    #[test]
    fn path_is_freed_with_the_last_clone() {
        let Method::Shared(method) = Method::by_path("/paths.A/B").unwrap() else {
            panic!("it is named by its path")
        };
        let (weak, clone) = (Arc::downgrade(&method), Method::Shared(Arc::clone(&method)));
        drop(method);
        assert_eq!(clone.path(), "/paths.A/B");
        drop(clone);
        assert!(weak.upgrade().is_none());
    }
}
