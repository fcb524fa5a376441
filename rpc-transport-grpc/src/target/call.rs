//! One call to a server of gRPC, by tonic's own client code.

use std::any::Any;
use std::error::Error as _;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use http::Uri;
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use hyper::client::conn::http2::SendRequest;
use rpc_core::client::{EncodedBody, EncodedCall, EncodedReply, StreamPart};
use rpc_core::wire::metadata::{check_binary, from_http};
use rpc_core::{Limits, MayHaveExecuted, Method, NotExecuted};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};
use tower::Service;

use super::goodbye::Goodbye;
use super::message_body::MessageBody;
use super::response::admit;
use super::scheme::Scheme;
use crate::breakable::{Breakable, Broken, breakable};
use crate::compression::accept_all_responses;
use crate::raw::{Raw, RawCodec};

/// The server at the other end.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// Its address as the user wrote it.
    pub(super) name: Arc<str>,
    pub(super) scheme: Scheme,
    /// What requests name as their authority.
    pub(super) authority: String,
    /// What this side accepts.
    pub(super) limits: Limits,
    pub(super) goodbye: Arc<Goodbye>,
}

/// What lives as long as a call: whatever the connection counts by it, and the way to end its
/// requests.
struct Guard {
    _in_flight: Box<dyn Any + Send>,
    /// Dropped, the stream of requests ends, and the server is told that the call is given up.
    _given_up: DropGuard,
}

/// The path of a request. Generated code's is not copied.
fn path(method: &Method) -> Result<PathAndQuery, Status> {
    let bytes = match method {
        Method::Static(method) => Bytes::from_static(method.path.as_bytes()),
        Method::Shared(_) => Bytes::copy_from_slice(method.path().as_bytes()),
    };
    let invalid = |error| Status::internal(format!("the method's path {}: {error}", method.path()));
    PathAndQuery::from_maybe_shared(bytes).map_err(invalid)
}

/// Makes a call, up to its first answer.
pub(super) async fn make(
    sender: SendRequest<Body>,
    server: Server,
    call: EncodedCall,
    in_flight: Box<dyn Any + Send>,
) -> Result<EncodedReply, Status> {
    let EncodedCall { method, metadata, extensions, limit, body, .. } = call;
    check_binary(&metadata)
        .map_err(|error| NotExecuted::mark(Status::internal(format!("the request's {error}"))))?;
    let max_message_len = usize::try_from(server.limits.max_message_len).unwrap_or(usize::MAX);
    let origin = Uri::builder().scheme(server.scheme.of_requests());
    let origin = origin
        .authority(&*server.authority)
        .path_and_query("/")
        .build()
        .map_err(|error| Status::internal(error.to_string()))?;
    let given_up = CancellationToken::new();
    let guard = Guard { _in_flight: in_flight, _given_up: given_up.clone().drop_guard() };
    let is_asked = IsAsked::default();
    let (message, messages) = match body {
        EncodedBody::Message(message) => {
            (Some(MessageBody::new(&message, is_asked.clone())?), stream::empty().boxed())
        }
        EncodedBody::Stream(messages) => (None, messages),
    };
    let requests = requests(messages, given_up, is_asked.clone());
    let mut request = Request::from_parts(metadata, extensions, requests);
    if let Some(limit) = &limit {
        request.set_timeout(limit.deadline().remaining());
    }
    let (request, broken) = breakable(request);
    let service = Http2 { sender, server: server.clone(), is_asked, message };
    let service = Breakable::new(service, broken.clone());
    let grpc = Grpc::with_origin(service, origin).max_decoding_message_size(max_message_len);
    let path = path(&method).map_err(NotExecuted::mark)?;
    let response = accept_all_responses(grpc).streaming(request, path, RawCodec).await;
    let ends = Ends { server: server.name, broken };
    let response = response.map_err(|status| ends.status(status))?;
    match method.kind().has_response_stream() {
        true => many(response, ends, guard),
        false => one(response, &ends).await,
    }
}

/// What a call may end with.
#[derive(Debug, Clone)]
struct Ends {
    server: Arc<str>,
    broken: Broken,
}

impl Ends {
    /// Metadata as the application sees it.
    fn metadata(&self, metadata: MetadataMap) -> Result<MetadataMap, Status> {
        from_http(metadata).map_err(|error| {
            Status::internal(format!("of the answer of the server at {}, {error}", self.server))
        })
    }

    /// The status of a call that failed. A stream of requests that broke is why it did, whatever
    /// HTTP/2 makes of that.
    fn status(&self, mut status: Status) -> Status {
        if let Some(broken) = self.broken.given() {
            return broken;
        }
        match from_http(std::mem::take(status.metadata_mut())) {
            Ok(metadata) => *status.metadata_mut() = metadata,
            Err(error) => {
                let (code, text) = (status.code(), status.message());
                let text = format!(
                    "the server at {} ends the call with {code:?} ({text}), and its {error}",
                    self.server
                );
                status = Status::internal(text);
            }
        }
        status
    }
}

/// Whether hyper has asked for the messages of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct IsAsked(Arc<AtomicBool>);

impl IsAsked {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The messages of a request, which break off when the call is given up.
fn requests(
    messages: BoxStream<'static, Result<Bytes, Status>>,
    given_up: CancellationToken,
    is_asked: IsAsked,
) -> impl Stream<Item = Result<Raw, Status>> + Send + 'static {
    let stopped = given_up.clone();
    let end = stream::once(async move { stopped.is_cancelled().then(|| Err(cancelled())) });
    let messages = messages.map_ok(Raw).take_until(given_up.cancelled_owned());
    let start = stream::once(async move { is_asked.set() });
    start.filter_map(|()| ready(None)).chain(messages).chain(end.filter_map(ready))
}

