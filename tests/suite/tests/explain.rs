//! Accounts of calls that fell back, that were retried, and that went over HTTP/2.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farcall::retry::{HedgingPolicy, MethodConfig, RetryPolicy};
use farcall::sim::SimNetwork;
use farcall::{
    CallExplanation, CallStage, Channel, ChannelBuilder, Code, Explain, Rdma, RdmaConfig, Request,
    Response, Server, ServerBuilder, Status, async_trait,
};
use farcall_probe::relay::relay;
use farcall_suite::proto::relay_rpc::RelayStub;
use farcall_suite::proto::relay_server::{Relay as RelayRpc, RelayServer};
use farcall_suite::proto::{EchoReply, EchoRequest};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::BoxStream;
use tonic::metadata::AsciiMetadataValue;

/// Longer than what any transport takes for small.
const LARGE: usize = 1 << 20;

/// A server whose every odd call fails with `UNAVAILABLE`.
fn failing_once() -> ServerBuilder {
    let count = Arc::new(AtomicU32::new(0));
    let service = relay(move |_| {
        let is_first = count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        async move { if is_first { Err(Status::unavailable("not\u{7} yet")) } else { Ok(()) } }
    });
    Server::builder().add_service(service)
}

fn answering() -> ServerBuilder {
    Server::builder().add_service(relay(|_| async { Ok(()) }))
}

/// Serves at `address`, and returns the address that clients connect to.
async fn serve(builder: ServerBuilder, address: &str) -> String {
    let listener = builder.bind(address).await.expect("a free address");
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address
}

fn simulated() -> [Rdma; 2] {
    let network = SimNetwork::new(1);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()))
}

/// A server and a client's builder for each path.
async fn paths(make: fn() -> ServerBuilder) -> Vec<(&'static str, ChannelBuilder)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("farcall-explain-{}-{number}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let [server_rdma, client_rdma] = simulated();
    let tcp = serve(make(), "tcp://127.0.0.1:0").await;
    let unix = serve(make(), &format!("unix://{}", socket.display())).await;
    let http = serve(make(), "tcp://127.0.0.1:0").await.replacen("tcp://", "grpc://", 1);
    let rdma = serve(make().rdma(&server_rdma), "rdma://127.0.0.1:0").await;
    let builder = |address: &str| Channel::builder(address).expect("an address");
    vec![
        ("tcp", builder(&tcp)),
        ("unix", builder(&unix)),
        ("grpc", builder(&http)),
        ("rdma", builder(&rdma).rdma(&client_rdma)),
    ]
}

async fn ask(channel: &Channel, len: usize) -> (Result<(), Status>, CallExplanation) {
    let explain = Explain::new();
    let mut request =
        Request::new(EchoRequest { payload: vec![7; len].into(), ..Default::default() });
    request.extensions_mut().insert(explain.clone());
    let reply = RelayStub::new(channel.clone()).ask(request).await;
    let account = explain.explanation();
    let sum: Duration = account.stages.iter().map(|(_, time)| *time).sum();
    assert_eq!(sum, account.total, "{account:?}");
    assert!(account.total > Duration::ZERO, "{account:?}");
    (reply.map(drop), account)
}

fn transport(account: &CallExplanation) -> &'static str {
    account.connection.as_ref().map_or("", |info| info.transport)
}

#[tokio::test]
async fn calls_over_http2_have_the_stages_that_it_shows() {
    for (name, builder) in paths(answering).await {
        let channel = builder.connect().await.unwrap();
        for len in [10, LARGE] {
            let (reply, account) = ask(&channel, len).await;
            reply.unwrap();
            assert_eq!((transport(&account), account.attempts), (name, 1));
            assert!(account.stage(CallStage::Handler).is_some(), "{account:?}");
            let is_http = name == "grpc";
            for stage in [CallStage::Post, CallStage::Delivery] {
                assert_eq!(account.stage(stage).is_none(), is_http, "{name} {stage:?}");
            }
            let frame = account.request.map(|frame| frame.is_large);
            assert_eq!(frame, (!is_http).then_some(len == LARGE), "{name}");
            assert_eq!(account.copied_bytes.is_none(), is_http, "{name}");
        }
    }
}

#[tokio::test]
async fn retried_call_tells_of_each_attempt() {
    for (name, builder) in paths(failing_once).await {
        let policy = RetryPolicy::default()
            .with_retryable_codes([Code::Unavailable])
            .with_initial_backoff(Duration::from_millis(1));
        let builder =
            builder.method("*", MethodConfig::default().with_retry(policy).with_idempotent(true));
        let channel = builder.connect().await.unwrap();
        let (reply, account) = ask(&channel, 10).await;
        reply.unwrap();
        assert_eq!((transport(&account), account.attempts), (name, 2));
        assert_eq!(account.failed, [(Code::Unavailable, "not\\u{7} yet".to_owned())]);
        assert!(account.stage(CallStage::EarlierAttempts).is_some(), "{account:?}");
        assert!(account.stage(CallStage::Handler).is_some(), "{account:?}");
    }
}

