//! `Served`: tonic's servers over every farcall transport.

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

/// A service of tonic's as a service of farcall: what tonic has generated, tonic's health and
/// reflection services, `Routes`, and any of these under tower layers for HTTP.
///
/// Its messages pass as they are. Kept are metadata both ways, the status with its details,
/// trailers, the deadline (as the request's `grpc-timeout`, and enforced by farcall), the request's
/// extensions, and cancellation. A stream of requests that broke off is an error to its handler.
///
/// Its methods, which of their sides are streams and whether they are idempotent are told by a file
/// descriptor set, since tonic's servers do not list their methods. tonic-health and
/// tonic-reflection export theirs, and `file_descriptor_set_path` of a build script writes one.
/// Where there is none, [`with_methods`](Self::with_methods) takes them by name.
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
    /// The service that `service` names, with its methods as the encoded `FileDescriptorSet` has
    /// them.
    ///
    /// A descriptor is kept for as long as the process runs, so that services are made when a
    /// program starts, and not for each call.
    ///
    /// # Errors
    ///
    /// When the set does not decode, or does not have the service.
    pub fn new(service: S, descriptor_set: &[u8]) -> Result<Self, DescriptorError>
    where
        S: NamedService,
    {
        let descriptor = methods::service(S::NAME, descriptor_set)?;
        Ok(Self { service, descriptor })
    }

    /// The service that `service` names, with `methods`: their names and kinds. For the services of
    /// crates that carry no file descriptor set. No method counts as idempotent, so that none is
    /// repeated after it may have run.
    ///
    /// A method that is not named is not served. One that the service does not have answers with
    /// `UNIMPLEMENTED`.
    ///
    /// # Errors
    ///
    /// When what is given is no method's name (`Export`, without the path), or is given twice.
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

    /// All services of the encoded `FileDescriptorSet`s, each answered by `routes`: tonic's
    /// `Routes`, or whatever else finds the service by the request's path.
    ///
    /// A service of the sets that `routes` does not have answers with `UNIMPLEMENTED`.
    ///
    /// # Errors
    ///
    /// When a set does not decode.
    pub fn routes<'a>(
        routes: &S,
        descriptor_sets: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Vec<Self>, DescriptorError> {
        let mut served: Vec<Self> = Vec::new();
        for set in descriptor_sets {
            for descriptor in methods::services(set)? {
                // Sets that import each other have each other's files.
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
