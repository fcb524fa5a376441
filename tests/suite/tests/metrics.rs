//! Metrics as an exporter to Prometheus renders them: of calls on both sides, over TCP, RDMA and
//! gRPC, and of what an observer shows.
//!
//! All tests have one recorder, and tell their calls apart by target and method.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use farcall::metrics::Observer;
use farcall::retry::{MethodConfig, RetryPolicy};
use farcall::server::Admin;
use farcall::sim::SimNetwork;
use farcall::{Channel, Code, Method, Rdma, RdmaConfig, Request, Server};
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{
    DownloadRequest, EchoRequest, FailRequest, ParkRequest, ProduceRequest,
};
use futures::stream;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rpc_core::client::untyped;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// No wait of this test is longer.
const LIMIT: Duration = Duration::from_secs(30);

static EXPORTER: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let mut builder = PrometheusBuilder::new().with_recommended_naming(true);
    for metric in farcall::metrics::all() {
        if let Some(buckets) = metric.buckets() {
            let name = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(name, buckets).unwrap();
        }
    }
    let handle = builder.install_recorder().unwrap();
    farcall::metrics::enable();
    handle
});

/// The sum of all series of a name that have these labels.
fn sum(name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    let text = EXPORTER.render();
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let values = series.filter_map(|series| {
        let (found, value) = series.rsplit_once("} ")?;
        let found: Vec<_> = found.split(',').collect();
        labels.iter().all(|label| found.contains(&label.as_str())).then(|| value.parse::<f64>())
    });
    values.map(|value| value.expect("it is a number")).sum()
}

/// Waits until the sum is that.
async fn becomes(name: &str, labels: &[(&str, &str)], value: f64) {
    let reached = tokio::time::timeout(LIMIT, async {
        while sum(name, labels) != value {
            tokio::task::yield_now().await;
        }
    });
    assert!(reached.await.is_ok(), "{name} {labels:?}:\n{}", EXPORTER.render());
}

/// A server of the probe, and its address.
async fn serve(address: &str, server: Server) -> String {
    let listener = server.bind(address).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address
}

fn probe() -> Server {
    LazyLock::force(&EXPORTER);
    Server::builder().add_service(ProbeService::new(Probe::new().0)).build()
}

fn echo(len: usize) -> EchoRequest {
    EchoRequest { payload: vec![7; len].into(), tail: Bytes::new() }
}

/// Bytes that the field of a payload takes in a message.
const FIELD_LEN: f64 = 2.0;

