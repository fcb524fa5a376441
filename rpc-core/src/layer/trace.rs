//! A span for every call, and its trace context on the wire.

use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use tonic::{Code, Status};
use tower::{BoxError, Layer, Service};
use tracing::field::{Empty, display};
use tracing::{Instrument, Span};

use super::trace_context::{self, TraceContext};
use super::{Described, RequestHead, Side, into_status};
use crate::call::log::NameOf;
use crate::{CallExplanation, Explain, Method};

tokio::task_local! {
    /// Trace context of the call that a handler answers, for the calls that it makes.
    static CURRENT: TraceContext;
}

/// Puts every call into a `tracing` span, and passes W3C trace context on.
///
/// The same layer serves clients and servers, over every transport. A server continues the trace
/// that the headers `traceparent` and `tracestate` of a request name. Calls made inside its
/// handler, through a channel with this layer, belong to the same trace. A request whose caller has
/// set `traceparent` keeps it.
///
/// The span `call` has the target `farcall::trace`, the level INFO, and the attributes of
/// OpenTelemetry's conventions for RPC:
///
/// | field | value |
/// |---|---|
/// | `otel.kind` | `client` or `server` |
/// | `otel.name`, `rpc.method` | `package.Service/Method` |
/// | `rpc.system.name` | `farcall` |
/// | `rpc.response.status_code` | `OK`, `NOT_FOUND`, ...; `CANCELLED` for a call that is dropped |
/// | `otel.status_code` | `ERROR` for a call that failed; on a server, for a fault of its own |
/// | `server.address`, `server.port` | on a client: the server, once it was sent the request |
/// | `network.peer.address`, `network.peer.port` | on a server: the client |
/// | `transport` | `rdma`, `tcp`, ...; on a client once the request was sent |
/// | `trace_id` | 32 hexadecimal digits, if the call belongs to a trace |
/// | `farcall.stages` | on a client: its stages in us, as `212 us: queue 3.0, handler 188` |
/// | `farcall.request`, `farcall.reply` | on a client: the protocol and length of each frame |
/// | `farcall.attempts` | on a client: the number of attempts |
/// | `farcall.copied_bytes` | on a client: see [`CallExplanation`](crate::CallExplanation) |
///
/// The last four come from an [`Explain`] that the layer adds to the request, unless the caller has
/// one. The server is asked for its times, so calls without a span have none of it.
///
/// On a server the span lasts until a stream has ended, on a client until its first answer, the
/// headers of a stream included.
///
/// Ids of spans are made by a subscriber: with the feature `otel`, by `tracing-opentelemetry`, and
/// each call carries those of its span. Without one, a server's calls carry the headers that it
/// received.
///
/// # Examples
///
/// ```
/// use farcall::Server;
/// use farcall::layer::TraceLayer;
///
/// // One in a hundred of the calls that belong to no trace yet.
/// let server = Server::builder().layer(TraceLayer::sampled(0.01)).build();
/// # drop(server);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TraceLayer {
    /// Share of the calls without a trace that get a span; `None` for all calls.
    ratio: Option<f64>,
}

impl TraceLayer {
    /// A span for every call. What of it is exported is up to the subscriber's sampler.
    #[must_use]
    pub const fn new() -> Self {
        Self { ratio: None }
    }

    /// Spans for some calls, so that the others cost little.
    ///
    /// A call that belongs to a trace has a span if the trace is sampled. Of those that begin one,
    /// a share of `ratio` does, at random: 0.0 is none of them, 1.0 is all. Values outside of this
    /// range count as the nearer end, and NaN as 0.0. The others carry the context of a trace that
    /// is not sampled, so that no server after them begins one.
    #[must_use]
    pub const fn sampled(ratio: f64) -> Self {
        Self { ratio: Some(ratio) }
    }

    /// Decides whether a call has a span.
    fn samples(self, parent: Option<&TraceContext>) -> bool {
        let Some(ratio) = self.ratio else { return true };
        match parent {
            Some(parent) => parent.is_sampled(),
            // A span around it, such as that of a handler, was sampled already.
            None => !Span::current().is_none() || fastrand::f64() < ratio,
        }
    }
}

impl Default for TraceLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace { inner, layer: *self }
    }
}

