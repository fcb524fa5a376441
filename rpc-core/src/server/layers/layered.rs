//! tower layers around one service, or around some of its methods.

use std::sync::Arc;

use tower::{BoxError, Layer};

use crate::ServiceDescriptor;
use crate::layer::{UnknownMethod, method_indices};
use crate::server::layers::handle;
use crate::server::{
    HandlerFuture, ServerCall, ServerRequest, ServerResponse, ServerStack, Service,
};

/// A service with a tower layer around its calls. Made by [`layered`] and [`layered_methods`].
#[derive(Debug)]
pub struct LayeredService<S> {
    service: Arc<S>,
    stack: ServerStack,
    covered: Covered,
}

/// The methods that are under the layer.
#[derive(Debug)]
enum Covered {
    All,
    /// Those with these indices.
    Only(Vec<usize>),
}

/// Puts a tower layer around the calls of one service, of every kind. It is
/// `ServerBuilder::layer` for `service` alone: the calls of other
/// services neither pass it nor pay for it.
///
/// The layers of the server are outside of it, and so is a service that this one is put into:
/// another `layered`, or [`intercepted`](crate::server::intercepted).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use farcall::server::{Service, layered};
/// use farcall::Server;
/// use tower::ServiceBuilder;
///
/// fn serve(lookups: impl Service, reports: impl Service) -> Server {
///     // A report is expensive: few at a time, and each call that is one too many is refused.
///     let careful = ServiceBuilder::new()
///         .load_shed()
///         .concurrency_limit(4)
///         .timeout(Duration::from_secs(60));
///     Server::builder().add_service(lookups).add_service(layered(reports, careful)).build()
/// }
/// ```
pub fn layered<S, L>(service: S, layer: L) -> LayeredService<S>
where
    S: Service,
    L: Layer<ServerStack>,
    L::Service: tower::Service<ServerRequest, Response = ServerResponse, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
    <L::Service as tower::Service<ServerRequest>>::Error: Into<BoxError>,
{
    let (service, stack) = (Arc::new(service), ServerStack::default().within(&layer));
    LayeredService { service, stack, covered: Covered::All }
}

/// As [`layered`], around some methods of the service; calls of the others neither pass the layer
/// nor pay for it. A method is named as in the `.proto` (`SayHello`) or by its path
/// (`/hello.Greeter/SayHello`).
///
/// # Errors
///
/// When the service has no method of such a name.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use farcall::Server;
/// use farcall::layer::UnknownMethod;
/// use farcall::server::{Service, layered_methods};
/// use tower::timeout::TimeoutLayer;
///
/// fn serve(greeter: impl Service) -> Result<Server, UnknownMethod> {
///     let timeout = TimeoutLayer::new(Duration::from_secs(1));
///     let greeter = layered_methods(greeter, ["SayHello"], timeout)?;
///     Ok(Server::builder().add_service(greeter).build())
/// }
/// ```
pub fn layered_methods<S, L>(
    service: S,
    methods: impl IntoIterator<Item: AsRef<str>>,
    layer: L,
) -> Result<LayeredService<S>, UnknownMethod>
where
    S: Service,
    L: Layer<ServerStack>,
    L::Service: tower::Service<ServerRequest, Response = ServerResponse, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
    <L::Service as tower::Service<ServerRequest>>::Error: Into<BoxError>,
{
    let covered = Covered::Only(method_indices(service.descriptor(), methods)?);
    Ok(LayeredService { covered, ..layered(service, layer) })
}

impl<S: Service> Service for LayeredService<S> {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        self.service.descriptor()
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        match &self.covered {
            Covered::Only(methods) if !methods.contains(&method) => self.service.call(method, call),
            Covered::Only(_) | Covered::All => {
                let service: Arc<dyn Service> = Arc::<S>::clone(&self.service);
                handle(self.stack.clone(), service, method, call)
            }
        }
    }
}
