//! The HTTP side of the port: which requests are calls, and how the others are answered.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, Version, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use rpc_core::memory::MemoryShare;
use rpc_core::{Channel, MethodDescriptor, is_grpc_timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_web::GrpcWebLayer;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

use super::bodies::Outgoing;
use super::cross_origin::CrossOrigin;
use super::flow::Flowing;
use super::header_list;
use super::http1::Timely;
use crate::content_type::ContentType;
use crate::over::{Early, Limit, answer};

const GRPC_TIMEOUT: &str = "grpc-timeout";

/// What answers the requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct PortService {
    pub(super) channel: Channel,
    pub(super) methods: Arc<HashMap<&'static str, &'static MethodDescriptor>>,
    pub(super) memory: MemoryShare,
    pub(super) flowing: Arc<Flowing>,
    pub(super) max_message_len: u64,
    /// Admits calls whose message has not come.
    pub(super) early: Early,
    /// How long the next piece of a request over HTTP/1 may take.
    pub(super) body_timeout: Duration,
    /// Set when the listener is shut down.
    pub(super) draining: CancellationToken,
    /// Which pages have leave to call.
    pub(super) cross_origin: Arc<CrossOrigin>,
}

impl PortService {
    /// Answers a request.
    pub(super) async fn answer<B>(self, request: http::Request<B>) -> http::Response<Outgoing>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let response = if let Some(probe) = Probe::of(&request) {
            probe.answer(self.draining.is_cancelled())
        } else if let Some(leave) = self.cross_origin.layer_for(&request, is_web(&request)) {
            let answering = service_fn(|request| {
                let service = self.clone();
                async move { Ok::<_, Infallible>(service.answer_web(request).await) }
            });
            // In memory of its own, as what follows: every call's future has room for all of it.
            let answered = Box::pin(leave.layer(answering).oneshot(request)).await;
            answered.unwrap_or_else(|never| match never {})
        } else if is_web(&request) {
            Box::pin(self.answer_web(request)).await
        } else if request.version() == Version::HTTP_2 {
            self.call(Version::HTTP_2, request).await
        } else {
            Refusal::of_http1(&request).into_response()
        };
        response.map(|body| Outgoing::new(body, self.memory, self.flowing))
    }

    /// Answers a request of grpc-web, which may come over HTTP/1.
    async fn answer_web<B>(&self, request: http::Request<B>) -> http::Response<tonic::body::Body>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let version = request.version();
        let request = match version {
            Version::HTTP_2 => request.map(tonic::body::Body::new),
            _ => request.map(|body| tonic::body::Body::new(Timely::new(body, self.body_timeout))),
        };
        // Before trailers become a part of the body.
        let max = self.flowing.header_list.len_max();
        let calling = service_fn(|request: http::Request<tonic::body::Body>| {
            let service = self.clone();
            async move { Ok::<_, Infallible>(fitted(service.call(version, request).await, max)) }
        });
        let answered = GrpcWebLayer::new().layer(calling).oneshot(request).await;
        answered.unwrap_or_else(|never| match never {})
    }

    /// Makes the call that a request of gRPC is, which has come over that version of HTTP.
    async fn call<B>(
        &self,
        version: Version,
        request: http::Request<B>,
    ) -> http::Response<tonic::body::Body>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        match self.check(&request) {
            Ok(method) => {
                let limit = Limit::of_port(self.max_message_len, self.memory.clone(), version);
                answer(&self.channel, limit, &self.early, method, request).await
            }
            Err(refusal) => {
                if let Refusal::Call(status) = &refusal {
                    self.early.log_refusal(None, status);
                }
                refusal.into_response()
            }
        }
    }

    /// Logs a request that was refused before anything but its headers was read.
    pub(super) fn log_refusal(&self, path: &str, status: &Status) {
        self.early.log_refusal(self.methods.get(path).copied(), status);
    }

    /// The method that a request calls.
    fn check<B>(&self, request: &http::Request<B>) -> Result<&'static MethodDescriptor, Refusal> {
        if request.method() != Method::POST {
            return Err(Refusal::NoCall(StatusCode::METHOD_NOT_ALLOWED));
        }
        let content_type = request.headers().get(header::CONTENT_TYPE);
        if content_type.map(ContentType::of) != Some(ContentType::Proto) {
            return Err(Refusal::NoCall(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let timeout = request.headers().get(GRPC_TIMEOUT);
        if let Some(timeout) = timeout.filter(|it| !is_grpc_timeout(it.as_bytes())) {
            return Err(Refusal::Call(Status::internal(format!(
                "the request's grpc-timeout {timeout:?} is not a number of at most eight digits \
                 and a unit"
            ))));
        }
        let path = request.uri().path();
        self.methods.get(path).copied().ok_or_else(|| {
            let words = format!("the server has no method {path}");
            Refusal::Call(Status::unimplemented(words))
        })
    }
}

/// Cuts a response's headers and trailers to `max` bytes.
fn fitted(
    response: http::Response<tonic::body::Body>,
    max: usize,
) -> http::Response<tonic::body::Body> {
    let (mut head, body) = response.into_parts();
    let goes_on = header_list::fit(&mut head.headers, max);
    let body = body.map_frame(move |frame| match frame.into_trailers() {
        Ok(mut trailers) => {
            header_list::fit(&mut trailers, max);
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    });
    let body = if goes_on { tonic::body::Body::new(body) } else { tonic::body::Body::empty() };
    http::Response::from_parts(head, body)
}

/// How a request is answered that reaches no method.
enum Refusal {
    /// It is no call of gRPC.
    NoCall(StatusCode),
    /// It is one.
    Call(Status),
}

impl Refusal {
    /// For a request over HTTP/1 that is neither a probe nor grpc-web.
    fn of_http1<B>(request: &http::Request<B>) -> Self {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        Self::NoCall(match *request.method() {
            Method::POST if content_type.map(ContentType::of) == Some(ContentType::Proto) => {
                StatusCode::HTTP_VERSION_NOT_SUPPORTED
            }
            Method::POST => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Method::GET | Method::HEAD => StatusCode::NOT_FOUND,
            _ => StatusCode::METHOD_NOT_ALLOWED,
        })
    }

    fn into_response(self) -> http::Response<tonic::body::Body> {
        match self {
            Self::NoCall(code) => text(code, NO_CALL),
            Self::Call(status) => status.into_http(),
        }
    }
}

/// What is answered to a request that is no call.
const NO_CALL: &str = "This is the port of a farcall server. It takes gRPC over HTTP/2, grpc-web, \
                       and GET /healthz.\n";

/// A response of plain text.
fn text(code: StatusCode, words: &'static str) -> http::Response<tonic::body::Body> {
    let body = tonic::body::Body::new(Full::new(Bytes::from_static(words.as_bytes())));
    let mut response = http::Response::new(body);
    *response.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response.headers_mut().insert(header::CONTENT_LENGTH, words.len().into());
    response
}

/// What a load balancer asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// Whether the server takes new calls.
    Ready,
    /// Whether it runs.
    Alive,
}

impl Probe {
    fn of<B>(request: &http::Request<B>) -> Option<Self> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return None;
        }
        match request.uri().path() {
            "/health" | "/healthz" | "/readyz" => Some(Self::Ready),
            "/livez" => Some(Self::Alive),
            _ => None,
        }
    }

    fn answer(self, is_draining: bool) -> http::Response<tonic::body::Body> {
        match (self, is_draining) {
            (Self::Ready, true) => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            (Self::Alive, true) => text(StatusCode::OK, "draining\n"),
            (_, false) => text(StatusCode::OK, "serving\n"),
        }
    }
}

/// The content types of grpc-web: those that tonic-web knows.
const WEB_TYPES: [&str; 4] = [
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web-text",
    "application/grpc-web-text+proto",
];

/// Whether a request is grpc-web's.
fn is_web<B>(request: &http::Request<B>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    request.method() == Method::POST
        && content_type
            .is_some_and(|it| WEB_TYPES.iter().any(|web| web.as_bytes() == it.as_bytes()))
}
