//! `GrpcOver`: gRPC clients over a farcall channel.

mod at_once;
mod early;
mod framing;
mod limit;
mod request_body;
mod response_body;

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::{FutureExt, TryStreamExt, stream};
use http::header;
use http_body::Body;
use rpc_core::client::{untyped, untyped_unary};
use rpc_core::{CallKind, Caller, Deadline, LateTrailers, Method, MethodDescriptor, grpc_timeout};
use tokio::time::Instant;
use tonic::Streaming;
use tonic::codec::{CompressionEncoding, EncodeBody, SingleMessageCompressionOverride};
use tonic::metadata::{GRPC_CONTENT_TYPE, MetadataMap};
use tonic::server::Grpc;
use tower::{BoxError, Service, service_fn};

use self::at_once::ReadAhead;
pub(crate) use self::early::Early;
use self::early::has_one_request;
pub(crate) use self::limit::Limit;
use self::request_body::RequestBody;
use self::response_body::ResponseBody;
use crate::compression::accept_all_requests;
use crate::raw::{Raw, RawCodec};

/// An adapter that lets tonic-generated clients call over a farcall channel, on every transport.
///
/// Messages pass through unchanged: the client encodes them and the handler decodes them. The
/// adapter preserves metadata in both directions, the status with its details, trailers, the
/// deadline (`Request::set_timeout`) and cancellation. Dropping a call or a response stream cancels
/// it on the server. The adapter inflates messages that the client has compressed (gzip; zstd with
/// the feature of that name).
///
/// To the server, its clients are what the channel is. Over a channel inside the process, a Unix
/// socket or loopback they see a server's `Admin`, so refuse paths of `/farcall.admin.` if the
/// clients are untrusted.
///
/// The server announces which sides of a method are streams when a connection opens. The channel's
/// layers and interceptors see every such call as one with a stream in each direction.
///
/// # Examples
///
/// ```
/// # fn example<C: rpc_core::Caller + Clone + 'static>(channel: C) {
/// # struct GreeterClient<T>(T);
/// # impl<T> GreeterClient<T> { fn new(inner: T) -> Self { Self(inner) } }
/// # use rpc_transport_grpc as grpc;
/// // `channel` is a `farcall::Channel`, and `GreeterClient` what tonic has generated.
/// let client = GreeterClient::new(grpc::GrpcOver::new(channel));
/// # drop(client.0);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct GrpcOver<C> {
    caller: C,
    settings: Settings,
}

/// Settings of the HTTP side.
#[derive(Debug, Clone, Copy)]
struct Settings {
    max_message_len: u64,
    send_compressed: Option<CompressionEncoding>,
}

/// The header that names the compression of the messages.
const ENCODING: &str = "grpc-encoding";

impl<C> GrpcOver<C> {
    /// Creates an adapter over `caller`: a channel, with layers or without.
    #[must_use]
    pub fn new(caller: C) -> Self {
        let settings = Settings { max_message_len: u64::MAX, send_compressed: None };
        Self { caller, settings }
    }

    /// Compresses responses if the client accepts the encoding. Off by default: between a client
    /// and its own process, compression saves nothing.
    #[must_use]
    pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
        self.settings.send_compressed = Some(encoding);
        self
    }

    /// Sets the maximum length of a client's message in bytes, both on the wire and inflated.
    ///
    /// The adapter refuses a longer message before it is received. Without this setting, the
    /// channel's server applies its own limit after inflation. Set it if the clients are untrusted,
    /// for example behind a proxy's listener.
    #[must_use]
    pub fn max_message_len(mut self, bytes: u64) -> Self {
        self.settings.max_message_len = bytes;
        self
    }

    /// Returns the caller that makes the calls.
    #[must_use]
    pub fn caller(&self) -> &C {
        &self.caller
    }
}