#[tokio::test]
async fn hedged_call_tells_of_the_attempt_that_answered() {
    let address = serve(failing_once(), "tcp://127.0.0.1:0").await;
    let policy = HedgingPolicy::default()
        .with_hedging_delay(Duration::ZERO)
        .with_non_fatal_codes([Code::Unavailable]);
    let config = MethodConfig::default().with_hedging(policy).with_idempotent(true);
    let builder = Channel::builder(&address).unwrap().method("*", config);
    let (reply, account) = ask(&builder.connect().await.unwrap(), 10).await;
    reply.unwrap();
    assert!(account.attempts >= 1, "{account:?}");
    assert!(account.stage(CallStage::Handler).is_some(), "{account:?}");
}

#[tokio::test]
async fn call_that_fell_back_to_tcp_says_why() {
    let [server_rdma, _] = simulated();
    let address = serve(answering().rdma(&server_rdma), "auto://127.0.0.1:0").await;
    let nothing = Rdma::simulated(&SimNetwork::new(1), RdmaConfig::default());
    let channel = Channel::builder(&address).unwrap().rdma(&nothing).connect().await.unwrap();
    let (reply, account) = ask(&channel, LARGE).await;
    reply.unwrap();
    assert_eq!(transport(&account), "tcp");
    let fallback = account.connection.as_ref().and_then(|info| info.fallback.clone());
    assert!(fallback.unwrap_or_default().contains("no RDMA device"), "{account:?}");
    let frame = account.request.map(|frame| (frame.protocol_name(), frame.is_large));
    assert_eq!(frame, Some(("pieces", true)));
}

#[tokio::test]
async fn call_without_a_server_is_a_wait() {
    let channel = Channel::builder("tcp://127.0.0.1:1").unwrap().connect_lazy();
    let (reply, account) = ask(&channel, 10).await;
    assert_eq!(reply.unwrap_err().code(), Code::Unavailable);
    assert_eq!(account.failed.len(), 1, "{account:?}");
    assert_eq!(account.stage(CallStage::Queue), Some(account.total));
    assert!(account.connection.is_none() && account.request.is_none(), "{account:?}");
}

#[tokio::test]
async fn one_of_several_servers_is_named_with_its_pick() {
    let (one, other) = (serve(answering(), "tcp://127.0.0.1:0").await, "127.0.0.1:1");
    let channel = Channel::builder(format!("{one},{other}")).unwrap().connect().await.unwrap();
    let (reply, account) = ask(&channel, 10).await;
    reply.unwrap();
    let pick = account.pick.unwrap();
    assert_eq!((pick.policy, pick.candidates, pick.in_flight), ("least_loaded", 1, 0));
    assert!(one.ends_with(account.endpoint.as_deref().unwrap_or("nothing")), "{account:?}");
}

/// A service of tonic's, whose server tells no times of its own.
struct Claiming(&'static str);

#[async_trait]
impl RelayRpc for Claiming {
    type ListenStream = BoxStream<EchoReply>;

    async fn ask(&self, _: Request<EchoRequest>) -> Result<Response<EchoReply>, Status> {
        let value = AsciiMetadataValue::try_from(self.0.as_bytes())
            .map_err(|error| Status::internal(error.to_string()))?;
        let mut status = Status::aborted("with times");
        status.metadata_mut().insert("farcall-explain", value);
        Err(status)
    }

    async fn listen(
        &self,
        _: Request<EchoRequest>,
    ) -> Result<Response<Self::ListenStream>, Status> {
        Err(Status::unimplemented("no test needs it"))
    }
}

/// A server's times are claims: they never make a stage longer than the wait for it.
#[tokio::test]
async fn servers_times_count_only_within_our_own() {
    for (claim, is_believed) in [
        ("queue=1 handler=2", true),
        ("queue=1 handler=9999999999999", false),
        ("queue=x handler=1", false),
        ("\u{e9}", false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("grpc://{}", listener.local_addr().unwrap());
        let server =
            tonic::transport::Server::builder().add_service(RelayServer::new(Claiming(claim)));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let channel = Channel::builder(&address).unwrap().connect().await.unwrap();
        let (reply, account) = ask(&channel, 10).await;
        let status = reply.unwrap_err();
        assert!(status.metadata().get("farcall-explain").is_none(), "{status:?}");
        let handler = account.stage(CallStage::Handler);
        assert_eq!(handler, is_believed.then_some(Duration::from_nanos(2)), "{claim}: {account:?}");
        assert_eq!(account.stage(CallStage::Remote).is_none(), is_believed, "{claim}: {account:?}");
    }
}
