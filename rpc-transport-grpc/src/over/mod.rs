//! `GrpcOver`: clients of gRPC over a farcall channel.

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
use futures::{FutureExt, Stream, TryStreamExt, stream};
use http::header;
use http_body::Body;
use rpc_core::client::{untyped, untyped_unary};
use rpc_core::{CallKind, Caller, Deadline, LateTrailers, Method, MethodDescriptor, grpc_timeout};
use tokio::time::Instant;
use tonic::codec::{CompressionEncoding, EncodeBody, SingleMessageCompressionOverride};
use tonic::metadata::{GRPC_CONTENT_TYPE, MetadataMap};
use tonic::server::Grpc;
use tonic::{Status, Streaming};
use tower::{BoxError, Service, service_fn};

use self::at_once::ReadAhead;
pub(crate) use self::early::Early;
use self::early::has_one_request;
pub(crate) use self::limit::Limit;
use self::request_body::RequestBody;
use self::response_body::ResponseBody;
use crate::compression::accept_all_requests;
use crate::raw::{Raw, RawCodec};

/// A farcall channel as what clients that tonic has generated take: they call over it as over
/// tonic's own channel, on every transport of farcall.
///
/// The messages pass as they are, encoded by the client and decoded by the handler. Kept are
/// metadata both ways, the status with its details, trailers, the deadline
/// (`Request::set_timeout`), and cancellation: dropping a call, or a stream of responses, cancels
/// it on the server. Messages that the client has compressed (gzip; zstd with the feature of that
/// name) are inflated here.
///
/// Which sides of a method are streams is the server's to say, which it does when a connection
/// opens. Layers and interceptors of the channel see every such call as one with a stream each way.
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

/// How the HTTP side is spoken.
#[derive(Debug, Clone, Copy)]
struct Settings {
    max_message_len: u64,
    send_compressed: Option<CompressionEncoding>,
}

/// The header that says how messages are compressed.
const ENCODING: &str = "grpc-encoding";

impl<C> GrpcOver<C> {
    /// Clients over `caller`: a channel, with layers or without.
    #[must_use]
    pub fn new(caller: C) -> Self {
        let settings = Settings { max_message_len: u64::MAX, send_compressed: None };
        Self { caller, settings }
    }

    /// Compresses responses, where the client says that it accepts that. Not by default: between a
    /// client and its own process there is nothing to be saved.
    #[must_use]
    pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
        self.settings.send_compressed = Some(encoding);
        self
    }

    /// Refuses longer messages of clients before they are received, and compressed ones that
    /// inflate to more. By default the server of the channel says what it takes, after they have
    /// been inflated: set it where clients are not trusted, as behind a proxy's listener.
    #[must_use]
    pub fn max_message_len(mut self, bytes: u64) -> Self {
        self.settings.max_message_len = bytes;
        self
    }

    /// What calls are made through.
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

    /// Always ready: a call waits, or fails, by itself.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let Settings { max_message_len, send_compressed } = self.settings;
        let (caller, lateness) = (self.caller.clone(), Lateness::LeftToCaller);
        let exchange = Exchange { caller, max_message_len, send_compressed, lateness };
        let request = request
            .map(|body| RequestBody::new(Box::pin(body), Limit::of_process(max_message_len)));
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

/// Answers an HTTP request by a call of `method` through `caller`, which sets no timeout itself.
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

/// How a request over HTTP becomes a call, and its answer a response.
struct Exchange<'a, C> {
    caller: C,
    max_message_len: u64,
    send_compressed: Option<CompressionEncoding>,
    lateness: Lateness<'a>,
}

/// What a call of one request does while its message has not come.
#[derive(Debug, Clone, Copy)]
enum Lateness<'a> {
    /// It takes a permit, and waits as long as the server and its client allow.
    Limited(&'a Early, &'static MethodDescriptor),
    /// It is left to the caller, which may have a timeout for it.
    LeftToCaller,
}

