//! A trace over three hops, as a collector receives it: a client of gRPC, a server that it calls
//! over HTTP/2, and a server that this one calls over RDMA.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::client::LayeredChannel;
use farcall::grpc::GrpcOver;
use farcall::layer::TraceLayer;
use farcall::otel::Otlp;
use farcall::sim::SimNetwork;
use farcall::{Channel, Rdma, RdmaConfig, Request, Response, Server, Status, async_trait};
use futures::Stream;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::metadata::MetadataValue;
use tonic_health::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tracing_subscriber::layer::SubscriberExt as _;

/// No wait of this test is longer.
const LIMIT: Duration = Duration::from_secs(30);

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Serves at a port of loopback; returns the endpoint.
    async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(self.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        endpoint
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.0.lock().unwrap();
        let resources = requests.iter().flat_map(|request| &request.resource_spans);
        let scopes = resources.flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.iter().cloned()).collect()
    }
}

type Next = HealthClient<GrpcOver<LayeredChannel<farcall::layer::Trace<Channel>>>>;

/// The numbers of the last servers that were called, in the order of the calls.
type Called = Arc<Mutex<Vec<usize>>>;

/// A server of the way.
enum Hop {
    /// Answers as the next one does.
    First(Next),
    /// Answers `SERVING`, or that there is no such service.
    Last(usize, Called),
}

#[async_trait]
impl Health for Hop {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let request = request.into_inner();
        let (number, called) = match self {
            Self::First(next) => return next.clone().check(request).await,
            Self::Last(number, called) => (*number, called),
        };
        called.lock().unwrap().push(number);
        match request.service.as_str() {
            "missing" => Err(Status::not_found("there is no such service")),
            _ => {
                let status = tonic_health::pb::health_check_response::ServingStatus::from(
                    ServingStatus::Serving,
                );
                Ok(Response::new(HealthCheckResponse { status: status.into() }))
            }
        }
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("this test does not watch"))
    }
}

/// Serves a hop at `address`; returns the address with its port.
async fn serve(address: &str, rdma: &Rdma, hop: Hop) -> String {
    let builder = Server::builder().rdma(rdma).layer(TraceLayer::new());
    let service = HealthServer::new(hop);
    let builder = builder.add_grpc_service(service, tonic_health::pb::FILE_DESCRIPTOR_SET);
    let listener = builder.bind(address).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address
}

fn attribute<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

fn text<'a>(span: &'a Span, key: &str) -> &'a str {
    match attribute(span, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?} in {span:?}"),
    }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_spans_three_hops_as_a_collector_receives_it() {
    let collector = Collector::default();
    let otlp = Otlp::to("traces", collector.serve().await).unwrap();
    let subscriber = tracing_subscriber::registry().with(otlp.layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let network = SimNetwork::new(1);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    let rdma = Rdma::simulated(&network, RdmaConfig::default());
    // Of two last servers, so that a span names the one that has answered.
    let called = Called::default();
    let mut last = Vec::new();
    for number in 0..2 {
        let hop = Hop::Last(number, Arc::clone(&called));
        last.push(serve("rdma://127.0.0.1:0", &rdma, hop).await);
    }
    let targets = last.join(",").replace(",rdma://", ",");
    let channel = Channel::builder(targets.as_str()).unwrap().rdma(&rdma).connect().await.unwrap();
    let next = HealthClient::new(GrpcOver::new(channel.layer(TraceLayer::new())));
    let first = serve("tcp://127.0.0.1:0", &rdma, Hop::First(next)).await;

    let endpoint = first.replace("tcp://", "http://");
    let endpoint = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let mut check = async |service: &str, flags: &str| {
        let mut request = Request::new(HealthCheckRequest { service: service.to_owned() });
        let parent = format!("00-{TRACE}-{CALLER}-{flags}");
        request.metadata_mut().insert("traceparent", MetadataValue::try_from(parent).unwrap());
        request.metadata_mut().insert("tracestate", MetadataValue::from_static("vendor=1"));
        tokio::time::timeout(LIMIT, client.check(request)).await.expect("in time").is_ok()
    };
    assert!(check("serving", "01").await);
    assert!(check("serving", "00").await, "this one is not sampled");
    assert!(!check("missing", "01").await);
    tokio::time::timeout(LIMIT, otlp.shutdown()).await.expect("in time").unwrap();

    let spans = collector.spans();
    assert_eq!(spans.len(), 6, "{spans:#?}");
    let mut roots: Vec<_> = spans.iter().filter(|it| hex(&it.parent_span_id) == CALLER).collect();
    roots.sort_by_key(|span| span.start_time_unix_nano);
    assert_eq!(roots.len(), 2, "{spans:#?}");
    // The second call is not sampled.
    let called = called.lock().unwrap().clone();
    let calls = ["OK", "NOT_FOUND"].into_iter().zip([called[0], called[2]]);
    for (root, (code, number)) in roots.into_iter().zip(calls) {
        let child = |parent: &Span| {
            spans.iter().find(|span| span.parent_span_id == parent.span_id).unwrap().clone()
        };
        let client = child(root);
        let server = child(&client);
        let hops = [(root, SpanKind::Server), (&client, SpanKind::Client)];
        for (depth, (span, kind)) in
            hops.into_iter().chain([(&server, SpanKind::Server)]).enumerate()
        {
            assert_eq!(hex(&span.trace_id), TRACE);
            assert_eq!(span.trace_state, "vendor=1");
            assert_eq!(span.kind(), kind);
            assert_eq!(span.name, "grpc.health.v1.Health/Check");
            assert_eq!(text(span, "rpc.system.name"), "farcall");
            assert_eq!(text(span, "rpc.response.status_code"), code);
            let status = span
                .status
                .as_ref()
                .map_or(StatusCode::Unset, opentelemetry_proto::tonic::trace::v1::Status::code);
            let is_error = code != "OK" && kind == SpanKind::Client;
            assert_eq!(status == StatusCode::Error, is_error, "{span:?}");
            let transport = text(span, "transport");
            let (id, name) = (hex(&span.span_id), &span.name);
            println!("{:depth$}{id} {kind:?} {name} over {transport}: {code}", "");
            assert_eq!(transport, if depth == 0 { "grpc" } else { "rdma" });
        }
        assert_eq!(text(&client, "server.address"), "127.0.0.1");
        let port = last[number].rsplit_once(':').unwrap().1.parse().unwrap();
        assert_eq!(attribute(&client, "server.port"), Some(&Value::IntValue(port)));
        assert_eq!(text(&server, "network.peer.address"), "127.0.0.1");
    }
}

#[tokio::test]
async fn spans_that_no_collector_takes_fail_the_shutdown() {
    // A port that was free a moment ago: connections to it are refused.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let otlp = Otlp::to("traces", endpoint).unwrap();
    let subscriber = tracing_subscriber::registry().with(otlp.layer());
    tracing::subscriber::with_default(subscriber, || drop(tracing::info_span!("lost").entered()));
    let ended = tokio::time::timeout(LIMIT, otlp.shutdown()).await.expect("in time");
    let error = ended.unwrap_err().to_string();
    assert!(error.starts_with("traces cannot be exported by OTLP: "), "{error}");
    println!("{error}");
}
