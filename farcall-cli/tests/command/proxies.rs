//! `farcall proxy` between clients of tonic and targets of every kind.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use farcall::metadata::MetadataMap;
use farcall::{Code, Server, ServerBuilder};
use farcall_probe::Probe;
use farcall_probe::entries::{entries, metadata, sample, sorted};
use farcall_probe::proto::probe_client::ProbeClient;
use farcall_probe::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_probe::proto::{
    DownloadRequest, EchoRequest, FailRequest, ParkRequest, ProduceRequest, ReflectRequest,
    RemainingRequest,
};
use farcall_probe::watch::{Watch, WatchEvent};
use futures::StreamExt as _;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::program::{Started, farcall, farcall_with};
use crate::servers::{self, Running};

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(60);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// A proxy that runs.
struct Proxied {
    command: Started,
    /// Host and port that it listens on.
    authority: String,
}

impl Proxied {
    fn new(target: &str, flags: &[&str]) -> Self {
        let arguments = [&["proxy", "--listen", "127.0.0.1:0", target], flags].concat();
        let command = Started::new(&arguments);
        let authority = command.line.strip_prefix("listening at tcp://");
        let authority = authority.and_then(|rest| rest.strip_suffix(&format!(" for {target}")));
        let authority = authority.expect(&command.line).to_owned();
        Self { command, authority }
    }

    fn client(&self) -> ProbeClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.authority)).unwrap();
        ProbeClient::new(endpoint.connect_lazy())
    }
}

/// A builder whose handlers tell the test of themselves.
fn watched() -> (ServerBuilder, Watch) {
    let (probe, watch) = Probe::new();
    (Server::builder().add_service(ProbeService::new(probe)), watch)
}

fn echo(text: &'static [u8]) -> EchoRequest {
    EchoRequest { payload: text.into(), tail: b"tail"[..].into() }
}

fn produce(len: u64) -> ProduceRequest {
    ProduceRequest { seed: 1, len }
}

#[tokio::test]
async fn calls_of_every_kind_reach_every_target() {
    let socket = format!("unix://@farcall-proxied-{}", std::process::id());
    for server in [
        servers::over_tcp().await,
        servers::serve(servers::complete(), "auto://127.0.0.1:0").await,
        servers::serve(servers::complete(), &socket).await,
        servers::tonic().await,
    ] {
        let proxy = Proxied::new(&server.address, &[]);
        let mut client = proxy.client();
        let reply = within(client.echo(echo(b"hello"))).await.unwrap().into_inner();
        assert_eq!((&reply.payload[..], &reply.tail[..]), (&b"hello"[..], &b"tail"[..]));
        let uploaded = futures::stream::iter([echo(b"ab"), echo(b"c")]);
        let uploaded = within(client.upload(uploaded)).await.unwrap().into_inner();
        assert_eq!(uploaded.count, 2, "{}", server.address);
        let messages = vec![produce(10), produce(100_000)];
        let request = DownloadRequest { messages, rounds: 2, ..Default::default() };
        let downloaded = within(client.download(request)).await.unwrap().into_inner();
        let lengths: Vec<_> =
            within(downloaded.map(|it| it.unwrap().payload.len()).collect()).await;
        assert_eq!(lengths, [10, 100_000, 10, 100_000]);
        take_turns(&mut client).await;
    }
}

/// Sends each request after the response to the one before.
async fn take_turns(client: &mut ProbeClient<Channel>) {
    let (send, requests) = futures::channel::mpsc::unbounded();
    send.unbounded_send(echo(b"0")).unwrap();
    let mut replies = within(client.chat(requests)).await.unwrap().into_inner();
    for _ in 0..3 {
        let reply = within(replies.message()).await.unwrap().unwrap();
        assert_eq!(reply.payload, "0");
        send.unbounded_send(echo(b"0")).unwrap();
    }
    drop(send);
    assert!(within(replies.message()).await.unwrap().is_some());
    assert!(within(replies.message()).await.unwrap().is_none());
}

fn with_sample<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    *request.metadata_mut() = metadata(&sample()).unwrap();
    request
}

fn seen(metadata: &MetadataMap) -> Vec<farcall_probe::proto::MetadataEntry> {
    sorted(entries(metadata).unwrap())
}

