//! The servers of a trace: one that clients of gRPC call, and two that this one calls over RDMA.

use std::pin::Pin;
use std::sync::Arc;

use farcall::client::LayeredChannel;
use farcall::grpc::GrpcOver;
use farcall::layer::TraceLayer;
use farcall::{Channel, Rdma, Request, Response, Server, Status, async_trait};
use futures::Stream;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use tonic_health::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::collector::{attribute, hex, is_error, line, text};

/// The trace that the client begins.
pub(crate) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// The client's span.
pub(crate) const CALLER: &str = "b7ad6b7169203331";

/// The client's calls: the service that it asks the health of, the flags of its trace, and the
/// status of the reply. One is not sampled.
pub(crate) const CALLS: [(&str, &str, &str); 3] =
    [("serving", "01", "OK"), ("serving", "00", "OK"), ("missing", "01", "NOT_FOUND")];

/// The spans of a call: both of the first server, and the one of the last.
pub(crate) type Spans = [Span; 3];

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
        called.lock().push(number);
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

/// The running servers.
pub(crate) struct Hops {
    /// Host and port of the first.
    pub(crate) first: String,
    host: String,
    /// Addresses of the last. They are two, so that a span names the one that has answered.
    last: Vec<String>,
    called: Called,
}

impl Hops {
    /// Serves the last ones over RDMA at `host`.
    pub(crate) async fn serve(rdma: &Rdma, host: &str) -> Self {
        let called = Called::default();
        let mut last = Vec::new();
        for number in 0..2 {
            let hop = Hop::Last(number, Arc::clone(&called));
            last.push(serve(&format!("rdma://{host}:0"), rdma, hop).await);
        }
        let targets = last.join(",").replace(",rdma://", ",");
        let channel = Channel::builder(targets.as_str()).unwrap().rdma(rdma);
        let channel = channel.connect().await.unwrap();
        let next = HealthClient::new(GrpcOver::new(channel.layer(TraceLayer::new())));
        let first = serve("tcp://127.0.0.1:0", rdma, Hop::First(next)).await;
        let first = first.trim_start_matches("tcp://").to_owned();
        Self { first, host: host.to_owned(), last, called }
    }

    /// Checks the spans of [`CALLS`], and prints them as one trace. Returns those of each sampled
    /// call.
    pub(crate) fn check(&self, spans: &[Span]) -> Vec<Spans> {
        assert_eq!(spans.len(), 6, "{spans:#?}");
        let roots = spans.iter().filter(|span| hex(&span.parent_span_id) == CALLER);
        let mut roots: Vec<_> = roots.cloned().collect();
        roots.sort_by_key(|span| span.start_time_unix_nano);
        assert_eq!(roots.len(), 2, "{spans:#?}");
        let child = |parent: &Span| {
            spans.iter().find(|span| span.parent_span_id == parent.span_id).unwrap().clone()
        };
        println!("trace {TRACE}, below the client's span {CALLER}");
        let called = self.called.lock();
        let calls = CALLS.into_iter().zip(&*called).filter(|((_, flags, _), _)| *flags == "01");
        let checked = roots.into_iter().zip(calls).map(|(root, ((_, _, status), number))| {
            let client = child(&root);
            let server = child(&client);
            let spans = [root, client, server];
            check_call(&spans, status);
            let [_, client, _] = &spans;
            assert_eq!(text(client, "server.address"), self.host);
            let port = self.last[*number].rsplit_once(':').unwrap().1.parse().unwrap();
            assert_eq!(attribute(client, "server.port"), Some(&Value::IntValue(port)));
            spans
        });
        checked.collect()
    }
}

fn check_call(spans: &Spans, status: &str) {
    let kinds = [SpanKind::Server, SpanKind::Client, SpanKind::Server];
    for (depth, (span, kind)) in spans.iter().zip(kinds).enumerate() {
        println!("{}", line(depth + 1, span));
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(span.trace_state, "vendor=1");
        assert_eq!(span.kind(), kind);
        assert_eq!(span.name, "grpc.health.v1.Health/Check");
        assert_eq!(text(span, "rpc.system.name"), "farcall");
        assert_eq!(text(span, "rpc.response.status_code"), status);
        assert_eq!(is_error(span), status != "OK" && kind == SpanKind::Client, "{span:?}");
        assert_eq!(text(span, "transport"), if depth == 0 { "grpc" } else { "rdma" });
    }
}
