//! The HTTP side of the port: which requests are calls, and how the others are answered.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use http_body::Body;
use rpc_core::memory::MemoryShare;
use rpc_core::{Channel, MethodDescriptor};
use tonic::Status;
use tower::BoxError;

use super::bodies::Outgoing;
use super::flow::Flowing;
use crate::over::{Limit, answer};

/// What answers the requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct PortService {
    pub(super) channel: Channel,
    pub(super) methods: Arc<HashMap<&'static str, &'static MethodDescriptor>>,
    pub(super) memory: MemoryShare,
    pub(super) flowing: Arc<Flowing>,
    pub(super) max_message_len: u64,
}

impl PortService {
    /// Answers a request.
    pub(super) async fn answer<B>(self, request: http::Request<B>) -> http::Response<Outgoing>
    where
        B: Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let response = match self.check(&request) {
            Ok(method) => {
                let limit = Limit::of_port(self.max_message_len, self.memory.clone());
                answer(&self.channel, limit, method, request).await
            }
            Err(refusal) => refusal.into_response(),
        };
        response.map(|body| Outgoing::new(body, self.memory, self.flowing))
    }

    /// The method that a request calls.
    fn check<B>(&self, request: &http::Request<B>) -> Result<&'static MethodDescriptor, Refusal> {
        if request.method() != Method::POST {
            return Err(Refusal::NoCall(StatusCode::METHOD_NOT_ALLOWED));
        }
        let content_type = request.headers().get(header::CONTENT_TYPE);
        if !content_type.is_some_and(is_grpc) {
            return Err(Refusal::NoCall(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        let path = request.uri().path();
        self.methods.get(path).copied().ok_or_else(|| {
            let words = format!("the server has no method {path}");
            Refusal::Call(Status::unimplemented(words))
        })
    }
}

/// How a request is answered that reaches no method.
enum Refusal {
    /// It is no call of gRPC.
    NoCall(StatusCode),
    /// It is one.
    Call(Status),
}

impl Refusal {
    fn into_response(self) -> http::Response<tonic::body::Body> {
        match self {
            Self::NoCall(code) => {
                let mut response = http::Response::new(tonic::body::Body::empty());
                *response.status_mut() = code;
                response
            }
            Self::Call(status) => status.into_http(),
        }
    }
}

/// Whether a content type is gRPC's: `application/grpc`, and with a codec behind a `+` or
/// parameters behind a `;`.
fn is_grpc(value: &HeaderValue) -> bool {
    let rest = value.as_bytes().strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpcs_content_types_are_known() {
        for text in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is_grpc(&HeaderValue::from_static(text)), "{text}");
        }
        for text in ["application/grpc-web", "application/grpcx", "text/html", ""] {
            assert!(!is_grpc(&HeaderValue::from_static(text)), "{text}");
        }
    }
}
