//! A call as generated code receives it, and how its handler is run.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::Bytes;
use futures::{FutureExt, Stream};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::reply::Responder;
use crate::stream::{Inbound, Outbound, StreamWriter, pump, request_streaming};
use crate::wire::{FrameKind, metadata};
use crate::{Deadline, ServiceDescriptor, Trailers, refusal};

/// The future of a call's handler, answer included.
pub type HandlerFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A service that a [`crate::Server`] can serve; generated for each service of a `.proto`.
pub trait Service: Send + Sync + 'static {
    /// The service's name and methods.
    fn descriptor(&self) -> &'static ServiceDescriptor;

    /// Runs the call of the method with that index in the descriptor.
    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture;
}

/// A call that has arrived and not been answered.
#[derive(Debug)]
pub struct ServerCall {
    pub(super) metadata: Bytes,
    pub(super) message: Bytes,
    pub(super) deadline: Option<Deadline>,
    pub(super) responder: Responder,
    pub(super) streams: CallStreams,
}

/// The streams of a call, where its method has them.
#[derive(Debug, Clone, Default)]
pub(super) struct CallStreams {
    /// The client's messages.
    pub(super) inbound: Option<Arc<Inbound>>,
    /// The client's window for ours.
    pub(super) outbound: Option<Arc<Outbound>>,
}

impl ServerCall {
    /// Runs the handler of a method with one request and one response.
    pub fn unary<Req, Resp, F, Fut>(self, handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        F: FnOnce(Request<Req>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        Box::pin(async move {
            let Self { metadata, message, deadline, responder, .. } = self;
            let result = match decode(metadata, message, deadline) {
                Ok(request) => run(deadline, async move { handler(request).await }).await,
                Err(status) => Err(status),
            };
            responder.reply(result).await;
        })
    }

    /// Runs the handler of a method with one request and a stream of responses.
    pub fn server_streaming<Req, S, Resp, F, Fut>(self, handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: FnOnce(Request<Req>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        Box::pin(async move {
            let Self { metadata, message, deadline, responder, streams } = self;
            let result = match decode(metadata, message, deadline) {
                Ok(request) => run(deadline, async move { handler(request).await }).await,
                Err(status) => Err(status),
            };
            answer_stream(responder, deadline, &streams, result).await;
        })
    }

    /// Runs the handler of a method with a stream of requests and one response.
    pub fn client_streaming<Req, Resp, F, Fut>(self, handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        F: FnOnce(Request<Streaming<Req>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        Box::pin(async move {
            let request = self.streaming_request();
            let Self { deadline, responder, .. } = self;
            let result = match request {
                Ok(request) => run(deadline, async move { handler(request).await }).await,
                Err(status) => Err(status),
            };
            responder.reply(result).await;
        })
    }

    /// Runs the handler of a method with a stream each way.
    pub fn streaming<Req, S, Resp, F, Fut>(self, handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: FnOnce(Request<Streaming<Req>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        Box::pin(async move {
            let request = self.streaming_request();
            let Self { deadline, responder, streams, .. } = self;
            let result = match request {
                Ok(request) => run(deadline, async move { handler(request).await }).await,
                Err(status) => Err(status),
            };
            answer_stream(responder, deadline, &streams, result).await;
        })
    }

    /// Answers a call of a method that the service does not have.
    #[must_use]
    pub fn unimplemented(self) -> HandlerFuture {
        self.fail(Status::unimplemented("the service has no such method"))
    }

    /// Answers with a status alone.
    pub(super) fn fail(self, status: Status) -> HandlerFuture {
        Box::pin(self.responder.fail(status))
    }

    fn streaming_request<M>(&self) -> Result<Request<Streaming<M>>, Status>
    where
        M: Message + Default + 'static,
    {
        let Some(inbound) = self.streams.inbound.clone() else {
            return Err(Status::internal("the client sent one message where a stream is needed"));
        };
        let (metadata, extensions) = head(self.metadata.clone(), self.deadline)?;
        let host = self.responder.host();
        let messages = request_streaming(inbound, host, self.responder.id);
        Ok(Request::from_parts(metadata, extensions, messages))
    }
}

/// Sends a handler's stream, or the status that it returned instead.
async fn answer_stream<M, S>(
    responder: Responder,
    deadline: Option<Deadline>,
    streams: &CallStreams,
    result: Result<Response<S>, Status>,
) where
    M: Message,
    S: Stream<Item = Result<M, Status>>,
{
    let Some(outbound) = &streams.outbound else {
        let status = Status::internal("a stream answers a method without one");
        return responder.fail(status).await;
    };
    let (metadata, stream, mut extensions) = match result {
        Ok(response) => response.into_parts(),
        Err(status) => return responder.fail(status).await,
    };
    let mut writer = StreamWriter::new(responder.host(), responder.id);
    let sending = async {
        let mut block = Vec::new();
        let encoded = metadata::encode(&metadata, &mut block);
        encoded.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        refusal::check_metadata("response", block.len(), "client's", writer.peer_limits())?;
        writer.send(FrameKind::Headers, &block, None).await?;
        pump(pin!(stream), outbound, &mut writer, "response", "client's").await
    };
    let sent = run(deadline, sending).await;
    let Trailers(trailers) = extensions.remove::<Trailers>().unwrap_or_default();
    responder.end(writer.place(), sent.map(|()| trailers)).await;
}

/// What precedes a request's message or messages.
fn head(block: Bytes, deadline: Option<Deadline>) -> Result<(MetadataMap, Extensions), Status> {
    let metadata = if block.is_empty() {
        MetadataMap::new()
    } else {
        metadata::decode(block).map_err(|error| undecodable("metadata", &error))?
    };
    let mut extensions = Extensions::new();
    if let Some(deadline) = deadline {
        extensions.insert(deadline);
    }
    Ok((metadata, extensions))
}

fn undecodable(what: &str, error: &dyn std::fmt::Display) -> Status {
    Status::internal(format!("the request's {what} does not decode: {error}"))
}

fn decode<Req: Message + Default>(
    block: Bytes,
    message: Bytes,
    deadline: Option<Deadline>,
) -> Result<Request<Req>, Status> {
    let (metadata, extensions) = head(block, deadline)?;
    let message = Req::decode(message).map_err(|error| undecodable("message", &error))?;
    Ok(Request::from_parts(metadata, extensions, message))
}

/// Runs a handler, or the stream that it returned, until the call's deadline. A panic ends its own
/// call and nothing else.
async fn run<T>(
    deadline: Option<Deadline>,
    handler: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    // The service is shared by calls that run at the same time, so that it has to stand a panic
    // in one of them as it has to stand any other early end.
    let guarded = AssertUnwindSafe(handler).catch_unwind();
    let result = match deadline {
        None => guarded.await,
        Some(Deadline(instant)) => match tokio::time::timeout_at(instant, guarded).await {
            Ok(result) => result,
            Err(_) => return Err(refusal::deadline_exceeded()),
        },
    };
    result.unwrap_or_else(|_| Err(Status::internal("the handler panicked")))
}
