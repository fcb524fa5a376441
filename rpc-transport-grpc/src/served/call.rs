//! One call to a service over HTTP, by tonic's own client code.

use std::pin::Pin;

use futures::{Stream, stream};
use http::uri::PathAndQuery;
use rpc_core::{Deadline, LateTrailers, Trailers};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};
use tower::ServiceExt;

use super::http_service::HttpService;
use crate::breakable::{Breakable, breakable};
use crate::compression::accept_all_responses;
use crate::raw::{Raw, RawCodec};

/// The messages that a service answers with.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<Raw, Status>> + Send>>;

/// A call that is about to be made.
pub(super) struct Exchange<S> {
    service: S,
    path: &'static str,
}

impl<S: HttpService> Exchange<S> {
    pub(super) fn new(service: S, path: &'static str) -> Self {
        Self { service, path }
    }

    pub(super) async fn one_to_one(self, request: Request<Raw>) -> Result<Response<Raw>, Status> {
        one(self.begin(request.map(alone)).await?).await
    }

    pub(super) async fn one_to_many(
        self,
        request: Request<Raw>,
    ) -> Result<Response<Messages>, Status> {
        Ok(many(self.begin(request.map(alone)).await?))
    }

    pub(super) async fn many_to_one(
        self,
        request: Request<Streaming<Raw>>,
    ) -> Result<Response<Raw>, Status> {
        one(self.begin(request).await?).await
    }

    pub(super) async fn many_to_many(
        self,
        request: Request<Streaming<Raw>>,
    ) -> Result<Response<Messages>, Status> {
        Ok(many(self.begin(request).await?))
    }

    /// Makes the call, up to the headers of its response.
    async fn begin<R>(self, mut request: Request<R>) -> Result<Response<Streaming<Raw>>, Status>
    where
        R: Stream<Item = Result<Raw, Status>> + Send + 'static,
    {
        let path = PathAndQuery::from_static(self.path);
        // farcall enforces it. What the service reads of it decides what it asks of others.
        if let Some(deadline) = request.extensions().get::<Deadline>() {
            let left = deadline.remaining();
            request.set_timeout(left);
        }
        let (request, broken) = breakable(request);
        let service = Breakable::new(self.service, broken);
        let service = service.ready_oneshot().await.map_err(|error| from_service(error.into()))?;
        let grpc = Grpc::new(service).max_decoding_message_size(usize::MAX);
        accept_all_responses(grpc).streaming(request, path, RawCodec).await
    }
}

fn from_service(error: tower::BoxError) -> Status {
    Status::from_error(error)
}

/// One message as a stream.
fn alone(message: Raw) -> impl Stream<Item = Result<Raw, Status>> + Send + 'static {
    stream::iter([Ok(message)])
}

/// The response of a method with one message.
async fn one(response: Response<Streaming<Raw>>) -> Result<Response<Raw>, Status> {
    let (metadata, mut messages, extensions) = response.into_parts();
    let Some(message) = messages.message().await? else {
        return Err(Status::internal("the service ended its answer without a message"));
    };
    if messages.message().await?.is_some() {
        return Err(Status::internal("the service answers with more than one message"));
    }
    let mut response = Response::from_parts(metadata, message, extensions);
    let trailers = trailers_of(&mut messages).await;
    if !trailers.is_empty() {
        // A handler may have left some in the extension, which tonic does not send.
        let left = response.extensions_mut().remove::<Trailers>().unwrap_or_default();
        let mut joined = left.0.into_headers();
        joined.extend(trailers.into_headers());
        response.extensions_mut().insert(Trailers(MetadataMap::from_headers(joined)));
    }
    Ok(response)
}

/// The response of a method with a stream.
fn many(response: Response<Streaming<Raw>>) -> Response<Messages> {
    let late = LateTrailers::default();
    let mut response = response.map(|messages| {
        let late = late.clone();
        let messages = stream::unfold((messages, late), |(mut messages, late)| async {
            let next = messages.message().await.transpose();
            if next.is_none() {
                late.set(trailers_of(&mut messages).await);
            }
            next.map(|next| (next, (messages, late)))
        });
        Box::pin(messages) as Messages
    });
    response.extensions_mut().insert(late);
    response
}

/// The trailers of messages that have been read to their end, without what says that they ended
/// well.
async fn trailers_of(messages: &mut Streaming<Raw>) -> MetadataMap {
    let mut trailers = messages.trailers().await.ok().flatten().unwrap_or_default();
    trailers.remove("grpc-status");
    trailers
}
