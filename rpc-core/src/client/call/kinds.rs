//! The four kinds of calls, as generated stubs make them: the types of messages end here.

use futures::Stream;
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::body::{Body, OneMessage, Requests};
use super::{Call, ClientReply};
use crate::MethodDescriptor;
use crate::client::Caller;

/// Makes a call with one request and one response through `caller`. Dropping the future cancels
/// the call on the server.
///
/// # Errors
///
/// With the status of the call.
pub async fn unary<Req, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<Req>,
) -> Result<Response<Resp>, Status>
where
    Req: Message + 'static,
    Resp: Message + Default + 'static,
{
    with_message::<_, Resp>(caller, method, request).await?.into_message()
}

/// As [`unary()`], with a stream of responses.
///
/// # Errors
///
/// With the status of the call, if it fails before its first answer.
pub async fn server_streaming<Req, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<Req>,
) -> Result<Response<Streaming<Resp>>, Status>
where
    Req: Message + 'static,
    Resp: Message + Default + 'static,
{
    with_message::<_, Resp>(caller, method, request).await?.into_stream()
}

/// As [`unary()`], with a stream of requests.
///
/// # Errors
///
/// With the status of the call.
pub async fn client_streaming<S, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<S>,
) -> Result<Response<Resp>, Status>
where
    S: Stream<Item: Message> + Send + 'static,
    Resp: Message + Default + 'static,
{
    with_stream::<_, Resp>(caller, method, request).await?.into_message()
}

/// As [`unary()`], with a stream each way.
///
/// # Errors
///
/// With the status of the call, if it fails before its first answer.
pub async fn streaming<S, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<S>,
) -> Result<Response<Streaming<Resp>>, Status>
where
    S: Stream<Item: Message> + Send + 'static,
    Resp: Message + Default + 'static,
{
    with_stream::<_, Resp>(caller, method, request).await?.into_stream()
}

async fn with_message<Req, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<Req>,
) -> Result<ClientReply, Status>
where
    Req: Message + 'static,
    Resp: 'static,
{
    let (metadata, extensions, message) = request.into_parts();
    let mut message = OneMessage::new(message, method.detach.request);
    let body = Body::Message(&mut message);
    caller.call(Call::new::<Resp>(method, metadata, extensions, body)).await
}

async fn with_stream<S, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<S>,
) -> Result<ClientReply, Status>
where
    S: Stream<Item: Message> + Send + 'static,
    Resp: 'static,
{
    let (metadata, extensions, stream) = request.into_parts();
    let mut stream = Requests(Some(stream));
    let body = Body::Stream(&mut stream);
    caller.call(Call::new::<Resp>(method, metadata, extensions, body)).await
}
