//! A span for every call.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tonic::{Code, Status};
use tower::{BoxError, Layer, Service};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::{Described, into_status};

/// Puts every call into a span `call` with its `service`, its `method` and its `transport` and,
/// when it has ended, its `status`; a call that is dropped has the status `Cancelled`. A client
/// records the transport when the call's first answer is there.
///
/// The same layer serves clients and servers. On a server the span lasts until a stream has ended,
/// on a client until its first answer, the headers of a stream included.
///
/// # Examples
///
/// ```
/// use farcall::Server;
/// use farcall::layer::TraceLayer;
///
/// let server = Server::builder().layer(TraceLayer::new()).build();
/// # drop(server);
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct TraceLayer;

impl TraceLayer {
    /// The layer.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace { inner }
    }
}

/// The service that [`TraceLayer`] makes.
#[derive(Debug, Clone)]
pub struct Trace<S> {
    inner: S,
}

impl<S, R> Service<R> for Trace<S>
where
    R: Described,
    S: Service<R, Error: Into<BoxError>, Response: 'static, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = Status;
    type Future = BoxFuture<'static, Result<S::Response, Status>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.inner.poll_ready(cx).map_err(into_status)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (method, transport) = (request.method(), request.transport());
        let span = tracing::info_span!(
            target: "farcall::trace",
            "call",
            service = method.service(),
            method = method.name(),
            transport = Empty,
            status = Empty
        );
        if let Some(transport) = transport {
            span.record("transport", tracing::field::display(transport));
        }
        // What the layers inside do at once belongs to the call as well.
        let call = span.in_scope(|| self.inner.call(request));
        let dropped = Outcome { span: span.clone(), code: Code::Cancelled };
        let traced = async move {
            // Bound as a whole, so that the whole is dropped with the call.
            let mut outcome = dropped;
            let result = call.await.map_err(into_status);
            outcome.code = result.as_ref().err().map_or(Code::Ok, Status::code);
            result
        };
        Box::pin(traced.instrument(span))
    }
}

/// Records the transport of a call in the current span, if that is a call's.
#[doc(hidden)]
pub fn record_transport(transport: Option<&'static str>) {
    if let Some(transport) = transport {
        Span::current().record("transport", tracing::field::display(transport));
    }
}

/// Records the status when the call is over, whichever way.
struct Outcome {
    span: Span,
    code: Code,
}

impl Drop for Outcome {
    fn drop(&mut self) {
        self.span.record("status", tracing::field::debug(self.code));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tower::{ServiceExt, service_fn};
    use tracing_subscriber::fmt::format::FmtSpan;

    use super::*;
    use crate::{CallKind, Idempotency, Method, MethodDescriptor};

    static METHOD: MethodDescriptor =
        MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

    /// Asks for an outcome; `None` never ends.
    struct Asked(Option<Code>);

    impl Described for Asked {
        fn method(&self) -> Method {
            Method::Static(&METHOD)
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn every_call_has_a_span_with_its_status() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _default = tracing::subscriber::set_default(subscriber);
        let traced = TraceLayer::new().layer(service_fn(|Asked(code)| async move {
            match code {
                None => std::future::pending().await,
                Some(Code::Ok) => Ok(()),
                Some(code) => Err(Status::new(code, "as asked")),
            }
        }));
        traced.clone().oneshot(Asked(Some(Code::Ok))).await.unwrap();
        traced.clone().oneshot(Asked(Some(Code::NotFound))).await.unwrap_err();
        {
            let mut dropped = Box::pin(traced.oneshot(Asked(None)));
            assert!(futures::poll!(&mut dropped).is_pending());
        }
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let closed: Vec<_> =
            text.lines().filter(|line| line.contains(r#"service="t.T""#)).collect();
        assert_eq!(closed.len(), 3, "{text}");
        for (line, status) in closed.iter().zip(["Ok", "NotFound", "Cancelled"]) {
            let fields = format!(r#"method="M" status={status}"#);
            assert!(line.contains(&fields), "{line}");
        }
    }
}
