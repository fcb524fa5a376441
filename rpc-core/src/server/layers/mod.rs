//! tower layers around the handlers of a server: all of them, or those of one service.
//!
//! A call of any kind is a [`ServerRequest`] whose future resolves with the call's outcome: for a
//! unary answer before it is sent, for a stream after its last message. Its messages stay in the
//! memory that they arrived in and are not looked at here. A server without layers never comes by.

mod response;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, mem};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service as _, ServiceExt};

use self::response::Body;
use crate::call::metadata::MetadataNames;
use crate::layer::{Described, RequestHead, Side, UnknownMethod, into_status, method_indices};
use crate::server::call::context::{CallScope, Head};
use crate::server::call::handling::Handling;
use crate::server::call::reply::Responder;
use crate::server::{HandlerFuture, PeerInfo, ServerCall, Service};
use crate::{Deadline, Method, MethodDescriptor, ServiceDescriptor, Trailers};

pub(super) use response::Capture;
pub use response::ServerResponse;

/// The service that a server's layer is put around: the handlers, or the layers inside of it.
///
/// The future that it returns sends a stream's messages while it is polled, so that a layer which
/// answers before that future has ended has to drop it first.
#[derive(Debug, Clone, Default)]
pub struct ServerStack(Option<BoxCloneSyncService<ServerRequest, ServerResponse, Status>>);

impl ServerStack {
    /// This stack with a layer around it.
    pub(in crate::server) fn within<L>(self, layer: &L) -> Self
    where
        L: Layer<Self>,
        L::Service: tower::Service<ServerRequest, Response = ServerResponse, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as tower::Service<ServerRequest>>::Error: Into<BoxError>,
    {
        let layered = layer.layer(self).map_err(into_status);
        Self(Some(BoxCloneSyncService::new(layered)))
    }
}

impl tower::Service<ServerRequest> for ServerStack {
    type Response = ServerResponse;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ServerResponse, Status>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        match &mut self.0 {
            Some(layered) => layered.poll_ready(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: ServerRequest) -> Self::Future {
        match &mut self.0 {
            Some(layered) => layered.call(request),
            None => Box::pin(request.run()),
        }
    }
}

/// Layers that wait for the server to be built, the outermost first.
#[derive(Default)]
pub(in crate::server) struct Layers(Vec<Apply>);

/// Puts a layer around what is inside of it.
struct Apply(Box<dyn FnOnce(ServerStack) -> ServerStack + Send + Sync>);

impl Layers {
    pub(in crate::server) fn push<L>(&mut self, layer: L)
    where
        L: Layer<ServerStack> + Send + Sync + 'static,
        L::Service: tower::Service<ServerRequest, Response = ServerResponse, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as tower::Service<ServerRequest>>::Error: Into<BoxError>,
    {
        self.0.push(Apply(Box::new(move |inner| inner.within(&layer))));
    }

    /// The layers around the handlers; `None` when there are none.
    pub(in crate::server) fn build(self) -> Option<ServerStack> {
        let is_empty = self.0.is_empty();
        // The layer that was added last is applied first, and becomes the innermost.
        let stack = self.0.into_iter().rev();
        let stack = stack.fold(ServerStack::default(), |inner, Apply(layer)| layer(inner));
        (!is_empty).then_some(stack)
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} layers", self.0.len())
    }
}

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

/// A service whose requests one of tonic's interceptors sees first. Made by [`intercepted`].
#[derive(Debug)]
pub struct InterceptedService<S, F> {
    service: S,
    interceptor: Mutex<F>,
}

impl<S, F: Interceptor> InterceptedService<S, F> {
    fn intercept(&self, call: &mut ServerCall) -> Result<(), Status> {
        let (metadata, extensions) = call.take_head()?;
        let shown = Request::from_parts(metadata, extensions, ());
        // A panic ends its own call, as a handler's does; the lock is dropped inside.
        let changed = catch_unwind(AssertUnwindSafe(|| self.interceptor.lock().call(shown)));
        let panicked =
            |_| Err(Status::internal("the interceptor panicked: see the server's stderr"));
        let (metadata, extensions, ()) = changed.unwrap_or_else(panicked)?.into_parts();
        // Decoded once: what is within takes this head as it is.
        call.head = Head::Decoded(Box::new((metadata, extensions)));
        Ok(())
    }
}

