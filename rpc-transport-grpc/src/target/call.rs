//! A single call to a gRPC server, made by tonic's own client code.

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

/// The peer of a connection.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// The server's address as the user wrote it.
    pub(super) name: Arc<str>,
    pub(super) scheme: Scheme,
    /// The authority that requests name.
    pub(super) authority: String,
    /// The limits on responses.
    pub(super) limits: Limits,
    pub(super) goodbye: Arc<Goodbye>,
}

/// Lives as long as a call: the connection's counter, and the switch that ends the call's requests.
struct Guard {
    _in_flight: Box<dyn Any + Send>,
    /// Dropping it ends the request stream and tells the server that the call is cancelled.
    _given_up: DropGuard,
}

/// Returns the path of a request. Does not copy the path of generated code.
fn path(method: &Method) -> Result<PathAndQuery, Status> {
    let bytes = match method {
        Method::Static(method) => Bytes::from_static(method.path.as_bytes()),
        Method::Shared(_) => Bytes::copy_from_slice(method.path().as_bytes()),
    };
    let invalid = |error| Status::internal(format!("the method's path {}: {error}", method.path()));
    PathAndQuery::from_maybe_shared(bytes).map_err(invalid)
}

/// Makes a call, up to its first response.
pub(super) async fn make(
    sender: SendRequest<Body>,
    server: Server,
    call: EncodedCall,
    in_flight: Box<dyn Any + Send>,
) -> Result<EncodedReply, Status> {
    let EncodedCall { method, metadata, extensions, limit, body, .. } = call;
    // Nothing has been sent yet, so a failure here is safe to retry.
    check_binary(&metadata)
        .map_err(|error| NotExecuted::mark(Status::internal(format!("the request's {error}"))))?;
    let max_message_len = usize::try_from(server.limits.max_message_len).unwrap_or(usize::MAX);
    let origin = Uri::builder().scheme(server.scheme.request_scheme());
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
        // A streaming call keeps tonic's body. Only a single message can be its own last frame.
        EncodedBody::Stream(messages) => (None, messages),
    };
    let requests = requests(messages, given_up, is_asked.clone());
    let mut request = Request::from_parts(metadata, extensions, requests);
    // The deadline is converted to a timeout as late as possible, so that time spent here counts.
    if let Some(limit) = &limit {
        request.set_timeout(limit.deadline().remaining());
    }
    // tonic's client takes a stream without errors. `broken` keeps the error of this one.
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

/// The sources of a failed call's status.
#[derive(Debug, Clone)]
struct Ends {
    server: Arc<str>,
    broken: Broken,
}

impl Ends {
    /// Converts metadata to the form that the application sees.
    fn metadata(&self, metadata: MetadataMap) -> Result<MetadataMap, Status> {
        from_http(metadata).map_err(|error| {
            Status::internal(format!("in the response from the server at {}: {error}", self.server))
        })
    }

    /// Returns the status of a call whose method returns one message, and whose response has
    /// another number.
    fn other_count(&self, found: &str) -> Status {
        Status::unimplemented(format!(
            "the response from the server at {} has {found}, but the method returns one: client \
             and server have different editions of the .proto",
            self.server
        ))
    }

    /// Returns the status of a failed call. If its request stream failed, that error is the status,
    /// whatever HTTP/2 makes of it.
    fn status(&self, mut status: Status) -> Status {
        if let Some(broken) = self.broken.given() {
            return broken;
        }
        match from_http(std::mem::take(status.metadata_mut())) {
            Ok(metadata) => *status.metadata_mut() = metadata,
            // Metadata that the application cannot read must not hide how the call ended. The
            // message keeps both.
            Err(error) => {
                let (code, text) = (status.code(), status.message());
                let text = format!(
                    "the server at {} ended the call with {code:?} ({text}), and its {error}",
                    self.server
                );
                status = Status::internal(text);
            }
        }
        status
    }
}

/// A flag that hyper has polled the messages of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct IsAsked(Arc<AtomicBool>);

impl IsAsked {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Yields the messages of a request, and fails once the call is cancelled.
fn requests(
    messages: BoxStream<'static, Result<Bytes, Status>>,
    given_up: CancellationToken,
    is_asked: IsAsked,
) -> impl Stream<Item = Result<Raw, Status>> + Send + 'static {
    // Without the error at its end, the body of a cancelled call would end cleanly, and the server
    // could take half of the requests for all of them.
    let stopped = given_up.clone();
    let end = stream::once(async move { stopped.is_cancelled().then(|| Err(cancelled())) });
    let messages = messages.map_ok(Raw).take_until(given_up.cancelled_owned());
    // Set by the first poll of the stream, not by its creation. `failed` judges a call by it:
    // before the first poll, a GOAWAY does not prove that the server did not take the stream.
    let start = stream::once(async move { is_asked.set() });
    start.filter_map(|()| ready(None)).chain(messages).chain(end.filter_map(ready))
}

