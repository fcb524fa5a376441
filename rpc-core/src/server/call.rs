//! A call as generated code receives it, and how its handler is run.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use bytes::Bytes;
use futures::{FutureExt, Stream};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::reply::Responder;
use crate::wire::metadata;
use crate::{Deadline, ServiceDescriptor, refusal};

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
            let Self { metadata, message, deadline, responder } = self;
            let result = match decode(metadata, message, deadline) {
                Ok(request) => run(deadline, handler, request).await,
                Err(status) => Err(status),
            };
            responder.reply(result).await;
        })
    }

    /// Answers a method with a stream of responses, which is not carried yet.
    pub fn server_streaming<Req, S, Resp, F, Fut>(self, _handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: FnOnce(Request<Req>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        self.fail(no_streams())
    }

    /// Answers a method with a stream of requests, which is not carried yet.
    pub fn client_streaming<Req, Resp, F, Fut>(self, _handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        F: FnOnce(Request<Streaming<Req>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        self.fail(no_streams())
    }

    /// Answers a method with a stream each way, which is not carried yet.
    pub fn streaming<Req, S, Resp, F, Fut>(self, _handler: F) -> HandlerFuture
    where
        Req: Message + Default + 'static,
        Resp: Message + 'static,
        S: Stream<Item = Result<Resp, Status>> + Send + 'static,
        F: FnOnce(Request<Streaming<Req>>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    {
        self.fail(no_streams())
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
}

fn no_streams() -> Status {
    Status::unimplemented("streaming calls are not carried yet")
}

fn decode<Req: Message + Default>(
    block: Bytes,
    message: Bytes,
    deadline: Option<Deadline>,
) -> Result<Request<Req>, Status> {
    let undecodable = |what: &str, error: &dyn std::fmt::Display| {
        Status::internal(format!("the request's {what} does not decode: {error}"))
    };
    let metadata = if block.is_empty() {
        MetadataMap::new()
    } else {
        metadata::decode(block).map_err(|error| undecodable("metadata", &error))?
    };
    let message = Req::decode(message).map_err(|error| undecodable("message", &error))?;
    let mut extensions = Extensions::new();
    if let Some(deadline) = deadline {
        extensions.insert(deadline);
    }
    Ok(Request::from_parts(metadata, extensions, message))
}

/// Runs a handler until its deadline. A panic ends its own call and nothing else.
async fn run<Req, Resp, F, Fut>(
    deadline: Option<Deadline>,
    handler: F,
    request: Request<Req>,
) -> Result<Response<Resp>, Status>
where
    F: FnOnce(Request<Req>) -> Fut,
    Fut: Future<Output = Result<Response<Resp>, Status>>,
{
    // The service is shared by calls that run at the same time, so that it has to stand a panic
    // in one of them as it has to stand any other early end.
    let guarded = AssertUnwindSafe(async move { handler(request).await }).catch_unwind();
    let result = match deadline {
        None => guarded.await,
        Some(Deadline(instant)) => match tokio::time::timeout_at(instant, guarded).await {
            Ok(result) => result,
            Err(_) => return Err(refusal::deadline_exceeded()),
        },
    };
    result.unwrap_or_else(|_| Err(Status::internal("the handler panicked")))
}
