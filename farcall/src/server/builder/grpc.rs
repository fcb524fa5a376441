//! Services of tonic's on a farcall server.

use rpc_transport_grpc::{HttpService, Served};
use tonic::server::NamedService;

use super::ServerBuilder;
use crate::CallKind;

impl ServerBuilder {
    /// Adds a service of tonic's: what tonic has generated (`GreeterServer`), tonic-health's or
    /// tonic-reflection's, also under a tower layer for HTTP. It is served over every transport.
    ///
    /// `descriptor_set` is an encoded `FileDescriptorSet` with the service. It tells the service's
    /// methods, which of their sides are streams, and which may be repeated. tonic-health and
    /// tonic-reflection export theirs; `file_descriptor_set_path` of a build script writes one.
    ///
    /// # Panics
    ///
    /// Panics if the set does not decode, or does not have the service. [`Served::new`] returns an
    /// error then.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example<H, T>(health: H, descriptor_set: &[u8]) -> farcall::ServerBuilder
    /// # where H: farcall::grpc::HttpService + farcall::tonic::server::NamedService {
    /// // `health` is what `tonic_health::server::health_reporter()` gives, and `descriptor_set` is
    /// // `tonic_health::pb::FILE_DESCRIPTOR_SET`.
    /// farcall::Server::builder().add_grpc_service(health, descriptor_set)
    /// # }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn add_grpc_service<S>(self, service: S, descriptor_set: &[u8]) -> Self
    where
        S: HttpService + NamedService,
    {
        match Served::new(service, descriptor_set) {
            Ok(served) => self.add_service(served),
            Err(error) => panic!("add_grpc_service({}): {error}", S::NAME),
        }
    }

    /// Adds a service of tonic's without a `FileDescriptorSet`: `methods` are the names of its
    /// methods and their kinds. For the services of crates that carry none.
    ///
    /// A method that is not named is not served, and none counts as idempotent: a call that may
    /// have run is not repeated.
    ///
    /// # Panics
    ///
    /// Panics if a name is no method's, or is given twice. [`Served::with_methods`] returns an
    /// error then.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::CallKind;
    ///
    /// # fn example<L>(logs: L) -> farcall::ServerBuilder
    /// # where L: farcall::grpc::HttpService + farcall::tonic::server::NamedService {
    /// // `logs` is `LogsServiceServer::new(..)` of the crate `opentelemetry-proto`.
    /// farcall::Server::builder().add_grpc_methods(logs, [("Export", CallKind::Unary)])
    /// # }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn add_grpc_methods<'a, S>(
        self,
        service: S,
        methods: impl IntoIterator<Item = (&'a str, CallKind)>,
    ) -> Self
    where
        S: HttpService + NamedService,
    {
        match Served::with_methods(service, methods) {
            Ok(served) => self.add_service(served),
            Err(error) => panic!("add_grpc_methods({}): {error}", S::NAME),
        }
    }

    /// Adds every service of the encoded `FileDescriptorSet`s, each answered by `routes`: tonic's
    /// `Routes`, with the layers for HTTP that are around them.
    ///
    /// A service of the sets that `routes` does not have answers with `UNIMPLEMENTED`.
    ///
    /// # Panics
    ///
    /// Panics if a set does not decode. [`Served::routes`] returns an error then.
    #[must_use]
    #[track_caller]
    pub fn add_grpc_routes<'a, S: HttpService>(
        mut self,
        routes: &S,
        descriptor_sets: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        match Served::routes(routes, descriptor_sets) {
            Ok(services) => {
                for served in services {
                    self = self.add_service(served);
                }
                self
            }
            Err(error) => panic!("add_grpc_routes: {error}"),
        }
    }
}