/// The service that [`TraceLayer`] makes.
#[derive(Debug, Clone)]
pub struct Trace<S> {
    inner: S,
    layer: TraceLayer,
}

impl<S, R> Service<R> for Trace<S>
where
    R: Described + RequestHead,
    S: Service<R, Error: Into<BoxError>, Response: 'static, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = Status;
    type Future = BoxFuture<'static, Result<S::Response, Status>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.inner.poll_ready(cx).map_err(into_status)
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        let method = request.method();
        let side = request.side();
        let (mut metadata, mut extensions) = request.take_head();
        // A client's own headers count before the call whose handler makes this one.
        let extracted = TraceContext::extract(&metadata);
        let inherited = || match side {
            Side::Client => CURRENT.try_with(TraceContext::clone).ok(),
            Side::Server => None,
        };
        let remote = extracted.clone();
        let parent = extracted.or_else(inherited);
        let is_sampled = self.layer.samples(parent.as_ref());
        let span = if is_sampled {
            begin(&method, (side, request.peer()), remote.as_ref())
        } else {
            Span::none()
        };
        let context = trace_context::context(&span).or(parent);
        let context = context.or_else(|| (!is_sampled).then(TraceContext::unsampled));
        if let Some(context) = &context {
            span.record("trace_id", display(format_args!("{:032x}", context.trace_id())));
            if side == Side::Client {
                context.inject(&mut metadata);
            }
        }
        let is_explained = side == Side::Client && !span.is_disabled();
        let explain = is_explained.then(|| {
            let explain = extensions.get_or_insert_default::<Explain>().clone();
            explain.join();
            explain
        });
        request.set_head(metadata, extensions);
        // What the layers inside do at once belongs to the call as well.
        let inside = || span.in_scope(|| self.inner.call(request));
        let call = match (side, &context) {
            (Side::Server, Some(context)) => CURRENT.sync_scope(context.clone(), inside),
            _ => inside(),
        };
        let dropped = Outcome { span: span.clone(), side, code: Code::Cancelled, explain };
        let traced = async move {
            // Bound as a whole, so that the whole is dropped with the call.
            let mut outcome = dropped;
            let result = call.await.map_err(into_status);
            outcome.code = result.as_ref().err().map_or(Code::Ok, Status::code);
            result
        };
        let traced = traced.instrument(span);
        match (side, context) {
            (Side::Server, Some(context)) => CURRENT.scope(context, traced).boxed(),
            _ => traced.boxed(),
        }
    }
}

/// Begins the span of a call.
fn begin(
    method: &Method,
    (side, peer): (Side, Option<(&'static str, Option<SocketAddr>)>),
    parent: Option<&TraceContext>,
) -> Span {
    let path = method.path();
    let name = path.strip_prefix('/').unwrap_or(path);
    let kind = match side {
        Side::Client => "client",
        Side::Server => "server",
    };
    let span = tracing::info_span!(
        target: "farcall::trace",
        "call",
        otel.kind = kind,
        otel.name = name,
        otel.status_code = Empty,
        rpc.system.name = "farcall",
        rpc.method = name,
        rpc.response.status_code = Empty,
        server.address = Empty,
        server.port = Empty,
        network.peer.address = Empty,
        network.peer.port = Empty,
        transport = Empty,
        trace_id = Empty,
        farcall.stages = Empty,
        farcall.request = Empty,
        farcall.reply = Empty,
        farcall.attempts = Empty,
        farcall.copied_bytes = Empty,
    );
    if let Some(parent) = parent {
        trace_context::set_parent(&span, parent);
    }
    if let Some((transport, address)) = peer {
        span.record("transport", display(transport));
        if let Some(address) = address {
            span.record("network.peer.address", display(address.ip()));
            // OpenTelemetry's layer turns unsigned numbers into text.
            span.record("network.peer.port", i64::from(address.port()));
        }
    }
    span
}

/// Records the server of a call.
fn record_server(span: &Span, address: &str, transport: &'static str) {
    span.record("transport", display(transport));
    let (scheme, address) = address.split_once("://").unwrap_or(("", address));
    // A path may end like a port.
    let with_port = address.rsplit_once(':').filter(|_| scheme != "unix");
    match with_port.map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(port))) => {
            let host = host.trim_matches(['[', ']']);
            span.record("server.address", host).record("server.port", i64::from(port));
        }
        _ => drop(span.record("server.address", address)),
    }
}