impl<C: Caller + Clone + 'static> Exchange<'_, C> {
    /// A call of a method that takes one message.
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
        // An encoding is tonic's, in both directions, and so is the refusal of an unknown one.
        let is_plain = method.kind() == CallKind::Unary
            && self.send_compressed.is_none()
            && !head.headers.contains_key(ENCODING);
        match self.lateness {
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

    /// A call whose request is one message, which is there.
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

    /// A call of any kind, its messages a stream each way.
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
                Ok(response.map(|messages| until_trailers(messages, trailers)))
            }
        });
        let response = self.grpc().streaming(call, request).await;
        with_trailers(response, trailers)
    }

    /// tonic's server code.
    fn grpc(&self) -> Grpc<RawCodec> {
        let mut grpc = accept_all_requests(Grpc::new(RawCodec));
        if let Some(encoding) = self.send_compressed {
            grpc = grpc.send_compressed(encoding);
        }
        // The body has looked at what a message may have as it travels. tonic's limit bounds what
        // a compressed one is inflated to: a thousandth of the limit could become all memory there
        // is.
        let inflated_max = usize::try_from(self.max_message_len).unwrap_or(usize::MAX);
        grpc.max_decoding_message_size(inflated_max)
    }
}

/// Takes the timeout of a request whose headers have just come. Its deadline is put among the
/// extensions: the call begins when the message is there, and its time begins now.
fn take_timeout(head: &mut http::request::Parts) -> Option<Duration> {
    let metadata = MetadataMap::from_headers(std::mem::take(&mut head.headers));
    let timeout = grpc_timeout(&metadata);
    head.headers = metadata.into_headers();
    head.extensions.insert(Deadline::after(Instant::now(), timeout?));
    timeout
}

/// The response of a call that has succeeded with one message.
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

/// The messages of a response, which leave their trailers behind.
fn until_trailers(
    messages: Streaming<Raw>,
    trailers: LateTrailers,
) -> impl Stream<Item = Result<Raw, Status>> + Send + 'static {
    stream::unfold((messages, trailers), |(mut messages, trailers)| async {
        let next = messages.message().await.transpose();
        if next.is_none()
            && let Ok(Some(last)) = messages.trailers().await
        {
            trailers.set(last);
        }
        next.map(|next| (next, (messages, trailers)))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::StreamExt;
    use futures::future::join;
    use http::Version;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use rpc_core::client::{Call, ClientReply};
    use rpc_core::memory::MemoryShare;
    use rpc_core::{Detach, Idempotency};
    use tokio::sync::oneshot;

    use super::*;

    /// Refuses calls, and keeps the deadline of the last one.
    #[derive(Clone, Default)]
    struct Refusing(Arc<Mutex<Option<Deadline>>>);

    impl Caller for Refusing {
        async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
            *self.0.lock().unwrap() = call.deadline();
            Err(Status::aborted("refused"))
        }
    }

    static METHOD: MethodDescriptor = MethodDescriptor {
        path: "/t.T/M",
        kind: CallKind::Unary,
        idempotency: Idempotency::Unknown,
        detach: Detach::NONE,
    };

    #[tokio::test(start_paused = true)]
    async fn the_deadline_of_a_message_that_comes_late_counts_from_its_headers() {
        let (caller, began) = (Refusing::default(), Instant::now());
        let (send, message) = oneshot::channel();
        let body = StreamBody::new(stream::once(message).map_ok(Frame::data).boxed());
        let request = http::Request::post(METHOD.path).header("grpc-timeout", "60S").body(body);
        let limit = Limit::of_port(100, MemoryShare::default(), Version::HTTP_11);
        let early = Early::of_tests(Duration::from_secs(30));
        let answered = answer(&caller, limit, &early, &METHOD, request.unwrap());
        let late = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            send.send(Bytes::from_static(b"\0\0\0\0\x02hi")).unwrap();
        };
        let (response, ()) = join(answered, late).await;
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.message(), "refused");
        assert_eq!(*caller.0.lock().unwrap(), Some(Deadline(began + Duration::from_secs(60))));
    }
}
