//! The four kinds of calls, as generated stubs make them: the types of messages end here.
//!
//! An `async fn` keeps its arguments beside what it makes of them, in each of those that are
//! nested. A call passes through several of them, so that what precedes the first wait is done
//! outside of their futures.
//!
//! The makers of calls whose messages pass through, gRPC's clients and proxies, have a stream of
//! messages, whatever the kind of the method. Where the method takes one message, the channel makes
//! one of the stream before the call begins, so that such a call is a unary one on the wire like
//! any other, and may be repeated like any other.

use std::future::Future;
use std::pin::pin;

use futures::Stream;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::body::{Body, FallibleRequests, OneMessage, Requests};
use super::{Call, ClientReply, RequestParts};
use crate::call::metadata::discard;
use crate::call::refusal;
use crate::client::Caller;
use crate::payload::tail_field::Detacher;
use crate::{Explain, Method, MethodDescriptor};

/// Makes a call with one request and one response through `caller`. Dropping the future cancels
/// the call on the server.
///
/// # Errors
///
/// Returns the status of the call.
pub fn unary<Req, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<Req>,
) -> impl Future<Output = Result<Response<Resp>, Status>> + Send
where
    Req: Message + 'static,
    Resp: Message + Default + 'static,
{
    with_message::<_, Resp, _>(caller, method, request, ClientReply::into_message)
}

/// Calls a method like [`unary()`], with a stream of responses.
///
/// # Errors
///
/// Returns the status of the call if it fails before its first answer.
pub fn server_streaming<Req, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<Req>,
) -> impl Future<Output = Result<Response<Streaming<Resp>>, Status>> + Send
where
    Req: Message + 'static,
    Resp: Message + Default + 'static,
{
    with_message::<_, Resp, _>(caller, method, request, ClientReply::into_stream)
}

/// Calls a method like [`unary()`], with a stream of requests.
///
/// # Errors
///
/// Returns the status of the call.
pub fn client_streaming<S, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<S>,
) -> impl Future<Output = Result<Response<Resp>, Status>> + Send
where
    S: Stream<Item: Message> + Send + 'static,
    Resp: Message + Default + 'static,
{
    with_stream::<_, Resp, _>(caller, method, request, ClientReply::into_message)
}

/// Calls a method like [`unary()`], with a stream in each direction.
///
/// # Errors
///
/// Returns the status of the call if it fails before its first answer.
pub fn streaming<S, Resp>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<S>,
) -> impl Future<Output = Result<Response<Streaming<Resp>>, Status>> + Send
where
    S: Stream<Item: Message> + Send + 'static,
    Resp: Message + Default + 'static,
{
    with_stream::<_, Resp, _>(caller, method, request, ClientReply::into_stream)
}

/// Calls a method like [`unary()`], with a message that passes through: its long tail field is
/// unknown. The method is described, and unary. The response's metadata is that which preceded its
/// message; trailers are next to the message.
///
/// # Errors
///
/// Returns the status of the call.
pub fn untyped_unary<M>(
    caller: &impl Caller,
    method: Method,
    request: Request<M>,
) -> impl Future<Output = Result<Response<(M, MetadataMap)>, Status>> + Send
where
    M: Message + Default + 'static,
{
    let decode = ClientReply::into_message_and_trailers;
    sent_whole::<_, M, _>(caller, method, None, request, decode)
}

fn with_message<Req, Resp, Answer>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<Req>,
    decode: impl FnOnce(ClientReply) -> Result<Response<Answer>, Status> + Send,
) -> impl Future<Output = Result<Response<Answer>, Status>> + Send
where
    Req: Message + 'static,
    Resp: 'static,
{
    sent_whole::<_, Resp, _>(caller, method.into(), method.detach.request, request, decode)
}

