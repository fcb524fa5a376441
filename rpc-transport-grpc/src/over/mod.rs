//! `GrpcOver`: clients of gRPC over a farcall channel.

mod framing;
mod limit;
mod request_body;
mod response_body;

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, TryStreamExt, stream};
use http_body::Body;
use rpc_core::client::{MethodName, UnnamedPaths, untyped};
use rpc_core::{Caller, LateTrailers, MethodDescriptor};
use tonic::codec::CompressionEncoding;
use tonic::server::Grpc;
use tonic::{Status, Streaming};
use tower::{BoxError, Service, service_fn};

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
/// One process can call 4,096 different methods so; calls of more end with `RESOURCE_EXHAUSTED`.
/// Each `GrpcOver` with its clones has room for 256 paths of which no server has said that it has
/// the method. Behind a listener whose clients are not trusted, let only paths through that the
/// servers have: after 256 others, methods that were not called before are refused there.
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
    unnamed: UnnamedPaths,
}

/// How the HTTP side is spoken.
#[derive(Debug, Clone, Copy)]
struct Settings {
    max_message_len: u64,
    send_compressed: Option<CompressionEncoding>,
}

impl<C> GrpcOver<C> {
    /// Clients over `caller`: a channel, with layers or without.
    #[must_use]
    pub fn new(caller: C) -> Self {
        let settings = Settings { max_message_len: u64::MAX, send_compressed: None };
        Self { caller, settings, unnamed: UnnamedPaths::default() }
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
        let (caller, settings) = (self.caller.clone(), self.settings);
        let unnamed = self.unnamed.clone();
        async move {
            let (path, limit) =
                (request.uri().path().to_owned(), Limit::of_process(settings.max_message_len));
            let (name, compressed) = (MethodName::Path(&path, &unnamed), settings.send_compressed);
            Ok(exchange(&caller, limit, compressed, name, request).await)
        }
        .boxed()
    }
}

/// Answers an HTTP request by a call of `method` through `caller`.
pub(crate) async fn answer<C, B>(
    caller: &C,
    limit: Limit,
    method: &'static MethodDescriptor,
    request: http::Request<B>,
) -> http::Response<tonic::body::Body>
where
    C: Caller + Clone + 'static,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    exchange(caller, limit, None, MethodName::Descriptor(method), request).await
}

async fn exchange<C, B>(
    caller: &C,
    limit: Limit,
    send_compressed: Option<CompressionEncoding>,
    name: MethodName<'_>,
    request: http::Request<B>,
) -> http::Response<tonic::body::Body>
where
    C: Caller + Clone + 'static,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    let max_message_len = limit.max_message_len;
    let request = request.map(|body| RequestBody::new(body, limit));
    let trailers = LateTrailers::default();
    let call = service_fn(|request: tonic::Request<Streaming<Raw>>| {
        let (caller, trailers) = (caller.clone(), trailers.clone());
        async move {
            let named = move |status| request_body::named(status, max_message_len);
            let request = request.map(|messages| messages.map_err(named));
            let response = untyped(&caller, name, request).await?;
            Ok(response.map(|messages| until_trailers(messages, trailers)))
        }
    });
    let mut grpc = accept_all_requests(Grpc::new(RawCodec));
    if let Some(encoding) = send_compressed {
        grpc = grpc.send_compressed(encoding);
    }
    // The body has looked at what a message may have as it travels. tonic's limit bounds what a
    // compressed one is inflated to: a thousandth of the limit could become all memory there is.
    let inflated_max = usize::try_from(max_message_len).unwrap_or(usize::MAX);
    let grpc = grpc.max_decoding_message_size(inflated_max);
    let response = { grpc }.streaming(call, request).await;
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
