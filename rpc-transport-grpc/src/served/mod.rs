//! `Served`: tonic services on every farcall transport.

mod call;
mod http_service;
mod methods;

use std::fmt;

use rpc_core::server::{HandlerFuture, ServerCall};
use rpc_core::{CallKind, Service, ServiceDescriptor};
use tonic::server::NamedService;

use self::call::Exchange;
pub use self::http_service::HttpService;
pub use self::methods::DescriptorError;
use crate::raw::Raw;

/// A tonic service that runs on a farcall server.
///
/// It accepts tonic-generated services, tonic's health and reflection services, `Routes`, and any
/// of these under tower layers for HTTP.
///
/// Messages pass through unchanged. The adapter preserves metadata in both directions, the status
/// with its details, trailers, the request's extensions and cancellation. It passes the deadline on
/// as `grpc-timeout`, and farcall enforces it. A request stream that fails is an error to its
/// handler.
///
/// tonic services do not list their methods, so a file descriptor set describes them: their names,
/// streaming sides and idempotency. tonic-health and tonic-reflection export theirs, and
/// `file_descriptor_set_path` in a build script writes one. Without a set, use
/// [`with_methods`](Self::with_methods).
///
/// # Examples
///
/// ```
/// # use rpc_transport_grpc as grpc;
/// # use rpc_transport_grpc::DescriptorError;
/// # fn example<S: grpc::HttpService + tonic::server::NamedService>(
/// #     health: S, descriptor_set: &[u8],
/// # ) -> Result<rpc_core::Server, DescriptorError> {
/// // `health` is what `tonic_health::server::health_reporter()` gives, and `descriptor_set` is
/// // `tonic_health::pb::FILE_DESCRIPTOR_SET`.
/// let health = grpc::Served::new(health, descriptor_set)?;
/// # let parts = rpc_core::server::ServerParts::default().add_service(health);
/// # Ok(parts.build(rpc_core::server::ServerSettings::default()))
/// # }
/// ```
#[derive(Clone)]
pub struct Served<S> {
    service: S,
    descriptor: &'static ServiceDescriptor,
}

impl<S: HttpService> Served<S> {
    /// Wraps `service`, with the methods that the encoded `FileDescriptorSet` gives it.
    ///
    /// The descriptor stays in memory until the process exits. Create services at startup, not for
    /// each call.
    ///
    /// # Errors
    ///
    /// Returns an error if the set does not decode or does not define the service.
    pub fn new(service: S, descriptor_set: &[u8]) -> Result<Self, DescriptorError>
    where
        S: NamedService,
    {
        let descriptor = methods::service(S::NAME, descriptor_set)?;
        Ok(Self { service, descriptor })
    }

    /// Wraps `service`, with `methods` given by name and kind. Use it for services of crates that
    /// export no file descriptor set.
    ///
    /// No method counts as idempotent, so farcall never repeats a call that may have run. The
    /// server does not serve methods missing here. A method that the service does not have answers
    /// with `UNIMPLEMENTED`.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is not a plain method name (`Export`, without the path) or occurs
    /// twice.
    pub fn with_methods<'a>(
        service: S,
        methods: impl IntoIterator<Item = (&'a str, CallKind)>,
    ) -> Result<Self, DescriptorError>
    where
        S: NamedService,
    {
        let descriptor = methods::named_methods(S::NAME, methods)?;
        Ok(Self { service, descriptor })
    }

    /// Wraps all services of the encoded `FileDescriptorSet`s. `routes` answers each one: tonic's
    /// `Routes`, or any other router by request path.
    ///
    /// A service that `routes` does not have answers with `UNIMPLEMENTED`.
    ///
    /// # Errors
    ///
    /// Returns an error if a set does not decode.
    pub fn routes<'a>(
        routes: &S,
        descriptor_sets: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<Self>, DescriptorError> {
        let mut served: Vec<Self> = Vec::new();
        for set in descriptor_sets {
            for descriptor in methods::services(set)? {
                // Sets that import the same file each contain it. Serve each service once.
                if served.iter().all(|other| other.descriptor.name != descriptor.name) {
                    served.push(Self { service: routes.clone(), descriptor });
                }
            }
        }
        Ok(served)
    }
}

impl<S: HttpService> Service for Served<S> {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        self.descriptor
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let method = &self.descriptor.methods[method];
        let exchange = Exchange::new(self.service.clone(), method.path);
        match method.kind {
            CallKind::Unary => {
                call.unary(|request: tonic::Request<Raw>| exchange.one_to_one(request))
            }
            CallKind::ServerStreaming => {
                call.server_streaming(|request: tonic::Request<Raw>| exchange.one_to_many(request))
            }
            CallKind::ClientStreaming => {
                call.client_streaming(|request| exchange.many_to_one(request))
            }
            CallKind::Streaming => call.streaming(|request| exchange.many_to_many(request)),
        }
    }
}

impl<S> fmt::Debug for Served<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Served").field(&self.descriptor.name).finish()
    }
}
