//! A call as the server sees it, from its head to the record of its end: as generated code receives
//! it, and how its handler is run.

pub(in crate::server) mod context;
pub(in crate::server) mod handling;
pub(in crate::server) mod record;
pub(in crate::server) mod reply;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Response, Status, Streaming};

use self::context::{CallScope, Head};
use self::handling::{Handling, RespondingHandler, answer_unary};
use self::record::CallStreams;
use self::reply::Responder;
use crate::call::metadata::merge;
use crate::call::options::MessageLimits;
use crate::call::refusal;
use crate::server::layers::Capture;
use crate::stream::{
    Direction, Inflated, Receiving, StreamWriter, forward, inflated, request_streaming,
};
use crate::transport::received::ReceivedMessage;
use crate::wire::{FrameKind, metadata};
use crate::{Deadline, LateTrailers, ServiceDescriptor, Trailers};

pub use context::{CallContext, buffer};
pub use handling::HandlerFuture;

/// A service that a `Server` can serve; generated for each service of a `.proto`.
#[diagnostic::on_unimplemented(
    message = "farcall cannot serve `{Self}` as it is",
    label = "this is not a service that rpc-codegen generated",
    note = "wrap the implementation of tonic's trait: \
            `greeter_rpc::GreeterService::new(implementation)`",
    note = "tonic's `GreeterServer` is for tonic's server; `from_arc` shares the implementation"
)]
pub trait Service: Send + Sync + 'static {
    /// The service's name and methods.
    fn descriptor(&self) -> &'static ServiceDescriptor;

    /// Runs the call of the method with that index in the descriptor.
    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture;
}

/// A call that has arrived and not been answered.
#[derive(Debug)]
pub struct ServerCall {
    pub(in crate::server) head: Head,
    pub(in crate::server) message: ReceivedMessage,
    /// True if the message is compressed.
    pub(in crate::server) is_deflated: bool,
    pub(in crate::server) running: CallScope,
    pub(in crate::server) responder: Responder,
    pub(in crate::server) streams: CallStreams,
    /// Limits of its service on its messages.
    pub(in crate::server) limits: MessageLimits,
}

impl ServerCall {
    /// Puts limits on the call's messages, beside those of the server. For generated code.
    #[doc(hidden)]
    #[inline]
    pub fn limit(&mut self, limits: MessageLimits) {
        self.limits = limits;
        if let (Some(from), Some(compress_from)) =
            (limits.compress_from(), &mut self.responder.compress_from)
        {
            *compress_from = from;
        }
    }