/// Returns an error that resets the HTTP/2 stream with the code of a cancelled call.
fn cancelled() -> Status {
    let mut status = Status::cancelled("the call was cancelled");
    status.set_source(Arc::new(h2::Error::from(h2::Reason::CANCEL)));
    status
}

/// Converts the response of a method with one response message.
///
/// Any other number of messages is `UNIMPLEMENTED`, as gRPC's list of codes has it: the two sides
/// disagree about the method.
async fn one(response: Response<Streaming<Raw>>, ends: &Ends) -> Result<EncodedReply, Status> {
    let (metadata, mut messages, _) = response.into_parts();
    let mut next = async || messages.message().await.map_err(|status| ends.status(status));
    let Some(Raw(message)) = next().await? else {
        return Err(ends.other_count("no message"));
    };
    // Reads on to the end: the trailers carry the status, and a second message is an error.
    if next().await?.is_some() {
        return Err(ends.other_count("more than one message"));
    }
    let trailers = messages.trailers().await?.unwrap_or_default();
    let (initial, trailers) = (ends.metadata(metadata)?, ends.metadata(trailers)?);
    Ok(EncodedReply::Message { initial, trailers, message })
}

/// Converts the response of a method with a response stream.
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
            // The state is `None` after trailers or an error, so the stream ends there. Dropping
            // `guard` then ends the requests.
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

/// The connection as the service that tonic's client code calls.
#[derive(Debug)]
struct Http2 {
    sender: SendRequest<Body>,
    server: Server,
    is_asked: IsAsked,
    /// A body that replaces tonic's.
    message: Option<MessageBody>,
}

impl Service<http::Request<Body>> for Http2 {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // Always ready: hyper hands a request back if the connection takes no more.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let (mut sender, server) = (self.sender.clone(), self.server.name.clone());
        let goodbye = Arc::clone(&self.server.goodbye);
        let is_asked = self.is_asked.clone();
        let agent = http::HeaderValue::from_static(USER_AGENT);
        request.headers_mut().entry(http::header::USER_AGENT).or_insert(agent);
        if let Some(message) = self.message.take() {
            // tonic's own body would end with an empty DATA frame. See `message_body`.
            *request.body_mut() = Body::new(message);
        }
        async move {
            let sent = sender.try_send_request(request).await;
            // hyper hands the request back only if no part of it was sent. After that, the flag
            // tells `failed` which errors prove that the server did not take the call.
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

/// The progress of a call when hyper failed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// hyper has handed the request back.
    NotSent,
    /// The call may have a stream. hyper has not polled its messages.
    Opened,
    /// hyper has polled its messages. The response is pending.
    Sending,
    /// The response headers have arrived.
    Answered,
}

/// Returns the status of a call that hyper has failed.
fn failed(server: &str, goodbye: &Goodbye, error: &hyper::Error, progress: Progress) -> Status {
    let h2_error = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    let remote_error = h2_error.filter(|error| error.is_remote());
    let reason = h2_error.and_then(h2::Error::reason);
    let is_reset = remote_error.is_some_and(h2::Error::is_reset);
    let is_go_away = remote_error.is_some_and(h2::Error::is_go_away);
    let is_refused = is_reset && reason == Some(h2::Reason::REFUSED_STREAM);
    let was_not_taken = match progress {
        Progress::NotSent => true,
        // hyper also fails a call for a GOAWAY that arrives just as its stream opens. The server
        // may still take that stream, so a GOAWAY alone proves nothing here.
        Progress::Opened => is_refused,
        // h2 fails streams above the GOAWAY's last stream with the GOAWAY itself. Streams below
        // fail with the end of the connection, and may have been executed.
        Progress::Sending => is_refused || is_go_away,
        Progress::Answered => false,
    };
    let cause = describe(error);
    if was_not_taken {
        let message = format!("the server at {server} did not accept the call: {cause}");
        let message = goodbye.explain(message);
        return NotExecuted::mark(Status::unavailable(message));
    }
    if is_reset {
        // tonic owns gRPC's table of HTTP/2 codes.
        let code = reason.map_or(tonic::Code::Unknown, code_of);
        return Status::new(code, format!("the server at {server} reset the call: {cause}"));
    }
    let message = goodbye.explain(format!("the connection to {server} has ended: {cause}"));
    MayHaveExecuted::mark(Status::unavailable(message))
}

/// Returns gRPC's code for a stream that the server has reset with `reason`.
fn code_of(reason: h2::Reason) -> tonic::Code {
    let status = Status::from_error(Box::new(h2::Error::from(reason)));
    status.code()
}

/// Describes a hyper error with its causes. Its own message says little.
pub(super) fn describe(error: &hyper::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    message
}
