//! Very many calls at once over one connection of HTTP/2, which no limit of it may fail.

use std::time::Duration;

use farcall::Channel;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::proto::probe_server::ProbeServer;
use farcall_suite::{Failure, Harness, Path, Probe};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Server;

const CALLS: usize = 20_000;

/// The bound on all calls together, on a machine that is busy otherwise.
const LIMIT: Duration = Duration::from_secs(180);

/// Makes the calls, and names the first failure.
async fn check_calls_at_once(stub: ProbeStub) {
    let echo = || async { stub.echo(EchoRequest::default()).await };
    let calls: FuturesUnordered<_> = (0..CALLS).map(|_| echo()).collect();
    let failures = calls.filter_map(|outcome| std::future::ready(outcome.err()));
    let failures: Vec<_> = tokio::time::timeout(LIMIT, failures.collect()).await.expect("in time");
    if let Some(first) = failures.first() {
        panic!("{} of {CALLS} calls failed; the first: {first}", failures.len());
    }
}

/// Calls a server of tonic's with so many streams at a time; without a number it has tonic's own.
async fn check_calls_at_tonic(streams: Option<u32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of loopback");
    let target = format!("grpc://{}", listener.local_addr().expect("it has one"));
    let (probe, _watch) = Probe::new();
    let builder =
        Server::builder().max_concurrent_streams(streams).add_service(ProbeServer::new(probe));
    let serving = tokio::spawn(builder.serve_with_incoming(TcpListenerStream::new(listener)));
    let _serving = AbortOnDropHandle::new(serving);
    check_calls_at_once(ProbeStub::new(Channel::connect(target).await.expect("it listens"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_calls_at_once_end_at_tonic() {
    for streams in [None, Some(50_000)] {
        check_calls_at_tonic(streams).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_thousand_calls_at_once_end_at_the_port() -> Result<(), Failure> {
    let server = Harness::new(Path::GrpcToPort, LIMIT).serve().await?;
    check_calls_at_once(server.stub().await?).await;
    Ok(())
}