    /// Runs the handler of a method with one request and one response.
    pub fn unary<Req, Resp, F, Fut>(self, handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        F: FnOnce(Request<Req>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        if self.is_deflated {
            return self.inflate_first(Box::new(move |call| call.unary(handler)));
        }
        // Not changed in place: a call that is only read is not copied to be passed to this.
        let Self { head, message, running, responder, streams, limits, .. } = self;
        // Put where the handler takes it from: to return it would move it once more.
        let mut request = None;
        let decoded = decode(head, message, &streams, (&running, limits), |decoded| {
            request = Some(decoded);
        });
        if let Err(status) = decoded {
            return Box::pin(responder.fail(status));
        }
        answer_unary(responder, running, limits, (&mut request, handler))
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
        if self.is_deflated {
            return self.inflate_first(Box::new(move |call| call.server_streaming(handler)));
        }
        let Self { head, message, running, responder, streams, limits, .. } = self;
        let decoded = decode(head, message, &streams, (&running, limits), |request| request);
        let request = match decoded {
            Ok(request) => request,
            Err(status) => return Box::pin(responder.fail(status)),
        };
        answer_stream(responder, running, (streams, limits), move || handler(request))
    }

    /// Runs the handler of a method with a stream of requests and one response.
    pub fn client_streaming<Req, Resp, F, Fut>(mut self, handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        F: FnOnce(Request<Streaming<Req>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        // Not inflated first: each frame of a stream says for itself whether it is compressed.
        let request = match self.streaming_request() {
            Ok(request) => request,
            Err(status) => return self.fail(status),
        };
        answer_message(self.responder, self.running, self.limits, move || handler(request))
    }

    /// Runs the handler of a method with a stream each way.
    pub fn streaming<Req, S, Resp, F, Fut>(mut self, handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: FnOnce(Request<Streaming<Req>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        let request = match self.streaming_request() {
            Ok(request) => request,
            Err(status) => return self.fail(status),
        };
        let streams = (self.streams, self.limits);
        answer_stream(self.responder, self.running, streams, move || handler(request))
    }

    /// Answers a call of a method that the service does not have.
    #[must_use]
    pub fn unimplemented(self) -> HandlerFuture {
        self.fail(Status::unimplemented("the service has no such method"))
    }

    /// Inflates the request's message, and goes on then. What is longer than a piece becomes a task
    /// of its own with the first piece, so that the connection's task reads on.
    fn inflate_first(
        mut self,
        go_on: Box<dyn FnOnce(Self) -> HandlerFuture + Send>,
    ) -> HandlerFuture {
        Box::pin(async move {
            let (limit, method) = (self.limits.service_requests(), self.running.method().into());
            let io = self.responder.io();
            let message = std::mem::take(&mut self.message);
            let result = inflated(&*io, message.into_bytes(), Receiving { limit, method }).await;
            match result {
                Ok(Inflated { message, charge }) => {
                    // What came is free, and no longer counts.
                    self.responder.disposition.set_received(charge);
                    (self.message, self.is_deflated) = (message.into(), false);
                    go_on(self).await;
                }
                Err(status) => self.responder.fail(status).await,
            }
        })
    }

    /// Answers with a status alone.
    pub(in crate::server) fn fail(self, status: Status) -> HandlerFuture {
        Box::pin(self.responder.fail(status))
    }

    /// Takes what precedes the messages out of the call.
    pub(in crate::server) fn take_head(&mut self) -> Result<(MetadataMap, Extensions), Status> {
        let taken = Head::Encoded { block: Bytes::new(), peer: None };
        std::mem::replace(&mut self.head, taken).decode(&self.running)
    }

    fn streaming_request<M>(&mut self) -> Result<Request<Streaming<M>>, Status>
    where
        M: Message + Default + 'static,
    {
        let Some(recv_stream) = self.streams.recv_stream.clone() else {
            return Err(refusal::other_kind(refusal::SENT_MESSAGE));
        };
        let (metadata, extensions) = self.take_head()?;
        let (limit, method) = (self.limits.service_requests(), self.running.method().into());
        let (io, receiving) = (self.responder.io(), Receiving { limit, method });
        let messages = request_streaming(recv_stream, io, self.responder.id, receiving);
        Ok(Request::from_parts(metadata, extensions, messages))
    }
}

/// The sending of a handler's stream.
struct Sending<'a> {
    streams: &'a CallStreams,
    deadline: Option<Deadline>,
    direction: Direction,
}

/// The writer of a response stream. However it ends, layers learn how far it has come.
struct ResponseWriter {
    writer: StreamWriter,
    capture: Option<Arc<Capture>>,
}

impl Drop for ResponseWriter {
    fn drop(&mut self) {
        if let Some(capture) = &self.capture {
            capture.set_seq(self.writer.seq());
        }
    }
}

/// Runs a handler and sends the message, or the status, that it returns.
fn answer_message<M, Fut>(
    responder: Responder,
    running: CallScope,
    limits: MessageLimits,
    handler: impl FnOnce() -> Fut + Send + 'static,
) -> HandlerFuture
where
    M: Message + 'static,
    Fut: Future<Output = Result<Response<M>, Status>> + Send + 'static,
{
    let (deadline, detacher) = (running.deadline(), running.method().detach.response);
    // Not before the first poll: what a handler does at once runs inside its call, too.
    let handling = Handling::new(deadline, handler);
    Box::pin(running.scope(RespondingHandler::new(handling, responder, detacher, limits)))
}

/// Runs a handler and sends the stream, or the status, that it returns.
fn answer_stream<M, S, Fut>(
    responder: Responder,
    running: CallScope,
    (streams, limits): (CallStreams, MessageLimits),
    handler: impl FnOnce() -> Fut + Send + 'static,
) -> HandlerFuture
where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
    Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
{
    let deadline = running.deadline();
    let direction = Direction::responses(running.method().detach, limits);
    let direction = direction.compressed_from(responder.compress_from);
    Box::pin(running.scope(async move {
        let result = Handling::new(deadline, handler).await;
        let sending = Sending { streams: &streams, deadline, direction };
        send_stream(responder, sending, result).await;
    }))
}

/// Sends a handler's stream, or the status that it returned instead.
async fn send_stream<M, S>(
    responder: Responder,
    Sending { streams, deadline, direction }: Sending<'_>,
    result: Result<Response<S>, Status>,
) where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>>,
{
    let Some(send_stream) = &streams.send_stream else {
        let status = Status::internal("the service answers a method of one message with a stream");
        return responder.fail(status).await;
    };
    let (mut metadata, stream, mut extensions) = match result {
        Ok(response) => response.into_parts(),
        Err(status) => return responder.fail(status).await,
    };
    // The headers leave before the layers see the outcome, so the layers' metadata joins them now.
    if let Some(capture) = &responder.capture {
        capture.extend_headers(&mut metadata);
    }
    let writer = StreamWriter::new(responder.io(), responder.id);
    let mut response = ResponseWriter { writer, capture: responder.capture.clone() };
    let writer = &mut response.writer;
    let sending = async {
        let mut block = Vec::new();
        let encoded = metadata::encode(&metadata, &mut block);
        encoded.map_err(|error| refusal::unencodable("response", &error))?;
        refusal::check_metadata("response", block.len(), "client's", writer.peer_limits())?;
        writer.send(FrameKind::Headers, &block, None).await?;
        forward(pin!(stream), send_stream, writer, direction).await
    };
    // The deadline bounds the stream to its last message, and not only its first answer.
    let sent = Handling::new(deadline, || sending).await;
    // Read after the stream has ended: its source may set late trailers until then.
    let Trailers(mut trailers) = extensions.remove::<Trailers>().unwrap_or_default();
    if let Some(late) = extensions.remove::<LateTrailers>() {
        trailers = merge(trailers, late.take());
    }
    let seq = response.writer.seq();
    responder.end(seq, sent.map(|()| trailers)).await;
}

/// Calls `take` with the request of a call that has one message.
#[inline]
fn decode<Req: Message + Default + 'static, T>(
    head: Head,
    message: ReceivedMessage,
    streams: &CallStreams,
    (running, limits): (&CallScope, MessageLimits),
    take: impl FnOnce(Request<Req>) -> T,
) -> Result<T, Status> {
    if streams.recv_stream.is_some() {
        return Err(refusal::other_kind(refusal::SENT_STREAM));
    }
    // The length first: it costs nothing, and a refused message leaves its metadata undecoded.
    limits.service_requests().check(message.len())?;
    let (metadata, extensions) = head.decode(running)?;
    let message = message.decode();
    let message = message.map_err(|error| refusal::undecodable("request", &error))?;
    Ok(take(Request::from_parts(metadata, extensions, message)))
}