#[tokio::test]
async fn calls_are_counted_by_method_status_and_path() {
    let network = SimNetwork::new(1);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    let rdma = Rdma::simulated(&network, RdmaConfig::default());
    LazyLock::force(&EXPORTER);
    let builder = Server::builder().rdma(&rdma).add_service(ProbeService::new(Probe::new().0));
    let server = builder.build();
    let over_rdma = serve("rdma://127.0.0.1:0", server.clone()).await;
    let over_tcp = over_rdma.replace("rdma://", "tcp://");
    let mut observer = Observer::new().server("probe", &server);
    let method = ("grpc_method", "farcall.suite.Probe/Echo");
    let mut channels = Vec::new();
    for (address, count, transport) in [(&over_rdma, 2, "rdma"), (&over_tcp, 3, "tcp")] {
        let channel = Channel::builder(address.as_str()).unwrap().rdma(&rdma).connect().await;
        let channel = channel.unwrap();
        let stub = ProbeStub::new(channel.clone());
        for _ in 0..count {
            stub.echo(echo(100)).await.unwrap();
        }
        let failure = FailRequest { code: Code::NotFound as i32, ..Default::default() };
        assert_eq!(stub.fail(failure).await.unwrap_err().code(), Code::NotFound);

        let (target, count) = (("grpc_target", address.as_str()), f64::from(count));
        let ended = [method, target, ("grpc_status", "OK")];
        assert_eq!(sum("grpc_client_attempt_started_total", &[method, target]), count);
        assert_eq!(sum("grpc_client_attempt_duration_seconds_count", &ended), count);
        assert_eq!(sum("grpc_client_call_duration_seconds_count", &ended), count);
        for size in ["sent", "rcvd"] {
            let name = format!("grpc_client_attempt_{size}_total_compressed_message_size_bytes");
            assert_eq!(sum(&(name + "_sum"), &ended), count * (100.0 + FIELD_LEN));
        }
        let failed = [("grpc_method", "farcall.suite.Probe/Fail"), target];
        let failed = [failed[0], failed[1], ("grpc_status", "NOT_FOUND")];
        assert_eq!(sum("grpc_client_call_duration_seconds_count", &failed), 1.0);

        observer = observer.channel(&channel);
        observer.observe();
        let path = [("server", "probe"), ("transport", transport), ("fallback", "none")];
        assert_eq!(sum("farcall_server_connections", &path), 1.0);
        let state = if transport == "rdma" { "upgraded" } else { "direct" };
        assert_eq!(sum("farcall_client_connections", &[target, ("state", state)]), 1.0);
        assert!(
            sum("farcall_connections_written_bytes_total", &[("transport", transport)]) > 200.0
        );
        channels.push(channel);
    }
    assert_eq!(sum("grpc_server_call_started_total", &[method]), 5.0);
    let ended = [method, ("grpc_status", "OK")];
    assert_eq!(sum("grpc_server_call_duration_seconds_count", &ended), 5.0);
    let received = "grpc_server_call_rcvd_total_compressed_message_size_bytes_sum";
    assert_eq!(sum(received, &ended), 5.0 * (100.0 + FIELD_LEN));
    let lane = [("device", "sim0"), ("lane", "0")];
    assert_eq!(sum("farcall_rdma_lane_connections", &lane), 2.0);
    assert!(sum("farcall_rdma_lane_receive_slots", &lane) > 0.0);
    assert!(sum("farcall_rdma_lane_posts_total", &lane) > 0.0);
    assert!(sum("farcall_server_memory_limit_bytes", &[("server", "probe")]) > 0.0);

    // A gauge goes back to 0 with what it counted.
    drop((observer, channels));
    let mut observer = Observer::new().server("probe", &server);
    let tcp = [("server", "probe"), ("transport", "tcp"), ("fallback", "none")];
    observer.observe();
    let ended = tokio::time::timeout(LIMIT, async {
        while !server.connections().is_empty() {
            tokio::task::yield_now().await;
        }
    });
    ended.await.unwrap();
    observer.observe();
    assert_eq!(sum("farcall_server_connections", &tcp), 0.0);
}

#[tokio::test]
async fn streams_count_when_they_end_with_all_their_bytes() {
    let address = serve("tcp://127.0.0.1:0", probe()).await;
    let target = ("grpc_target", address.as_str());
    let stub = ProbeStub::new(Channel::connect(address.as_str()).await.unwrap());
    let messages: Vec<_> = (0..10).map(|_| echo(50)).collect();
    let mut replies = stub.chat(stream::iter(messages)).await.unwrap().into_inner();
    let chat = [("grpc_method", "farcall.suite.Probe/Chat"), target];
    assert_eq!(sum("grpc_client_attempt_started_total", &chat), 1.0);
    assert_eq!(sum("grpc_client_call_duration_seconds_count", &chat), 0.0);
    while replies.message().await.unwrap().is_some() {}
    let ended = [chat[0], target, ("grpc_status", "OK")];
    assert_eq!(sum("grpc_client_call_duration_seconds_count", &ended), 1.0);
    for size in ["sent", "rcvd"] {
        let name = format!("grpc_client_attempt_{size}_total_compressed_message_size_bytes_sum");
        assert_eq!(sum(&name, &ended), 10.0 * (50.0 + FIELD_LEN), "{size}");
        let name = format!("grpc_server_call_{size}_total_compressed_message_size_bytes_sum");
        assert_eq!(sum(&name, &[chat[0]]), 10.0 * (50.0 + FIELD_LEN), "{size}");
    }

    // A stream that fails, and one that its caller drops.
    let messages = vec![ProduceRequest { seed: 1, len: 10 }];
    let failure = Some(FailRequest { code: Code::DataLoss as i32, ..Default::default() });
    let request = DownloadRequest { messages, failure, ..Default::default() };
    let mut replies = stub.download(request.clone()).await.unwrap().into_inner();
    let failed = async {
        while replies.message().await?.is_some() {}
        Ok::<_, farcall::Status>(())
    };
    assert_eq!(failed.await.unwrap_err().code(), Code::DataLoss);
    let download = ("grpc_method", "farcall.suite.Probe/Download");
    let calls = "grpc_client_call_duration_seconds_count";
    assert_eq!(sum(calls, &[download, target, ("grpc_status", "DATA_LOSS")]), 1.0);
    drop(stub.download(request).await.unwrap());
    assert_eq!(sum(calls, &[download, target, ("grpc_status", "CANCELLED")]), 1.0);
}

