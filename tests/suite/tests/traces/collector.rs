//! A collector of traces, and readers of the spans that it has received.

use std::sync::Arc;

use farcall::{Request, Response, Status, async_trait};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use parking_lot::Mutex;
use tokio_stream::wrappers::TcpListenerStream;

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
pub(crate) struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves at a port of loopback; returns the endpoint.
    pub(crate) async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        endpoint
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let requests = self.0.lock();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.iter().cloned()).collect()
    }
}

pub(crate) fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

pub(crate) fn text<'a>(span: &'a Span, key: &str) -> &'a str {
    match attribute(span, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?} in {span:?}"),
    }
}

pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns true if the span has the status of a failure.
pub(crate) fn is_error(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error)
}

/// Returns a span as a line, indented by its depth in the trace.
pub(crate) fn line(depth: usize, span: &Span) -> String {
    let (id, parent) = (hex(&span.span_id), hex(&span.parent_span_id));
    let (kind, name) = (span.kind(), &span.name);
    let transport = text(span, "transport");
    let status = text(span, "rpc.response.status_code");
    let mark = if is_error(span) { ", an error" } else { "" };
    format!("{:depth$}{id} parent {parent} {kind:?} {name} over {transport}: {status}{mark}", "")
}