/// Returns `work` for another task, with the trace and the span of the current call.
pub(crate) fn in_trace<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let context = CURRENT.try_with(TraceContext::clone).ok();
    let work = work.in_current_span();
    async move {
        match context {
            Some(context) => CURRENT.scope(context, work).await,
            None => work.await,
        }
    }
}

/// Records the status when the call is over, whichever way.
struct Outcome {
    span: Span,
    side: Side,
    code: Code,
    /// The account of a client's call.
    explain: Option<Explain>,
}

impl Outcome {
    /// Returns true if the conventions count the call as failed. A server is not at fault for
    /// answers such as `NOT_FOUND`; its client may be.
    fn is_error(&self) -> bool {
        match self.side {
            Side::Client => self.code != Code::Ok,
            Side::Server => matches!(
                self.code,
                Code::Unknown
                    | Code::DeadlineExceeded
                    | Code::Unimplemented
                    | Code::Internal
                    | Code::Unavailable
                    | Code::DataLoss
            ),
        }
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        self.span.record("rpc.response.status_code", display(NameOf(self.code)));
        if let Some(explain) = &self.explain {
            // The stub, which decodes the response after this, sets the end once more.
            explain.end(None);
            record_explanation(&self.span, &explain.explanation());
        }
        if self.is_error() {
            self.span.record("otel.status_code", "ERROR");
        }
    }
}