#[tokio::test]
async fn call_that_its_caller_drops_is_cancelled_on_both_sides() {
    let address = serve("tcp://127.0.0.1:0", probe()).await;
    let channel = Channel::connect(address.as_str()).await.unwrap();
    let method = ("grpc_method", "farcall.suite.Probe/Park");
    let call = tokio::spawn(async move {
        let stub = ProbeStub::new(channel);
        stub.park(ParkRequest::default()).await
    });
    becomes("grpc_server_call_started_total", &[method], 1.0).await;
    call.abort();
    let cancelled = [method, ("grpc_status", "CANCELLED")];
    becomes("grpc_client_call_duration_seconds_count", &cancelled, 1.0).await;
    becomes("grpc_client_attempt_duration_seconds_count", &cancelled, 1.0).await;
    becomes("grpc_server_call_duration_seconds_count", &cancelled, 1.0).await;
}

#[tokio::test]
async fn retried_call_is_one_call_of_several_attempts() {
    let address = serve("tcp://127.0.0.1:0", probe()).await;
    let policy = RetryPolicy::default()
        .with_max_attempts(3)
        .with_initial_backoff(Duration::from_millis(1))
        .with_retryable_codes([Code::Unavailable]);
    // Over two connections, so that endpoints are picked.
    let addresses = format!("{address},{}", address.replace("tcp://", ""));
    let builder = Channel::builder(addresses.as_str()).unwrap();
    let config = MethodConfig::default().with_retry(policy).with_idempotent(true);
    let channel = builder.method("*", config).connect_lazy();
    let failure = FailRequest { code: Code::Unavailable as i32, ..Default::default() };
    let failed = ProbeStub::new(channel).fail(failure).await.unwrap_err();
    assert_eq!(failed.code(), Code::Unavailable);
    let fail = ("grpc_method", "farcall.suite.Probe/Fail");
    let unavailable = [fail, ("grpc_status", "UNAVAILABLE")];
    assert_eq!(sum("grpc_client_attempt_duration_seconds_count", &unavailable), 3.0);
    assert_eq!(sum("grpc_client_call_duration_seconds_count", &unavailable), 1.0);
    assert_eq!(sum("farcall_client_retries_total", &[fail, ("kind", "policy")]), 2.0);
}

