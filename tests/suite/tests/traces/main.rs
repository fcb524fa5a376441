//! A trace over three hops, as a collector receives it: a client of gRPC, a server that it calls
//! over HTTP/2, and a server that this one calls over RDMA.
//!
//! Everywhere, the client is tonic's and the device is simulated. Where `FARCALL_RDMA=required`
//! says that there is a device, with the address `FARCALL_RDMA_SERVER`, the trace runs over that
//! one, and Python begins it: `FARCALL_PYTHON` is a Python that has PyPI's `grpcio` and
//! `grpcio-health-checking`.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod collector;
mod hops;

use std::net::{IpAddr, Ipv4Addr};
use std::process::Stdio;
use std::time::Duration;

use farcall::otel::Otlp;
use farcall::sim::SimNetwork;
use farcall::{Rdma, RdmaConfig, Request};
use tokio::process::Command;
use tonic::metadata::MetadataValue;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::collector::{Collector, text};
use crate::hops::{CALLER, CALLS, Hops, TRACE};

/// No wait of this test is longer.
const LIMIT: Duration = Duration::from_secs(30);

/// The bound on the client in Python, whose processor may be emulated.
const PYTHON_LIMIT: Duration = Duration::from_secs(90);

/// Exports this thread's spans to the collector until the guard is dropped.
async fn export_to(collector: &Collector) -> (Otlp, DefaultGuard) {
    let otlp = Otlp::to("traces", collector.serve().await).unwrap();
    let subscriber = tracing_subscriber::registry().with(otlp.layer());
    (otlp, tracing::subscriber::set_default(subscriber))
}

#[tokio::test]
async fn trace_spans_three_hops_as_a_collector_receives_it() {
    let collector = Collector::default();
    let (otlp, _guard) = export_to(&collector).await;
    let network = SimNetwork::new(1);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    let hops = Hops::serve(&Rdma::simulated(&network, RdmaConfig::default()), "127.0.0.1").await;

    let endpoint = format!("http://{}", hops.first);
    let endpoint = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    for (service, flags, status) in CALLS {
        let mut request = Request::new(HealthCheckRequest { service: service.to_owned() });
        let parent = format!("00-{TRACE}-{CALLER}-{flags}");
        request.metadata_mut().insert("traceparent", MetadataValue::try_from(parent).unwrap());
        request.metadata_mut().insert("tracestate", MetadataValue::from_static("vendor=1"));
        let reply = tokio::time::timeout(LIMIT, client.check(request)).await.expect("in time");
        assert_eq!(reply.is_ok(), status == "OK", "{reply:?}");
    }
    tokio::time::timeout(LIMIT, otlp.shutdown()).await.expect("in time").unwrap();
    for [.., server] in hops.check(&collector.spans()) {
        assert_eq!(text(&server, "network.peer.address"), "127.0.0.1");
    }
}

#[tokio::test]
async fn trace_from_python_spans_a_device() {
    if std::env::var("FARCALL_RDMA").as_deref() != Ok("required") {
        println!("skipped: no RDMA device (FARCALL_RDMA is not set to `required`)");
        return;
    }
    let Ok(python) = std::env::var("FARCALL_PYTHON") else {
        println!("skipped: no Python with grpcio (FARCALL_PYTHON is not set)");
        return;
    };
    let host = std::env::var("FARCALL_RDMA_SERVER").unwrap_or_else(|_| "10.0.1.1".to_owned());
    let collector = Collector::default();
    let (otlp, _guard) = export_to(&collector).await;
    let hops = Hops::serve(&Rdma::new(RdmaConfig::default()), &host).await;

    let mut client = Command::new(python);
    client.args(["-c", include_str!("client.py"), &hops.first]);
    client.args(CALLS.map(|(service, flags, _)| format!("{service}:{flags}")));
    client.env("TRACE", TRACE).env("CALLER", CALLER);
    client.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let ended = tokio::time::timeout(PYTHON_LIMIT, client.output()).await;
    let ended = ended.expect("the client ends in time").unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let printed = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), CALLS.map(|(.., status)| status));
    tokio::time::timeout(LIMIT, otlp.shutdown()).await.expect("in time").unwrap();
    for [.., server] in hops.check(&collector.spans()) {
        let peer: IpAddr = text(&server, "network.peer.address").parse().unwrap();
        assert!(!peer.is_loopback(), "{server:?}");
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