impl<S: Service, F: Interceptor + Send + 'static> Service for InterceptedService<S, F> {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        self.service.descriptor()
    }

    fn call(&self, method: usize, mut call: ServerCall) -> HandlerFuture {
        match self.intercept(&mut call) {
            Ok(()) => self.service.call(method, call),
            Err(status) => call.fail(status),
        }
    }
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
/// use farcall::server::layered;
/// use farcall::{Server, Service};
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

/// Wraps some methods of the service like [`layered`]. Calls of the others neither pass the layer
/// nor pay for it. A method is named as in the `.proto` (`SayHello`) or by its path
/// (`/hello.Greeter/SayHello`).
///
/// # Errors
///
/// Returns `UnknownMethod` if the service has no method of such a name.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use farcall::layer::UnknownMethod;
/// use farcall::server::layered_methods;
/// use farcall::{Server, Service};
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

/// Shows `interceptor` every request of `service`, of any kind of call, before its handler: it may
/// change metadata and extensions, or refuse the call with a status.
///
/// It runs where requests arrive, for one call at a time, and must not block; what has to wait is
/// a layer, see `ServerBuilder::layer`.
///
/// # Examples
///
/// ```
/// use farcall::server::intercepted;
/// use farcall::{Request, Server, Service, Status};
///
/// fn authorized(request: Request<()>) -> Result<Request<()>, Status> {
///     match request.metadata().get("authorization") {
///         Some(token) if token == "Bearer letmein" => Ok(request),
///         _ => Err(Status::unauthenticated("who is there?")),
///     }
/// }
///
/// # fn example(greeter: impl Service) {
/// let server = Server::builder().add_service(intercepted(greeter, authorized)).build();
/// # drop(server);
/// # }
/// ```
pub fn intercepted<S, F>(service: S, interceptor: F) -> InterceptedService<S, F>
where
    S: Service,
    F: Interceptor + Send + 'static,
{
    InterceptedService { service, interceptor: Mutex::new(interceptor) }
}

/// Runs a call of `service` under the layers of `stack`.
pub(in crate::server) fn handle(
    mut stack: ServerStack,
    service: Arc<dyn Service>,
    method: usize,
    mut call: ServerCall,
) -> HandlerFuture {
    let capture = Arc::new(Capture::inside(call.responder.capture.clone()));
    // Before the call goes into the layers: one that drops it must not be taken for a call that was
    // given up.
    let responder = call.responder.split_off();
    let (method_called, time_limit) = (call.running.method(), call.running.time_limit());
    // For the code of the layers, which may ask for the call. The handler has its own scope within.
    let around = CallScope::new(method_called, time_limit, Arc::clone(call.running.peer()));
    let request = ServerRequest::new(service, method, call, Arc::clone(&capture));
    Box::pin(around.scope(async move {
        let result = match request {
            // The deadline counts while a layer waits, too.
            Ok(request) => {
                // The stack is a clone of its own: a layer that waits holds up this call alone.
                let call = move || async move { stack.ready().await?.call(request).await };
                Handling::new(time_limit.deadline(), call).await
            }
            Err(status) => Err(status),
        };
        answer(responder, capture.seq(), result).await;
    }))
}

/// Sends what came out of the layers, or gives it to the layers around them.
async fn answer(mut responder: Responder, seq: u64, result: Result<ServerResponse, Status>) {
    // Layers of a service are within those of the server, to which its outcome goes next.
    if let Some(outer) = &responder.capture {
        return outer.set(result);
    }
    let ServerResponse { metadata, mut extensions, body, compress_from } = match result {
        Ok(response) => response,
        Err(status) => return responder.end(seq, Err(status)).await,
    };
    match body {
        Body::Message(message) => {
            responder.compress_from = compress_from;
            responder.send(metadata, extensions, message).await;
        }
        Body::Streamed => {
            // The messages are sent already. Only the end of the stream is left, with its trailers.
            let Trailers(trailers) = extensions.remove::<Trailers>().unwrap_or_default();
            responder.end(seq, Ok(trailers)).await;
        }
    }
}

