//! A call as a server's layers see it.

use std::sync::Arc;
use std::{fmt, mem};

use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use super::response::{Capture, ServerResponse};
use crate::call::metadata::MetadataNames;
use crate::layer::{Described, RequestHead};
use crate::server::call::context::Head;
use crate::server::{PeerInfo, ServerCall, Service};
use crate::{Deadline, Method, MethodDescriptor};

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
        capture.set_metadata(response_metadata);
        call.head = Head::Decoded(Box::new((metadata, extensions)));
        service.call(method, call).await;
        capture.take().unwrap_or_else(|| Err(Status::internal("the handler returned no response")))
    }
}

impl Described for ServerRequest {
    fn method(&self) -> Method {
        Method::Static(Self::method(self))
    }

    fn transport(&self) -> Option<&'static str> {
        Some(PeerInfo::current()?.transport)
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