impl<C, B> Service<http::Request<B>> for GrpcOver<C>
where
    C: Caller + Clone + 'static,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    /// Always ready: each call waits, or fails, on its own.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let Settings { max_message_len, send_compressed } = self.settings;
        let (caller, lateness) = (self.caller.clone(), Lateness::LeftToCaller);
        let exchange = Exchange { caller, max_message_len, send_compressed, lateness };
        let request = request
            .map(|body| RequestBody::new(Box::pin(body), Limit::for_process(max_message_len)));
        async move {
            let path = request.uri().path();
            let method = match exchange.caller.described(path) {
                Some(method) => Ok(method),
                None => Method::by_path(path),
            };
            Ok(match method {
                Ok(method) if method.kind() == CallKind::Unary => {
                    exchange.one_request(method, request).await
                }
                Ok(method) => exchange.streaming(method, request).await,
                Err(status) => status.into_http(),
            })
        }
        .boxed()
    }
}

/// Answers an HTTP request with a call of `method` through `caller`. Sets no timeout itself.
pub(crate) async fn answer<C, B>(
    caller: &C,
    limit: Limit,
    early: &Early,
    method: &'static MethodDescriptor,
    request: http::Request<B>,
) -> http::Response<tonic::body::Body>
where
    C: Caller + Clone + 'static,
    B: Body<Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let (caller, max_message_len) = (caller.clone(), limit.max_message_len);
    let lateness = Lateness::Limited(early, method);
    let exchange = Exchange { caller, max_message_len, send_compressed: None, lateness };
    let request = request.map(|body| RequestBody::new(body, limit));
    match has_one_request(method.kind) {
        true => exchange.one_request(method.into(), request).await,
        false => exchange.streaming(method.into(), request).await,
    }
}

/// The conversion of one HTTP request to a call, and of its reply to a response.
struct Exchange<'a, C> {
    caller: C,
    max_message_len: u64,
    send_compressed: Option<CompressionEncoding>,
    lateness: Lateness<'a>,
}

/// The policy for a call of one request while its message has not arrived.
#[derive(Debug, Clone, Copy)]
enum Lateness<'a> {
    /// The call takes a permit, and waits as long as the server and its client allow.
    Limited(&'a Early, &'static MethodDescriptor),
    /// The caller decides. It may have a timeout of its own.
    LeftToCaller,
}

impl<C: Caller + Clone + 'static> Exchange<'_, C> {
    /// Calls a method that takes one message.
    async fn one_request<B>(
        self,
        method: Method,
        request: http::Request<RequestBody<B>>,
    ) -> http::Response<tonic::body::Body>
    where
        B: Body<Error: Into<BoxError>> + Send + Unpin + 'static,
    {
        let (mut head, body) = request.into_parts();
        let mut body = ReadAhead::new(body);
        let is_over = body.read_at_once().await;
        // tonic handles encodings in both directions, and refuses unknown ones.
        let is_plain = method.kind() == CallKind::Unary
            && self.send_compressed.is_none()
            && !head.headers.contains_key(ENCODING);
        match self.lateness {
            // A body that has ended needs no permit. Without a permit, nothing else logs a request
            // that failed before its call began.
            Lateness::Limited(early, method) if is_over => {
                if let Some(status) = body.error() {
                    early.log_refusal(Some(method), status);
                }
            }
            Lateness::Limited(early, method) => {
                match early.admit(method, take_timeout(&mut head)) {
                    Ok(waiting) => body.set_waiting(waiting),
                    Err(status) => return status.into_http(),
                }
                if is_plain {
                    body.wait().await;
                }
            }
            Lateness::LeftToCaller => {}
        }
        match body.sole_message().filter(|_| is_plain) {
            Some(message) => self.one_message(method, head, message).await,
            None => {
                let request = http::Request::from_parts(head, body);
                Box::pin(self.streaming(method, request)).await
            }
        }
    }

    /// Makes a call whose single request message has arrived.
    async fn one_message(
        self,
        method: Method,
        head: http::request::Parts,
        message: Bytes,
    ) -> http::Response<tonic::body::Body> {
        let metadata = MetadataMap::from_headers(head.headers);
        let request = tonic::Request::from_parts(metadata, head.extensions, Raw(message));
        match untyped_unary(&self.caller, method, request).await {
            Ok(response) => whole(response),
            Err(status) => status.into_http(),
        }
    }