/// A call that has arrived: what precedes its messages can be read and changed, its messages go
/// to the handler as they are.
///
/// Dropped unanswered by a layer, the call ends with the status that the layer returns.
pub struct ServerRequest {
    service: Arc<dyn Service>,
    method: usize,
    metadata: MetadataMap,
    extensions: Extensions,
    response_metadata: MetadataMap,
    call: ServerCall,
    capture: Arc<Capture>,
}

impl ServerRequest {
    /// Takes a call apart for layers; its answer goes to `capture`.
    pub(super) fn new(
        service: Arc<dyn Service>,
        method: usize,
        mut call: ServerCall,
        capture: Arc<Capture>,
    ) -> Result<Self, Status> {
        let (metadata, extensions) = call.take_head()?;
        // From here on the handler's answer goes to the layers, and not to the client.
        call.responder.capture = Some(Arc::clone(&capture));
        let response_metadata = MetadataMap::new();
        Ok(Self { service, method, metadata, extensions, response_metadata, call, capture })
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'static MethodDescriptor {
        self.call.running.method()
    }

    /// Returns the deadline of the call.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.call.running.deadline()
    }

    /// The connection that the call came in on.
    #[must_use]
    pub fn peer(&self) -> &Arc<PeerInfo> {
        self.call.running.peer()
    }

    /// The request's metadata.
    #[must_use]
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// The request's metadata, to be changed before the handler sees it.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// Metadata for the response, of calls of every kind: it precedes the messages of a response
    /// stream, which a layer sees only when they have been sent. An entry takes the place of the
    /// handler's of the same key, and an outer layer's that of an inner one's. A call that fails
    /// before its response begins has the metadata of its status alone.
    ///
    /// # Examples
    ///
    /// ```
    /// # extern crate rpc_core as farcall;
    /// use farcall::server::ServerRequest;
    ///
    /// /// Tells the client which request its response is for.
    /// fn echo_id(mut request: ServerRequest) -> ServerRequest {
    ///     if let Some(id) = request.metadata().get("x-request-id").cloned() {
    ///         request.response_metadata_mut().insert("x-request-id", id);
    ///     }
    ///     request
    /// }
    ///
    /// // `ServerBuilder::layer` takes it.
    /// let layer = tower::util::MapRequestLayer::new(echo_id);
    /// # drop(farcall::server::ServerParts::default().layer(layer));
    /// ```
    pub fn response_metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.response_metadata
    }

    /// Returns the extensions from layers and the runtime for the handler.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the extensions that the handler finds in its request.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Runs the handler; the innermost service of a stack.
    pub(super) async fn run(self) -> Result<ServerResponse, Status> {
        let Self { service, method, metadata, extensions, response_metadata, mut call, capture } =
            self;
        // Before the handler runs: a stream sends its headers while it does.
        capture.set_metadata(response_metadata);
        call.head = Head::Decoded(Box::new((metadata, extensions)));
        service.call(method, call).await;
        // Nothing is captured where a service drops the call without an answer.
        capture.take().unwrap_or_else(|| Err(Status::internal("the handler returned no response")))
    }
}

impl Described for ServerRequest {
    fn method(&self) -> Method {
        Method::Static(Self::method(self))
    }

    fn side(&self) -> Side {
        Side::Server
    }

    fn peer(&self) -> Option<(&'static str, Option<SocketAddr>)> {
        let peer = Self::peer(self);
        Some((peer.transport, peer.addresses.peer))
    }
}

impl RequestHead for ServerRequest {
    fn take_head(&mut self) -> (MetadataMap, Extensions) {
        (mem::take(&mut self.metadata), mem::take(&mut self.extensions))
    }

    fn set_head(&mut self, metadata: MetadataMap, extensions: Extensions) {
        (self.metadata, self.extensions) = (metadata, extensions);
    }
}

impl fmt::Debug for ServerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequest")
            .field("method", &self.method().path)
            .field("metadata", &MetadataNames(&self.metadata))
            .finish_non_exhaustive()
    }
}