#[tokio::test]
async fn no_label_comes_from_a_peer_or_a_path() {
    let address = serve("tcp://127.0.0.1:0", probe()).await;
    let grpc = address.replace("tcp://", "grpc://");
    let channel = Channel::connect(grpc.as_str()).await.unwrap();
    let call = async |path: &str| {
        let method = Method::by_path(path).unwrap();
        let messages = stream::iter([Ok(EchoRequest::default())]);
        let called = untyped::<EchoRequest, _>(&channel, method, Request::new(messages)).await;
        let mut replies = called?.into_inner();
        while replies.message().await?.is_some() {}
        Ok::<_, farcall::Status>(())
    };
    for number in 0..3 {
        let refused = call(&format!("/evil.Evil{number}/Label")).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
    }
    let other = [("grpc_method", "other"), ("grpc_status", "UNIMPLEMENTED")];
    becomes("grpc_server_call_duration_seconds_count", &other, 3.0).await;
    let target = ("grpc_target", grpc.as_str());
    let other_calls = [other[0], target];
    assert_eq!(sum("grpc_client_attempt_started_total", &other_calls), 3.0);
    assert!(!EXPORTER.render().contains("vil"), "{}", EXPORTER.render());

    // A method that the server has, by its path alone.
    call("/farcall.suite.Probe/Produce").await.unwrap();
    let produce = ("grpc_method", "farcall.suite.Probe/Produce");
    becomes("grpc_server_call_duration_seconds_count", &[produce], 1.0).await;
    assert_eq!(sum("grpc_client_attempt_started_total", &other_calls), 4.0);
}

/// Returns the page for operators as text.
async fn page(authority: &str) -> String {
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let request = b"GET /debug/farcall HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    tokio::time::timeout(LIMIT, stream.read_to_string(&mut text)).await.unwrap().unwrap();
    text
}

#[tokio::test]
async fn fallbacks_are_counted_and_shown_by_reason() {
    LazyLock::force(&EXPORTER);
    let host = [Ipv4Addr::LOCALHOST.into()];
    let networks = [(); 3].map(|()| SimNetwork::new(1));
    let [both, without, down] =
        networks.each_ref().map(|network| Rdma::simulated(network, RdmaConfig::default()));
    networks[0].add_device("sim1", &host);
    networks[2].add_device("sim2", &host).link_down();
    let builder = Server::builder().rdma(&both).admin(Admin::loopback());
    let server = builder.add_service(ProbeService::new(Probe::new().0)).build();
    let with = serve("rdma://127.0.0.1:0", server.clone()).await.replace("rdma://", "auto://");
    let over_tcp = serve("tcp://127.0.0.1:0", server.clone()).await.replace("tcp://", "auto://");
    let mut observer = Observer::new().server("fallbacks", &server);
    let no_device = "the client says: rdma: there is no RDMA device";
    let port_down = "the client says: rdma: port 1 of sim2 has the address 127.0.0.1 but is not \
                     active (state 1)";
    let not_offered = "rdma: not offered at the address where it listens; not tried again on this \
                       connection";
    let cases = [
        (&with, &both, "rdma", "none", "-"),
        (&with, &without, "tcp", "no_device", no_device),
        (&with, &down, "tcp", "can_pass", port_down),
        (&over_tcp, &both, "tcp", "lasting", not_offered),
    ];
    for (address, rdma, transport, fallback, reason) in cases {
        let builder = Channel::builder(address.as_str()).unwrap().rdma(rdma);
        let channel = builder.connect().await.unwrap();
        // The server has the connection once it has answered. Other tests count calls of `Echo`.
        ProbeStub::new(channel.clone()).digest(echo(100)).await.unwrap();
        observer = observer.channel(&channel);
        observer.observe();
        for (name, whose) in [("server", "fallbacks"), ("client", address)] {
            let key = if name == "server" { "server" } else { "grpc_target" };
            let labels = [(key, whose), ("transport", transport), ("fallback", fallback)];
            assert_eq!(sum(&format!("farcall_{name}_connections"), &labels), 1.0, "{labels:?}");
        }
        let page = page(address.trim_start_matches("auto://")).await;
        let is_row = |line: &&str| line.contains(transport) && line.ends_with(reason);
        assert!(page.contains("  why not RDMA\n"), "{page}");
        assert_eq!(page.lines().filter(is_row).count(), 1, "{reason}\n{page}");
    }
    drop(observer);
}