/// Records the account of a client's call.
fn record_explanation(span: &Span, explained: &CallExplanation) {
    // Signed: OpenTelemetry's layer turns unsigned numbers into text.
    let attempts = i64::from(explained.attempts);
    if let (Some(address), Some(connection)) = (&explained.endpoint, &explained.connection) {
        record_server(span, address, connection.transport);
    }
    span.record("farcall.stages", display(explained)).record("farcall.attempts", attempts);
    if let Some(request) = explained.request {
        span.record("farcall.request", display(request));
    }
    if let Some(reply) = explained.reply {
        span.record("farcall.reply", display(reply));
    }
    if let Some(Ok(copied)) = explained.copied_bytes.map(i64::try_from) {
        span.record("farcall.copied_bytes", copied);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::{io, mem};

    use parking_lot::Mutex;
    use tonic::Extensions;
    use tonic::metadata::{MetadataMap, MetadataValue};
    use tower::{ServiceExt, service_fn};
    use tracing_subscriber::fmt::format::FmtSpan;

    use super::*;
    use crate::{CallKind, Idempotency, Method, MethodDescriptor};

    static METHOD: MethodDescriptor =
        MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

    /// A call with this outcome; `None` never ends.
    struct Scripted {
        outcome: Option<Code>,
        side: Side,
        metadata: MetadataMap,
    }

    impl Scripted {
        fn new(side: Side, outcome: Option<Code>) -> Self {
            Self { outcome, side, metadata: MetadataMap::new() }
        }

        /// A call with this `traceparent`.
        fn within(side: Side, parent: &'static str) -> Self {
            let mut this = Self::new(side, Some(Code::Ok));
            this.metadata.insert("traceparent", MetadataValue::from_static(parent));
            this
        }
    }

    impl Described for Scripted {
        fn method(&self) -> Method {
            Method::Static(&METHOD)
        }

        fn side(&self) -> Side {
            self.side
        }

        fn peer(&self) -> Option<(&'static str, Option<SocketAddr>)> {
            None
        }
    }

    impl RequestHead for Scripted {
        fn take_head(&mut self) -> (MetadataMap, Extensions) {
            (mem::take(&mut self.metadata), Extensions::new())
        }

        fn set_head(&mut self, metadata: MetadataMap, _: Extensions) {
            self.metadata = metadata;
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines of the spans that `calls` end.
    async fn closed_spans(calls: impl Future<Output = ()>) -> Vec<String> {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_span_events(FmtSpan::CLOSE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _default = tracing::subscriber::set_default(subscriber);
        calls.await;
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        text.lines().filter(|line| line.contains("farcall::trace")).map(str::to_owned).collect()
    }

    fn outcomes(
        layer: TraceLayer,
    ) -> impl Service<Scripted, Response = (), Error = Status, Future: Send> + Clone {
        layer.layer(service_fn(|call: Scripted| async move {
            match call.outcome {
                None => std::future::pending().await,
                Some(Code::Ok) => Ok(()),
                Some(code) => Err(Status::new(code, "as scripted")),
            }
        }))
    }

    #[tokio::test]
    async fn every_call_has_a_span_with_its_status() {
        let traced = outcomes(TraceLayer::new());
        for side in [Side::Client, Side::Server] {
            let closed = closed_spans(async {
                for outcome in [Code::Ok, Code::NotFound, Code::Internal] {
                    drop(traced.clone().oneshot(Scripted::new(side, Some(outcome))).await);
                }
                let mut dropped = Box::pin(traced.clone().oneshot(Scripted::new(side, None)));
                assert!(futures::poll!(&mut dropped).is_pending());
            });
            let closed = closed.await;
            assert_eq!(closed.len(), 4, "{closed:?}");
            let codes = ["OK", "NOT_FOUND", "INTERNAL", "CANCELLED"];
            let errors = match side {
                Side::Client => [false, true, true, true],
                Side::Server => [false, false, true, false],
            };
            for ((line, code), is_error) in closed.iter().zip(codes).zip(errors) {
                let name = r#"otel.name="t.T/M" rpc.system.name="farcall" rpc.method="t.T/M""#;
                assert!(line.contains(name), "{line}");
                assert!(line.contains(&format!("rpc.response.status_code={code}")), "{line}");
                assert_eq!(line.contains(r#"otel.status_code="ERROR""#), is_error, "{line}");
            }
        }
    }

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    #[tokio::test]
    async fn calls_of_a_handler_carry_the_trace_of_its_call() {
        let (sender, received) = std::sync::mpsc::channel();
        let inner = TraceLayer::new().layer(service_fn(move |call: Scripted| {
            let parent = call.metadata.get("traceparent").cloned();
            let sender = sender.clone();
            async move { sender.send(parent).map_err(|_| Status::internal("no test")) }
        }));
        let handler = service_fn(move |_: Scripted| {
            inner.clone().oneshot(Scripted::new(Side::Client, Some(Code::Ok)))
        });
        let server = TraceLayer::new().layer(handler);
        for parent in [SAMPLED, UNSAMPLED] {
            server.clone().oneshot(Scripted::within(Side::Server, parent)).await.unwrap();
            assert_eq!(received.recv().unwrap().unwrap(), parent);
        }
        server.clone().oneshot(Scripted::within(Side::Server, "no trace")).await.unwrap();
        assert_eq!(received.recv().unwrap(), None);
    }

    #[tokio::test]
    async fn a_sampled_layer_follows_the_trace_and_else_chance() {
        let spans = |ratio: f64, parent: Option<&'static str>| async move {
            let traced = outcomes(TraceLayer::sampled(ratio));
            let call = match parent {
                Some(parent) => Scripted::within(Side::Server, parent),
                None => Scripted::new(Side::Server, Some(Code::Ok)),
            };
            closed_spans(async { traced.oneshot(call).await.unwrap() }).await.len()
        };
        for ratio in [f64::NAN, -1.0, 0.0, 1.0, 7.0] {
            let by_chance = usize::from(ratio >= 1.0);
            assert_eq!(spans(ratio, None).await, by_chance, "{ratio}");
            assert_eq!(spans(ratio, Some("no trace")).await, by_chance, "{ratio}");
            assert_eq!(spans(ratio, Some(SAMPLED)).await, 1, "{ratio}");
            assert_eq!(spans(ratio, Some(UNSAMPLED)).await, 0, "{ratio}");
        }
    }

    #[tokio::test]
    async fn a_call_without_a_span_tells_servers_to_make_none() {
        let seen = service_fn(|call: Scripted| async move {
            Ok::<_, Status>(call.metadata.get("traceparent").cloned())
        });
        let call = Scripted::new(Side::Client, Some(Code::Ok));
        let parent = TraceLayer::sampled(0.0).layer(seen).oneshot(call).await.unwrap().unwrap();
        assert!(parent.to_str().unwrap().ends_with("-00"), "{parent:?}");
    }
}