/// What resets an HTTP/2 stream with the code of a call that was given up.
fn cancelled() -> Status {
    let mut status = Status::cancelled("the call was given up");
    status.set_source(Arc::new(h2::Error::from(h2::Reason::CANCEL)));
    status
}

/// The response of a method with one message. Another number of them is `UNIMPLEMENTED`, as in
/// gRPC's list of codes: the sides have different methods.
async fn one(response: Response<Streaming<Raw>>, ends: &Ends) -> Result<EncodedReply, Status> {
    let (metadata, mut messages, _) = response.into_parts();
    let mut next = async || messages.message().await.map_err(|status| ends.status(status));
    let Some(Raw(message)) = next().await? else {
        return Err(Status::unimplemented("the server ended its answer without a message"));
    };
    if next().await?.is_some() {
        return Err(Status::unimplemented("the server answers with more than one message"));
    }
    let trailers = messages.trailers().await?.unwrap_or_default();
    let (initial, trailers) = (ends.metadata(metadata)?, ends.metadata(trailers)?);
    Ok(EncodedReply::Message { initial, trailers, message })
}

/// The response of a method with a stream.
fn many(
    response: Response<Streaming<Raw>>,
    ends: Ends,
    guard: Guard,
) -> Result<EncodedReply, Status> {
    let (metadata, messages, _) = response.into_parts();
    let initial = ends.metadata(metadata)?;
    let parts = stream::unfold(Some((messages, guard)), move |state| {
        let ends = ends.clone();
        async move {
            let (mut messages, guard) = state?;
            match messages.message().await {
                Ok(Some(Raw(message))) => {
                    Some((Ok(StreamPart::Message(message)), Some((messages, guard))))
                }
                Ok(None) => {
                    let trailers = messages.trailers().await.ok().flatten().unwrap_or_default();
                    Some((ends.metadata(trailers).map(StreamPart::Trailers), None))
                }
                Err(status) => Some((Err(ends.status(status)), None)),
            }
        }
    });
    Ok(EncodedReply::Stream { initial, parts: parts.boxed() })
}

/// The connection as what tonic's client code calls.
#[derive(Debug)]
struct Http2 {
    sender: SendRequest<Body>,
    server: Server,
    is_asked: IsAsked,
    /// The body in place of that of tonic's.
    message: Option<MessageBody>,
}

impl Service<http::Request<Body>> for Http2 {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // A connection that takes no more requests gives them back.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let (mut sender, server) = (self.sender.clone(), self.server.name.clone());
        let goodbye = Arc::clone(&self.server.goodbye);
        let is_asked = self.is_asked.clone();
        let agent = http::HeaderValue::from_static(USER_AGENT);
        request.headers_mut().entry(http::header::USER_AGENT).or_insert(agent);
        if let Some(message) = self.message.take() {
            *request.body_mut() = Body::new(message);
        }
        async move {
            let sent = sender.try_send_request(request).await;
            let response = sent.map_err(|mut error| {
                let progress = match error.take_message() {
                    Some(_) => Progress::NotSent,
                    None if is_asked.0.load(Ordering::Relaxed) => Progress::Sending,
                    None => Progress::Opened,
                };
                failed(&server, &goodbye, &error.into_error(), progress)
            })?;
            let name = Arc::clone(&server);
            let response = response.map(|body| {
                body.map_err(move |error| failed(&name, &goodbye, &error, Progress::Answered))
            });
            Ok(admit(&server, response).await?.map(Body::new))
        }
        .boxed()
    }
}

const USER_AGENT: &str = concat!("farcall/", env!("CARGO_PKG_VERSION"));

/// How far a call had come when hyper failed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// hyper has given the request back.
    NotSent,
    /// It may have a stream, and its messages were not asked for.
    Opened,
    /// Its messages were asked for, and its response was waited for.
    Sending,
    /// The headers of its response have come.
    Answered,
}

/// The status of a call that hyper has failed.
fn failed(server: &str, goodbye: &Goodbye, error: &hyper::Error, progress: Progress) -> Status {
    let of_h2 = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    let of_h2_by_server = of_h2.filter(|error| error.is_remote());
    let reason = of_h2.and_then(h2::Error::reason);
    let is_reset = of_h2_by_server.is_some_and(h2::Error::is_reset);
    let is_go_away = of_h2_by_server.is_some_and(h2::Error::is_go_away);
    let is_refused = is_reset && reason == Some(h2::Reason::REFUSED_STREAM);
    let was_not_taken = match progress {
        Progress::NotSent => true,
        // hyper also fails a call by a GOAWAY that came just as its stream was opened. The stream
        // may be one of those that the server still takes.
        Progress::Opened => is_refused,
        // h2 fails the streams above the last one of a GOAWAY with it. Those below fail with what
        // ends the connection.
        Progress::Sending => is_refused || is_go_away,
        Progress::Answered => false,
    };
    let words = words_of(error);
    if was_not_taken {
        let words = format!("the server at {server} has not taken the call: {words}");
        let words = goodbye.explain(words);
        return NotExecuted::mark(Status::unavailable(words));
    }
    if is_reset {
        // gRPC's table of HTTP/2's codes is tonic's business.
        let code = reason.map_or(tonic::Code::Unknown, code_of);
        return Status::new(code, format!("the server at {server} has reset the call: {words}"));
    }
    let words = goodbye.explain(format!("the connection to {server} has ended: {words}"));
    MayHaveExecuted::mark(Status::unavailable(words))
}

/// The status of a stream that the server has reset with that code, as gRPC maps them.
fn code_of(reason: h2::Reason) -> tonic::Code {
    let status = Status::from_error(Box::new(h2::Error::from(reason)));
    status.code()
}

/// The causes of an error of hyper's; its own words say little.
pub(super) fn words_of(error: &hyper::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
