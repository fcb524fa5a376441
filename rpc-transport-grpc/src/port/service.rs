//! The HTTP side of the port: routes requests to calls, and answers the rest.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, Version, header};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use rpc_core::memory::MemoryShare;
use rpc_core::{ANY_METHOD_PATH, CALLED_PATH_KEY, Channel, MethodDescriptor, is_grpc_timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_web::GrpcWebLayer;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

use super::bodies::Outgoing;
use super::cross_origin::CrossOrigin;
use super::flow::Flowing;
use super::header_list;
use super::http1::Timely;
use super::pages::{self, Pages};
use crate::content_type::ContentType;
use crate::over::{Early, Limit, answer};

const GRPC_TIMEOUT: &str = "grpc-timeout";

/// The service that answers the requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct PortService {
    pub(super) channel: Channel,
    pub(super) methods: Arc<HashMap<&'static str, &'static MethodDescriptor>>,
    pub(super) memory: MemoryShare,
    pub(super) flowing: Arc<Flowing>,
    pub(super) max_message_len: u64,
    /// Admits calls before their message has arrived.
    pub(super) early: Early,
    /// Maximum wait for the next piece of an HTTP/1 request.
    pub(super) body_timeout: Duration,
    /// Cancelled when the listener shuts down.
    pub(super) draining: CancellationToken,
    /// The CORS policy.
    pub(super) cross_origin: Arc<CrossOrigin>,
    /// Pages for operators.
    pub(super) pages: Option<Arc<dyn Pages>>,
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
        } else if let Some(page) = self.page(&request) {
            page
        } else if let Some(leave) = self.cross_origin.layer_for(&request, is_web(&request)) {
            let answering = service_fn(|request| {
                let service = self.clone();
                async move { Ok::<_, Infallible>(service.answer_web(request).await) }
            });
            // Boxed, like the branches below: otherwise every call's future would reserve room for
            // them.
            let answered = Box::pin(leave.layer(answering).oneshot(request)).await;
            answered.unwrap_or_else(|never| match never {})
        } else if is_web(&request) {
            Box::pin(self.answer_web(request)).await
        } else if request.version() == Version::HTTP_2 {
            self.call(Version::HTTP_2, request).await
        } else {
            Refusal::for_http1(&request).into_response()
        };
        response.map(|body| Outgoing::new(body, self.memory, self.flowing))
    }

    /// Returns the page for operators that a request asks for.
    fn page<B>(&self, request: &http::Request<B>) -> Option<http::Response<tonic::body::Body>> {
        let pages = self.pages.as_ref()?;
        // Asked first: the time of an answer would tell that there is a page.
        if !self.is_operator(request) {
            return None;
        }
        pages::page(&**pages, request)
    }

    /// Answers a grpc-web request, over any version of HTTP.
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
        // Truncates before tonic-web moves the trailers into the body, where their length no longer
        // shows.
        let max = self.flowing.header_list.len_max();
        let calling = service_fn(|request: http::Request<tonic::body::Body>| {
            let service = self.clone();
            async move { Ok::<_, Infallible>(fitted(service.call(version, request).await, max)) }
        });
        let answered = GrpcWebLayer::new().layer(calling).oneshot(request).await;
        answered.unwrap_or_else(|never| match never {})
    }

    /// Dispatches a gRPC request that arrived over `version`.
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
                let request = if method.path == ANY_METHOD_PATH { named(request) } else { request };
                let limit = Limit::for_port(self.max_message_len, self.memory.clone(), version);
                answer(&self.channel, limit, &self.early, method, request).await
            }
            Err(refusal) => {
                // A refusal is not a call, so the session never sees or logs it.
                if let Refusal::Call(status) = &refusal {
                    self.early.log_refusal(None, status);
                }
                refusal.into_response()
            }
        }
    }

    /// Logs a request that the server refused after its headers alone.
    pub(super) fn log_refusal(&self, path: &str, status: &Status) {
        self.early.log_refusal(self.methods.get(path).copied(), status);
    }

    /// Returns true if an operator sends the request. A page of another site that is shown by an
    /// operator's browser does not: browsers name its origin, whatever `grpc_web_origins` allows.
    fn is_operator<B>(&self, request: &http::Request<B>) -> bool {
        !request.headers().contains_key(header::ORIGIN)
            && self.early.admits_operator(|| pages::names_own_host(request))
    }

    /// Returns the method that a request calls.
    fn check<B>(&self, request: &http::Request<B>) -> Result<&'static MethodDescriptor, Refusal> {
        if request.method() != Method::POST {
            return Err(Refusal::NoCall(StatusCode::METHOD_NOT_ALLOWED));
        }
        let content_type = request.headers().get(header::CONTENT_TYPE);
        if content_type.map(ContentType::parse) != Some(ContentType::Proto) {
            return Err(Refusal::NoCall(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        // Refused here: later, a malformed timeout would count as none, and the call would run
        // without its client's deadline.
        let timeout = request.headers().get(GRPC_TIMEOUT);
        if let Some(timeout) = timeout.filter(|it| !is_grpc_timeout(it.as_bytes())) {
            return Err(Refusal::Call(Status::internal(format!(
                "the request's grpc-timeout {timeout:?} is not a number of at most eight digits \
                 and a unit"
            ))));
        }
        let path = request.uri().path();
        let method = self.methods.get(path).copied();
        let is_shown = |method: &&_| self.early.shows(method, || self.is_operator(request));
        let any = || self.methods.get(ANY_METHOD_PATH).copied();
        method.filter(is_shown).or_else(any).ok_or_else(|| {
            let message = format!("the server has no method {path}");
            Refusal::Call(Status::unimplemented(message))
        })
    }
}

/// Adds the path to the metadata of a request that the method for all paths answers.
fn named<B>(mut request: http::Request<B>) -> http::Request<B> {
    // A path has no character that a header's value has not.
    let path = HeaderValue::from_str(request.uri().path());
    let path = path.unwrap_or_else(|_| HeaderValue::from_static(""));
    request.headers_mut().insert(CALLED_PATH_KEY, path);
    request
}

/// Truncates a response's headers and trailers to `max` bytes.
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

/// The answer to a request that reaches no method.
enum Refusal {
    /// The request is not a gRPC call.
    NoCall(StatusCode),
    /// The request is a call, and gets a status.
    Call(Status),
}

impl Refusal {
    /// Returns the answer to an HTTP/1 request that is neither a probe nor grpc-web.
    fn for_http1<B>(request: &http::Request<B>) -> Self {
        let content_type = request.headers().get(header::CONTENT_TYPE);
        Self::NoCall(match *request.method() {
            Method::POST if content_type.map(ContentType::parse) == Some(ContentType::Proto) => {
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

/// Text for a request that is not a call.
const NO_CALL: &str = "This is the port of a farcall server. It accepts gRPC over HTTP/2, \
                       grpc-web, and GET /healthz.\n";

/// Returns a plain text response.
fn text(code: StatusCode, message: &'static str) -> http::Response<tonic::body::Body> {
    let body = tonic::body::Body::new(Full::new(Bytes::from_static(message.as_bytes())));
    let mut response = http::Response::new(body);
    *response.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response.headers_mut().insert(header::CONTENT_LENGTH, message.len().into());
    response
}

/// A load balancer's probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// Asks if the server accepts new calls.
    Ready,
    /// Asks if the server runs.
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

/// The content types of grpc-web that tonic-web accepts.
const WEB_TYPES: [&str; 4] = [
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpc-web-text",
    "application/grpc-web-text+proto",
];

/// Returns true for a grpc-web request.
fn is_web<B>(request: &http::Request<B>) -> bool {
    let content_type = request.headers().get(header::CONTENT_TYPE);
    request.method() == Method::POST
        && content_type
            .is_some_and(|it| WEB_TYPES.iter().any(|web| web.as_bytes() == it.as_bytes()))
}