    /// Makes a call of any kind with a stream in each direction.
    async fn streaming<B>(
        self,
        method: Method,
        request: http::Request<B>,
    ) -> http::Response<tonic::body::Body>
    where
        B: Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
    {
        let (caller, max_message_len) = (&self.caller, self.max_message_len);
        let trailers = LateTrailers::default();
        let call = service_fn(|request: tonic::Request<Streaming<Raw>>| {
            let (method, trailers) = (method.clone(), trailers.clone());
            async move {
                let named = move |status| request_body::named(status, max_message_len);
                let request = request.map(|messages| messages.map_err(named));
                let response = untyped(caller, method, request).await?;
                Ok(response.map(|messages| trailers.follow(messages)))
            }
        });
        let response = self.grpc().streaming(call, request).await;
        with_trailers(response, trailers)
    }

    /// Returns tonic's server code with this exchange's encodings and limit.
    fn grpc(&self) -> Grpc<RawCodec> {
        let mut grpc = accept_all_requests(Grpc::new(RawCodec));
        if let Some(encoding) = self.send_compressed {
            grpc = grpc.send_compressed(encoding);
        }
        // `RequestBody` has checked the length on the wire. tonic's limit bounds the inflated
        // length: without it, a message of a thousandth of the limit could fill all memory.
        let inflated_max = usize::try_from(self.max_message_len).unwrap_or(usize::MAX);
        grpc.max_decoding_message_size(inflated_max)
    }
}

/// Takes the timeout of a request whose headers have just arrived.
///
/// Stores the deadline in the extensions. The call begins when the message is complete, but its
/// time starts now.
fn take_timeout(head: &mut http::request::Parts) -> Option<Duration> {
    let metadata = MetadataMap::from_headers(std::mem::take(&mut head.headers));
    let timeout = grpc_timeout(&metadata);
    head.headers = metadata.into_headers();
    head.extensions.insert(Deadline::after(Instant::now(), timeout?));
    timeout
}

/// Builds the response of a unary call that succeeded.
fn whole(response: tonic::Response<(Raw, MetadataMap)>) -> http::Response<tonic::body::Body> {
    let (metadata, (message, trailers), extensions) = response.into_parts();
    let message = stream::once(ready(Ok(message)));
    let (no_encoding, no_override) = (None, SingleMessageCompressionOverride::default());
    let body = EncodeBody::new_server(RawCodec, message, no_encoding, no_override, None);
    let mut response = http::Response::new(tonic::body::Body::new(body));
    *response.headers_mut() = metadata.into_headers();
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC_CONTENT_TYPE);
    *response.extensions_mut() = extensions;
    if trailers.is_empty() {
        return response;
    }
    let late = LateTrailers::default();
    late.set(trailers);
    with_trailers(response, late)
}

fn with_trailers(
    response: http::Response<tonic::body::Body>,
    trailers: LateTrailers,
) -> http::Response<tonic::body::Body> {
    response.map(|body| tonic::body::Body::new(ResponseBody::new(body, trailers)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::StreamExt;
    use futures::future::join;
    use http::Version;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use parking_lot::Mutex;
    use rpc_core::Idempotency;
    use rpc_core::client::{Call, ClientReply};
    use rpc_core::memory::MemoryShare;
    use tokio::sync::oneshot;
    use tonic::Status;

    use super::*;

    /// Refuses calls and records the deadline of the last one.
    #[derive(Clone, Default)]
    struct Refusing(Arc<Mutex<Option<Deadline>>>);

    impl Caller for Refusing {
        async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
            *self.0.lock() = call.deadline();
            Err(Status::aborted("refused"))
        }
    }

    static METHOD: MethodDescriptor =
        MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

    #[tokio::test(start_paused = true)]
    async fn a_late_message_keeps_the_deadline_of_its_headers() {
        let (caller, began) = (Refusing::default(), Instant::now());
        let (send, message) = oneshot::channel();
        let body = StreamBody::new(stream::once(message).map_ok(Frame::data).boxed());
        let request = http::Request::post(METHOD.path).header("grpc-timeout", "60S").body(body);
        let limit = Limit::for_port(100, MemoryShare::default(), Version::HTTP_11);
        let early = Early::for_tests(Duration::from_secs(30));
        let answered = answer(&caller, limit, &early, &METHOD, request.unwrap());
        let late = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            send.send(Bytes::from_static(b"\0\0\0\0\x02hi")).unwrap();
        };
        let (response, ()) = join(answered, late).await;
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.message(), "refused");
        assert_eq!(*caller.0.lock(), Some(Deadline(began + Duration::from_secs(60))));
    }
}
