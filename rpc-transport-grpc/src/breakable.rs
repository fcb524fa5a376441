//! Fallible request streams through tonic's client code.
//!
//! tonic's `client::Grpc` takes an infallible stream of messages and turns it into the body of an
//! HTTP request. A stream that stopped at an error would end that body cleanly, and the server
//! would take a truncated stream for a complete one. This module stores the error next to the
//! stream, and the body yields it in place of its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::{Body, Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tonic::{Request, Status};
use tower::Service;

use crate::raw::Raw;

/// The slot in which a failed stream leaves its error for the body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Broken(Arc<Mutex<Left>>);

#[derive(Debug, Default)]
struct Left {
    error: Option<Status>,
    is_given: bool,
}

impl Broken {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.0.lock()
    }

    fn set(&self, status: Status) {
        self.left().error = Some(status);
    }

    /// Takes the error for the body. Returns it only once.
    fn give(&self) -> Option<Status> {
        let mut left = self.left();
        let error = left.error.clone().filter(|_| !left.is_given);
        left.is_given = true;
        error
    }

    /// Returns the error of the stream, if it failed.
    pub(crate) fn given(&self) -> Option<Status> {
        self.left().error.clone()
    }
}

/// Splits a fallible stream into an infallible one and the slot for its error.
pub(crate) fn breakable<S>(
    request: Request<S>,
) -> (Request<impl Stream<Item = Raw> + Send + 'static>, Broken)
where
    S: Stream<Item = Result<Raw, Status>> + Send + 'static,
{
    let broken = Broken::default();
    let left = broken.clone();
    let request = request.map(|stream| {
        // `scan` ends the stream at its error. The server must not read a message that follows one.
        stream.scan((), move |(), message| {
            std::future::ready(message.map_err(|status| left.set(status)).ok())
        })
    });
    (request, broken)
}

/// A service that sends the error of a request stream in place of the end of its body.
#[derive(Debug, Clone)]
pub(crate) struct Breakable<S> {
    service: S,
    broken: Broken,
}

impl<S> Breakable<S> {
    pub(crate) fn new(service: S, broken: Broken) -> Self {
        Self { service, broken }
    }
}

impl<S> Service<http::Request<tonic::body::Body>> for Breakable<S>
where
    S: Service<http::Request<tonic::body::Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> S::Future {
        let broken = self.broken.clone();
        let request = request.map(|body| tonic::body::Body::new(BreakableBody { body, broken }));
        self.service.call(request)
    }
}

/// A request body that ends with the error of its stream.
#[derive(Debug)]
struct BreakableBody {
    body: tonic::body::Body,
    broken: Broken,
}

impl Body for BreakableBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // tonic's body reports a plain end here even if the stream failed. Without the check, the
        // server would run the handler on a truncated stream.
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(None) => Poll::Ready(self.broken.give().map(Err)),
            other => other,
        }
    }

    /// Always false: the stream may still fail after the last message.
    fn is_end_stream(&self) -> bool {
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{FutureExt, stream};
    use http::uri::PathAndQuery;
    use tonic::Streaming;
    use tonic::client::Grpc;
    use tower::service_fn;

    use super::*;
    use crate::raw::RawCodec;

    /// Returns the messages and the end that a server reads from these requests.
    fn read(requests: Vec<Result<Raw, Status>>) -> Vec<String> {
        let read = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&read);
        let server = service_fn(move |request: http::Request<tonic::body::Body>| {
            let kept = Arc::clone(&kept);
            async move {
                let body = request.into_body();
                let mut messages = Streaming::new_request(RawCodec, body, None, None);
                loop {
                    let (text, is_last) = match messages.message().await {
                        Ok(Some(Raw(message))) => (format!("{message:?}"), false),
                        Ok(None) => ("end".to_owned(), true),
                        Err(status) => (status.message().to_owned(), true),
                    };
                    kept.lock().push(text);
                    if is_last {
                        break;
                    }
                }
                Ok::<_, Infallible>(http::Response::new(tonic::body::Body::empty()))
            }
        });
        let (request, broken) = breakable(Request::new(stream::iter(requests)));
        let mut grpc = Grpc::new(Breakable::new(server, broken));
        let path = PathAndQuery::from_static("/a.B/C");
        let called = grpc.streaming(request, path, RawCodec).now_or_never();
        assert!(called.is_some(), "nothing is waited for");
        let read = read.lock();
        read.clone()
    }

    #[test]
    fn a_broken_stream_does_not_end_cleanly() {
        let message = || Ok(Raw(Bytes::from_static(b"hi")));
        assert_eq!(read(vec![message(), message()]), [r#"b"hi""#, r#"b"hi""#, "end"]);
        let broken = Err(Status::aborted("it broke"));
        assert_eq!(read(vec![message(), broken, message()]), [r#"b"hi""#, "it broke"]);
        assert_eq!(read(vec![Err(Status::aborted("at once"))]), ["at once"]);
        assert_eq!(read(vec![]), ["end"]);
    }
}