#[tokio::test]
async fn metadata_passes_both_ways() {
    for server in [servers::over_tcp().await, servers::tonic().await] {
        let proxy = Proxied::new(&server.address, &[]);
        let mut client = proxy.client();
        let request = with_sample(ReflectRequest { as_trailers: false });
        let response = within(client.reflect(request)).await.unwrap();
        assert_eq!(seen(response.metadata()), sorted(sample()));
        assert_eq!(sorted(response.get_ref().entries.clone()), sorted(sample()));
        let mut request = with_sample(DownloadRequest::default());
        // A client cannot choose another path behind the one of its call.
        request.metadata_mut().insert("farcall-called-path", "/a.B/C".parse().unwrap());
        let response = within(client.download(request)).await.unwrap();
        assert_eq!(seen(response.metadata()), sorted(sample()));
    }
    // tonic's server has no trailers to send.
    let server = servers::over_tcp().await;
    let proxy = Proxied::new(&server.address, &["-H", "x-of-proxy: 1"]);
    let request = with_sample(ReflectRequest { as_trailers: true });
    let response = within(proxy.client().reflect(request)).await.unwrap();
    let trailers = seen(response.metadata());
    let proxy_entries = trailers.iter().filter(|entry| entry.key == "x-of-proxy").count();
    assert_eq!((trailers.len(), proxy_entries), (sample().len() + 1, 1));
}

#[tokio::test]
async fn status_passes_with_details_and_metadata() {
    let server = servers::over_tcp().await;
    let proxy = Proxied::new(&server.address, &[]);
    let failure = FailRequest {
        code: Code::FailedPrecondition.into(),
        message: "out of paper: größe".into(),
        details: b"\x00details\xff"[..].into(),
        metadata: sample(),
    };
    let status = within(proxy.client().fail(failure.clone())).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), "out of paper: größe");
    assert_eq!(status.details(), b"\x00details\xff");
    assert_eq!(seen(status.metadata()), sorted(sample()));
    let messages = vec![produce(5)];
    let request = DownloadRequest { messages, failure: Some(failure), ..Default::default() };
    let mut messages = within(proxy.client().download(request)).await.unwrap().into_inner();
    assert_eq!(within(messages.message()).await.unwrap().unwrap().payload.len(), 5);
    let status = within(messages.message()).await.unwrap_err();
    assert_eq!(
        (status.code(), status.details()),
        (Code::FailedPrecondition, &b"\x00details\xff"[..])
    );
}

#[tokio::test]
async fn deadlines_and_cancellation_reach_the_target() {
    let (builder, mut watch) = watched();
    let server = servers::serve(builder, "tcp://127.0.0.1:0").await;
    let proxy = Proxied::new(&server.address, &[]);
    let mut client = proxy.client();
    let mut request = Request::new(RemainingRequest {});
    request.set_timeout(Duration::from_secs(40));
    let remaining = within(client.remaining(request)).await.unwrap().into_inner().remaining_us;
    assert!((1..=40_000_000).contains(&remaining.unwrap()), "{remaining:?}");
    let none = within(client.remaining(RemainingRequest {})).await.unwrap().into_inner();
    assert_eq!(none.remaining_us, None);
    let mut request = Request::new(ParkRequest { tag: 1, ..Default::default() });
    request.set_timeout(Duration::from_millis(200));
    let status = within(client.park(request)).await.unwrap_err();
    assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()), "{status}");
    assert_eq!(within(watch.next()).await, Some(WatchEvent::Entered(1)));
    assert_eq!(within(watch.next()).await, Some(WatchEvent::Dropped(1)));
    let request = ParkRequest { tag: 2, ..Default::default() };
    let call = tokio::spawn(async move { client.park(request).await });
    assert_eq!(within(watch.next()).await, Some(WatchEvent::Entered(2)));
    call.abort();
    assert_eq!(within(watch.next()).await, Some(WatchEvent::Dropped(2)));
}

