//! A single call to a service over HTTP, made by tonic's own client code.

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

/// The response messages of a service.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<Raw, Status>> + Send>>;

/// A call that has not started yet.
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

    /// Starts the call and waits for the response headers.
    async fn begin<R>(self, mut request: Request<R>) -> Result<Response<Streaming<Raw>>, Status>
    where
        R: Stream<Item = Result<Raw, Status>> + Send + 'static,
    {
        let path = PathAndQuery::from_static(self.path);
        // farcall enforces the deadline. The header lets the service limit its own calls to others.
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

/// Returns a stream of one message.
fn alone(message: Raw) -> impl Stream<Item = Result<Raw, Status>> + Send + 'static {
    stream::iter([Ok(message)])
}

/// Converts the response of a method with one response message.
async fn one(response: Response<Streaming<Raw>>) -> Result<Response<Raw>, Status> {
    let (metadata, mut messages, extensions) = response.into_parts();
    let Some(message) = messages.message().await? else {
        return Err(Status::internal("the service ended its response without a message"));
    };
    // `trailers` drains the stream silently. Without this read, a second message would go
    // unnoticed.
    if messages.message().await?.is_some() {
        return Err(Status::internal("the service sent more than one response message"));
    }
    let mut response = Response::from_parts(metadata, message, extensions);
    let trailers = trailers_of(&mut messages).await;
    if !trailers.is_empty() {
        // A handler may have left trailers in the extension, which tonic's server does not send.
        let left = response.extensions_mut().remove::<Trailers>().unwrap_or_default();
        let mut joined = left.0.into_headers();
        joined.extend(trailers.into_headers());
        response.extensions_mut().insert(Trailers(MetadataMap::from_headers(joined)));
    }
    Ok(response)
}

/// Converts the response of a method with a response stream.
fn many(response: Response<Streaming<Raw>>) -> Response<Messages> {
    let late = LateTrailers::default();
    let mut response = response.map(|messages| {
        let late = late.clone();
        let messages = stream::unfold((messages, late), |(mut messages, late)| async {
            let next = messages.message().await.transpose();
            // The trailers arrive after the last message, long after the headers. `LateTrailers` in
            // the extensions carries them to farcall's server.
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

/// Returns the trailers of a stream that has been read to its end, without the status of its
/// success.
async fn trailers_of(messages: &mut Streaming<Raw>) -> MetadataMap {
    let mut trailers = messages.trailers().await.ok().flatten().unwrap_or_default();
    trailers.remove("grpc-status");
    trailers
}