fn sent_whole<Req, Resp, Answer>(
    caller: &impl Caller,
    method: Method,
    detacher: Option<Detacher>,
    request: Request<Req>,
    decode: impl FnOnce(ClientReply) -> Result<Response<Answer>, Status> + Send,
) -> impl Future<Output = Result<Response<Answer>, Status>> + Send
where
    Req: Message + 'static,
    Resp: 'static,
{
    let (metadata, extensions, message) = request.into_parts();
    let mut parts = RequestParts::new(metadata, extensions);
    let checked = refusal::check_nesting("request", &message, detacher);
    let mut message = match checked {
        Ok(()) => OneMessage::new(message, detacher),
        // To count the length of such a message could overflow the stack.
        Err(_) => OneMessage::taken(),
    };
    async move {
        // Inside: the refusal is the result of the future, as that of any other call.
        checked?;
        let body = Body::Message(&mut message);
        // To await a future is to move it once more, and this one is long.
        let explain = Explain::begin(&parts.extensions);
        let decoded = {
            let call = pin!(caller.call(Call::new::<Resp>(method, &mut parts, body)));
            call.await.and_then(decode)
        };
        // The account ends with the decoded message, not with its arrival.
        explain.inspect(|explain| explain.end(decoded.as_ref().err()));
        discard(parts.metadata);
        decoded
    }
}

fn with_stream<S, Resp, Answer>(
    caller: &impl Caller,
    method: &'static MethodDescriptor,
    request: Request<S>,
    decode: impl FnOnce(ClientReply) -> Result<Response<Answer>, Status> + Send,
) -> impl Future<Output = Result<Response<Answer>, Status>> + Send
where
    S: Stream<Item: Message> + Send + 'static,
    Resp: 'static,
{
    let (metadata, extensions, stream) = request.into_parts();
    let mut parts = RequestParts::new(metadata, extensions);
    let mut stream = Requests(Some(stream));
    async move {
        let body = Body::Stream(&mut stream);
        // To await a future is to move it once more, and this one is long.
        let explain = Explain::begin(&parts.extensions);
        let call = pin!(caller.call(Call::new::<Resp>(method.into(), &mut parts, body)));
        let decoded = call.await.and_then(decode);
        // Of a stream of responses, the account ends with its headers.
        explain.inspect(|explain| explain.end(decoded.as_ref().err()));
        decoded
    }
}

/// Makes a call of any kind with a stream of requests, and gives its responses as a stream: the
/// metadata that came first, then the messages, then trailers. Dropping the future cancels the call
/// on the server.
///
/// A stream of requests that ends with an error has broken off: the call ends with that error, and
/// its handler never sees an end of the requests.
///
/// # Errors
///
/// Returns the status of the call, if it fails before its first answer.
///
/// # Cancel safety
///
/// Dropping the future cancels the call on the server.
pub async fn untyped<M, S>(
    caller: &impl Caller,
    method: Method,
    request: Request<S>,
) -> Result<Response<Streaming<M>>, Status>
where
    M: Message + Default + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let (metadata, extensions, stream) = request.into_parts();
    let mut parts = RequestParts::new(metadata, extensions);
    let mut stream = FallibleRequests(Some(stream));
    let explain = Explain::begin(&parts.extensions);
    let call = Call::new::<M>(method, &mut parts, Body::Untyped(&mut stream));
    let reply = caller.call(call).await;
    explain.inspect(|explain| explain.end(reply.as_ref().err()));
    Ok(reply?.into_any_stream())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use futures::stream;
    use parking_lot::Mutex;
    use tonic::metadata::MetadataMap;

    use super::*;
    use crate::SharedMethod;
    use crate::client::ClientReply;

    /// Answers each call with an empty message, and watches its method.
    #[derive(Default)]
    struct Watching(Mutex<Vec<Weak<SharedMethod>>>);

    impl Caller for Watching {
        async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
            let Method::Shared(method) = call.method() else { panic!("it is called by its path") };
            self.0.lock().push(Arc::downgrade(method));
            let (initial, trailers) = (MetadataMap::new(), MetadataMap::new());
            Ok(ClientReply::with_message(initial, trailers, Vec::new().into()))
        }
    }

    #[tokio::test]
    async fn ten_thousand_paths_are_called_and_none_is_kept() {
        let caller = Watching::default();
        for number in 0..10_000 {
            let method = Method::by_path(&format!("/paths.A/M{number}")).unwrap();
            let requests = Request::new(stream::empty());
            let response = untyped::<(), _>(&caller, method, requests).await.unwrap();
            assert_eq!(response.into_inner().message().await.unwrap(), Some(()));
        }
        let methods = caller.0.into_inner();
        assert_eq!(methods.len(), 10_000);
        assert!(methods.iter().all(|method| method.strong_count() == 0));
    }
}