#[tokio::test]
async fn message_limits_hold_on_both_sides() {
    let server = servers::over_tcp().await;
    let proxy = Proxied::new(&server.address, &["--max-message-len", "10000"]);
    let mut client = proxy.client();
    let long = EchoRequest { payload: vec![7; 10_001].into(), ..Default::default() };
    let status = within(client.echo(long)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let status = within(client.produce(produce(10_001))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(
        within(client.produce(produce(9_000))).await.unwrap().into_inner().payload.len(),
        9_000
    );
}

#[tokio::test]
async fn target_that_is_down_is_unavailable_until_it_is_up() {
    let address = format!("unix://@farcall-proxied-late-{}", std::process::id());
    let mut proxy = Proxied::new(&address, &[]);
    let log = proxy.command.log();
    let mut client = proxy.client();
    let status = within(client.echo(echo(b"?"))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let server = servers::serve(servers::complete(), &address).await;
    within(async {
        while let Err(status) = client.echo(echo(b"?")).await {
            assert_eq!(status.code(), Code::Unavailable, "{status}");
        }
    })
    .await;
    drop(server);
    let other = within(client.echo(echo(b"?"))).await;
    assert!(other.is_err() || other.is_ok_and(|reply| reply.get_ref().payload == "?"));
    let log = String::from_utf8(log.bytes()).unwrap();
    let lines = log.lines().filter(|line| line.contains("UNAVAILABLE")).count();
    assert!((1..=20).contains(&lines) && !log.contains("panicked"), "{log}");
}

#[tokio::test]
async fn reflection_and_health_are_those_of_the_target() {
    let server = servers::over_tcp().await;
    let proxy = Proxied::new(&server.address, &[]);
    let authority = &proxy.authority;
    let services = farcall(&format!("list -plaintext {authority}")).await.succeeded();
    assert!(services.contains("farcall.suite.Probe\n"), "{services}");
    let health = ["call", "--plaintext", authority, "grpc.health.v1.Health/Check"];
    let shown = farcall_with(&health, "").await.succeeded();
    assert!(shown.contains("SERVING"), "{shown}");
    let unknown = farcall(&format!("call grpc://{authority} a.B/C --protoset /dev/null")).await;
    assert_ne!(unknown.code, 0);
    // farcall's own clients reach the proxy over gRPC.
    let channel = farcall::Channel::connect(format!("grpc://{authority}")).await.unwrap();
    let reply = within(ProbeStub::new(channel).echo(echo(b"own"))).await.unwrap();
    assert_eq!(reply.into_inner().payload, "own");
}

#[tokio::test]
async fn services_for_operators_do_not_pass() {
    let server = servers::over_tcp().await;
    let top = farcall(&format!("top {} --count 1", server.address)).await;
    top.succeeded();
    let proxy = Proxied::new(&server.address, &[]);
    let top = farcall(&format!("top grpc://{} --count 1", proxy.authority)).await;
    assert_eq!(top.code, 76, "{top:?}");
}

#[tokio::test]
async fn front_may_have_tls() {
    let folder = tempfile::tempdir().unwrap();
    let server = servers::over_tcp().await;
    let servers::Certificates { ca, cert, key } = servers::Certificates::new(&folder);
    let [cert, key] = [("cert.pem", cert), ("key.pem", key)].map(|(name, text)| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    });
    let flags = ["--listen-cert", &cert, "--listen-key", &key];
    let proxy = Proxied::new(&server.address, &flags);
    let host = proxy.authority.replace("127.0.0.1", "localhost");
    let names = farcall(&format!("-cacert {ca} {host} list")).await.succeeded();
    assert!(names.contains("farcall.suite.Probe\n"), "{names}");
    let line = format!("proxy --listen 127.0.0.1:0 {} --listen-cert {cert}", server.address);
    farcall(&line).await.failed(1, "--listen-key");
    let line = format!("proxy --listen 127.0.0.1 {}", server.address);
    farcall(&line).await.failed(1, "127.0.0.1");
}

/// Starts a call that waits in its handler.
async fn parked(client: &ProbeClient<Channel>, watch: &mut Watch) -> tokio::task::JoinHandle<bool> {
    let mut client = client.clone();
    let call = tokio::spawn(async move { client.park(ParkRequest::default()).await.is_ok() });
    assert_eq!(within(watch.next()).await, Some(WatchEvent::Entered(0)));
    call
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupt_drains_calls_in_flight() {
    let (builder, mut watch) = watched();
    let server: Running = servers::serve(builder, "tcp://127.0.0.1:0").await;
    let mut proxy = Proxied::new(&server.address, &[]);
    let call = parked(&proxy.client(), &mut watch).await;
    proxy.command.interrupt();
    // A new connection is refused as soon as the proxy drains; the call in flight goes on.
    within(async { while std::net::TcpStream::connect(&proxy.authority).is_ok() {} }).await;
    watch.open(1);
    assert!(within(call).await.unwrap());
    let ended = tokio::task::spawn_blocking(move || proxy.command.exit_code()).await;
    assert_eq!(ended.unwrap(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_of_the_proxy_is_bounded() {
    let (builder, mut watch) = watched();
    let server = servers::serve(builder, "tcp://127.0.0.1:0").await;
    let mut proxy = Proxied::new(&server.address, &["--drain-timeout", "1ms"]);
    let call = parked(&proxy.client(), &mut watch).await;
    proxy.command.interrupt();
    assert!(!within(call).await.unwrap());
    assert_eq!(within(watch.next()).await, Some(WatchEvent::Dropped(0)));
    let ended = tokio::task::spawn_blocking(move || proxy.command.exit_code()).await;
    assert_eq!(ended.unwrap(), Some(0));
}
