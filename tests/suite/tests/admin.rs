//! The state of a server for operators: what it shows, and who does not see it.
//!
//! Clients from other hosts connect through a relay that sends a PROXY header for them. They are
//! compared with the same clients of a server without the service.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use farcall::server::admin_api::{SERVICE, Snapshot, SnapshotRequest};
use farcall::server::channelz_api::CHANNELZ;
use farcall::server::channelz_api::messages::{GetServersRequest, GetServersResponse};
use farcall::server::{Admin, ProxyProtocol};
use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{Channel, Code, Identity, Request, Server, ServerBuilder, Settings, Status};
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{EchoRequest, FailRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_bytes, record};
use farcall_testkit::certificates::{Authority, Wanted};
use proptest::prelude::*;
use rpc_core::wire::{FrameHeader, FrameKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// No wait of this test is longer.
const LIMIT: Duration = Duration::from_secs(30);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

fn probe(builder: ServerBuilder) -> ServerBuilder {
    builder.add_service(ProbeService::new(Probe::new().0))
}

/// Serves, and returns the address.
async fn serve(builder: ServerBuilder, address: &str) -> String {
    let listener = builder.bind(address).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address
}

/// A server whose clients are those of a load balancer on this host.
fn proxied(builder: ServerBuilder) -> ServerBuilder {
    builder.proxy_protocol(ProxyProtocol::from(["127.0.0.0/8"]))
}

/// Relays clients to `server`, each as a client at the address `peer`. Returns its own authority.
async fn relay(server: &str, peer: &'static str) -> String {
    let server = server.split_once("://").unwrap().1.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move {
                let header = format!("PROXY TCP4 {peer} 203.0.113.1 4000 7000\r\n");
                let _ = server.write_all(header.as_bytes()).await;
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    authority
}

async fn snapshot(channel: &Channel) -> Result<Snapshot, Status> {
    let request = Request::new(SnapshotRequest::default());
    let call = farcall::client::unary(channel, &SERVICE.methods[0], request);
    within(call).await.map(farcall::Response::into_inner)
}

/// Asks for the server's channelz.
async fn channelz(channel: &Channel) -> Result<GetServersResponse, Status> {
    let request = Request::new(GetServersRequest::default());
    let method = CHANNELZ.methods.iter().find(|method| method.path.ends_with("/GetServers"));
    let call = farcall::client::unary(channel, method.unwrap(), request);
    within(call).await.map(farcall::Response::into_inner)
}

async fn connect(address: &str) -> Channel {
    within(Channel::connect(address)).await.unwrap()
}

#[tokio::test]
async fn snapshot_has_connections_methods_and_failed_calls() {
    let address = serve(probe(Server::builder().admin(Admin::loopback())), "auto://127.0.0.1:0");
    let channel = connect(&address.await).await;
    let stub = ProbeStub::new(channel.clone());
    for _ in 0..3 {
        within(stub.echo(EchoRequest::default())).await.unwrap();
    }
    let fail =
        FailRequest { code: 5, message: "no such item\u{1b}[2J".into(), ..Default::default() };
    within(stub.fail(fail)).await.unwrap_err();
    let snapshot = snapshot(&channel).await.unwrap();
    let [connection] = &snapshot.connections[..] else { panic!("{:?}", snapshot.connections) };
    assert!(connection.peer.starts_with("127.0.0.1:") && connection.transport == "tcp");
    // "RDMA", or "rdma: libibverbs.so.1 is not installed".
    assert!(connection.reason.to_lowercase().contains("rdma"), "{connection:?}");
    assert_eq!(connection.calls_started, 5);
    assert_eq!(snapshot.paths.iter().map(|path| path.count).sum::<u64>(), 1);
    let method = |name: &str| {
        let found = snapshot.methods.iter().find(|method| method.path.ends_with(name)).unwrap();
        let codes: Vec<_> = found.codes.iter().map(|it| (it.code, it.count)).collect();
        (codes, found.latency.iter().map(|bucket| bucket.count).sum::<u64>())
    };
    assert_eq!(method("/Echo"), (vec![(0, 3)], 3));
    assert_eq!(method("/Fail"), (vec![(5, 1)], 1));
    let [failed] = &snapshot.failed_calls[..] else { panic!("{:?}", snapshot.failed_calls) };
    assert_eq!((failed.code, &*failed.message), (5, "no such item\\u{1b}[2J"));
    assert_eq!(failed.peer, connection.peer);
    assert!(snapshot.memory_limit > 0 && snapshot.rss_bytes > 1 << 20 && snapshot.pid > 0);
}

#[tokio::test]
async fn settings_name_the_place_that_sets_them() {
    let file = tempfile();
    std::fs::write(
        &file,
        "[servers.orders]\naddress = \"tcp://127.0.0.1:0\"\nmax_calls = 77\n\
         limits.max_message_len = \"1 MiB\"\n[defaults.server]\nhandshake_timeout = \"9s\"\n",
    )
    .unwrap();
    let settings = Settings::load(&file).unwrap();
    let reloader = settings.watch().unwrap();
    let (address, server) = settings.server("orders").unwrap();
    let server = probe(server.admin(Admin::loopback()).max_connections(55).max_calls(66));
    let channel = connect(&serve(server, &address.to_string()).await).await;
    let before = snapshot(&channel).await.unwrap();
    let setting = |key: &str| {
        let found = before.settings.iter().find(|setting| setting.key == key);
        found.map(|it| (it.value.clone(), it.source.clone())).unwrap_or_else(|| panic!("{key}"))
    };
    let line = |line: u32| format!("{}:{line}", file.display());
    assert_eq!(setting("max_connections"), ("55".into(), "code".into()));
    assert_eq!(setting("max_calls"), ("66".into(), "code".into()));
    assert_eq!(setting("limits.max_message_len"), ("\"1 MiB\"".into(), line(4)));
    assert_eq!(setting("handshake_timeout"), ("\"9s\"".into(), line(6)));
    assert_eq!(setting("drain_timeout").1, "default");
    assert_eq!(before.last_reload, None);
    std::fs::write(&file, "[servers.orders]\naddress = 7\n").unwrap();
    reloader.reload().unwrap_err();
    let reload = snapshot(&channel).await.unwrap().last_reload.unwrap();
    assert!(reload.error.contains("servers.orders.address"), "{reload:?}");
    std::fs::remove_file(&file).unwrap();
}

/// A path of this process alone.
fn tempfile() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("farcall-admin-{}.toml", std::process::id()))
}

#[tokio::test]
async fn clients_on_the_host_see_the_service() {
    let server = probe(Server::builder().admin(Admin::loopback())).build();
    for address in ["tcp://127.0.0.1:0", "tcp://[::1]:0", "unix://@farcall-admin", "inproc://admin"]
    {
        let listener = server.bind(address).await.unwrap();
        let address = listener.local_address().to_string();
        tokio::spawn(listener.serve());
        let channel = connect(&address).await;
        assert!(snapshot(&channel).await.is_ok(), "{address}");
        if let Some(authority) = address.strip_prefix("tcp://") {
            let grpc = connect(&format!("grpc://{authority}")).await;
            assert!(snapshot(&grpc).await.is_ok(), "{address} over gRPC");
        }
    }
}

#[tokio::test]
async fn streams_of_the_program_do_not_see_the_service() {
    let server = probe(Server::builder().admin(Admin::loopback())).build();
    let (client, ours) = tokio::io::duplex(64 << 10);
    let incoming = futures::stream::iter([Ok::<_, std::io::Error>(ours)]);
    tokio::spawn(server.serve_incoming(incoming));
    let client = parking_lot::Mutex::new(Some(client));
    let builder = Channel::builder("tcp://the-stream:1").unwrap();
    let channel = builder.connect_with_connector(move || {
        let stream = client.lock().take();
        async move { stream.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected)) }
    });
    assert_eq!(snapshot(&channel).await.unwrap_err().code(), Code::Unimplemented);
}

/// TLS of a server and of a client with this name.
fn tls(authority: &Authority, name: &str) -> (ServerTls, ClientTls) {
    let ca = || Pem::bytes(authority.pem());
    let leaf = authority.issue(Wanted::named("127.0.0.1")).unwrap();
    let server = ServerTlsConfig::new(Pem::bytes(leaf.cert), Pem::bytes(leaf.key));
    let leaf = authority.issue(Wanted::named(name)).unwrap();
    let client = ClientTlsConfig::default().with_ca(ca());
    let client = client.with_cert(Pem::bytes(leaf.cert), Pem::bytes(leaf.key));
    (ServerTls::new(server.with_client_ca(ca())).unwrap(), ClientTls::new(client).unwrap())
}

#[tokio::test]
async fn identities_that_authorize_allows_see_the_service() {
    let authority = Authority::new("the operators' authority").unwrap();
    let rules = |identity: &Identity, method: &str| {
        !method.starts_with("/farcall.admin.") || identity.has_name("operator.example")
    };
    for (name, rules, expected) in [
        ("operator.example", Some(rules), true),
        ("client.example", Some(rules), false),
        ("operator.example", None, false),
    ] {
        let (server, client) = tls(&authority, name);
        let builder = proxied(probe(Server::builder().admin(Admin::loopback()).tls(&server)));
        let builder = match rules {
            Some(rules) => builder.authorize(rules),
            None => builder,
        };
        let server = serve(builder, "tcp://127.0.0.1:0").await;
        let relay = relay(&server, "203.0.113.9").await;
        for scheme in ["tcp", "grpcs"] {
            let address = format!("{scheme}://{relay}");
            let channel = Channel::builder(&address).unwrap().tls(&client).connect();
            let channel = within(channel).await.unwrap();
            let seen = snapshot(&channel).await;
            assert_eq!(seen.is_ok(), expected, "{name} over {scheme}: {seen:?}");
            let seen = channelz(&channel).await;
            assert_eq!(seen.is_ok(), expected, "{name} over {scheme}: {seen:?}");
            assert!(within(ProbeStub::new(channel).echo(EchoRequest::default())).await.is_ok());
        }
    }
}

/// The authorities of two relays: to a server with the service, and to one without it.
struct Pair {
    runtime: Runtime,
    authorities: [String; 2],
}

static PAIR: LazyLock<Pair> = LazyLock::new(|| {
    let runtime = Runtime::new().unwrap();
    let authorities = runtime.block_on(async {
        let admin = Admin::loopback().metrics(|| "secret 1\n".to_owned());
        let with = probe(proxied(Server::builder().admin(admin)));
        let without = probe(proxied(Server::builder()));
        let with = serve(with, "tcp://127.0.0.1:0").await;
        let without = serve(without, "tcp://127.0.0.1:0").await;
        // A proxy may say what it likes of its clients' addresses.
        [relay(&with, "127.0.0.1").await, relay(&without, "127.0.0.1").await]
    });
    Pair { runtime, authorities }
});

/// Returns the answers of both servers.
fn both<F: Future<Output = String>>(ask: impl Fn(String) -> F) -> [String; 2] {
    let Pair { runtime, authorities } = &*PAIR;
    let [with, without] = authorities.clone();
    runtime.block_on(async { [within(ask(with)).await, within(ask(without)).await] })
}

/// Returns the answer to an HTTP/1 request, without its date.
async fn http1(authority: &str, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(authority).await.unwrap();
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let lines = answer.split("\r\n").filter(|line| !line.to_lowercase().starts_with("date:"));
    lines.collect::<Vec<_>>().join("\r\n")
}

/// Returns the answer to a gRPC request over HTTP/2, without its date.
async fn http2(authority: &str, method: &str, path: &str, kind: &str, body: Vec<u8>) -> String {
    let stream = TcpStream::connect(authority).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut sender = sender.ready().await.unwrap();
    let request = http::Request::builder().method(method).header("content-type", kind);
    let request = request.uri(format!("http://127.0.0.1:7000{path}")).body(()).unwrap();
    let (answer, mut sending) = sender.send_request(request, false).unwrap();
    let _ = sending.send_data(Bytes::from(body), true);
    let mut text = String::new();
    match answer.await {
        Err(error) => drop(write!(text, "{error}")),
        Ok(answer) => {
            let (mut head, mut body) = answer.into_parts();
            head.headers.remove("date");
            let _ = write!(text, "{:?} {:?}", head.status, head.headers);
            while let Some(Ok(data)) = body.data().await {
                let _ = write!(text, "{data:?}");
            }
            let _ = write!(text, "{:?}", body.trailers().await);
        }
    }
    text
}

/// Returns the Hello of a server, and its answer to a request of the method `id`.
async fn farcall(authority: &str, id: u16, message: &[u8], is_streaming: bool) -> String {
    let mut peer = RawPeer::connect(authority).await.unwrap();
    peer.send(&hello_bytes(Vec::new())).await.unwrap();
    let hello = peer.read_hello().await.unwrap();
    let mut request = frame(FrameKind::Request, 1, id, message);
    if is_streaming {
        let mut header = FrameHeader::bare(FrameKind::Request, 1);
        (header.selector, header.is_streaming) = (id, true);
        request = header.to_bytes().to_vec();
    }
    peer.send(&record(1, 0, &request)).await.unwrap();
    format!("{hello:?} {:?}", peer.read_frame().await)
}

/// Returns a message as gRPC frames it.
fn prefixed(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap();
    [&[0][..], &len.to_be_bytes(), message].concat()
}

const PATHS: [&str; 8] = [
    "/debug/farcall",
    "/debug/farcall?refresh=off",
    "/metrics",
    "/farcall.admin.v1.Admin/GetSnapshot",
    "/farcall.admin.v1.Admin/Other",
    "/grpc.channelz.v1.Channelz/GetServers",
    "/grpc.channelz.v1.Channelz/Other",
    "/",
];

const KINDS: [&str; 5] = [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc-web",
    "application/grpc-web-text",
    "text/plain",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn others_get_the_answer_of_an_unknown_path_over_http1(
        method in prop::sample::select(vec!["GET", "HEAD", "POST", "OPTIONS", "PUT"]),
        path in prop::sample::select(PATHS.to_vec()),
        kind in prop::sample::select(KINDS.to_vec()),
        host in prop::sample::select(vec!["127.0.0.1:7000", "localhost", "a.example"]),
        accept in prop::sample::select(vec!["*/*", "text/html"]),
        message in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let body = prefixed(&message);
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\naccept: {accept}\r\n\
             content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let [with, without] = both(|authority| {
            let (head, body) = (head.clone(), body.clone());
            async move { http1(&authority, &head, &body).await }
        });
        prop_assert_eq!(with, without);
    }

    #[test]
    fn others_get_the_answer_of_an_unknown_path_over_http2(
        method in prop::sample::select(vec!["GET", "HEAD", "POST", "OPTIONS"]),
        path in prop::sample::select(PATHS.to_vec()),
        kind in prop::sample::select(KINDS.to_vec()),
        message in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let body = prefixed(&message);
        let [with, without] = both(|authority| {
            let body = body.clone();
            async move { http2(&authority, method, path, kind, body).await }
        });
        prop_assert_eq!(with, without);
    }

    #[test]
    fn others_get_the_answer_of_an_unknown_method(
        id in 0_u16..40,
        message in prop::collection::vec(any::<u8>(), 0..8),
        is_streaming in any::<bool>(),
    ) {
        let count = ProbeService::new(Probe::new().0).descriptor_len();
        prop_assume!(usize::from(id) >= count);
        let [with, without] = both(|authority| {
            let message = message.clone();
            async move { farcall(&authority, id, &message, is_streaming).await }
        });
        prop_assert_eq!(with, without);
    }
}

/// The length of a service's table of methods.
trait DescriptorLen {
    fn descriptor_len(&self) -> usize;
}

impl<S: farcall::Service> DescriptorLen for S {
    fn descriptor_len(&self) -> usize {
        self.descriptor().methods.len()
    }
}

/// Returns the status line and the rest of an answer to `GET path` with these headers.
async fn get(address: &str, path: &str, headers: &str) -> (String, String) {
    let authority = address.split_once("://").unwrap().1;
    let head = format!("GET {path} HTTP/1.1\r\n{headers}\r\n");
    let answer = within(http1(authority, &head, b"")).await;
    let (status, rest) = answer.split_once("\r\n").unwrap();
    (status.to_owned(), rest.to_owned())
}

#[tokio::test]
async fn pages_are_html_for_browsers_and_text_for_others() {
    let admin = Admin::loopback().metrics(|| "up 1\n".to_owned());
    let address = serve(probe(Server::builder().admin(admin)), "tcp://127.0.0.1:0").await;
    let stub = ProbeStub::new(connect(&address).await);
    within(stub.echo(EchoRequest::default())).await.unwrap();
    let browser = "host: localhost\r\naccept: text/html,*/*\r\n";
    let (status, page) = get(&address, "/debug/farcall", browser).await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(page.contains("content-security-policy: default-src 'none'; style-src"), "{page}");
    assert!(page.contains("<!doctype html>") && page.contains("<svg"), "{page}");
    assert!(page.contains("/farcall.suite.Probe/Echo") && !page.contains("<script"), "{page}");
    let (_, text) = get(&address, "/debug/farcall", "host: 127.0.0.1\r\naccept: */*\r\n").await;
    assert!(text.contains("== Connections\npeer") && !text.contains('<'), "{text}");
    let (_, metrics) = get(&address, "/metrics", "host: 127.0.0.1\r\n").await;
    assert!(metrics.ends_with("\r\n\r\nup 1\n"), "{metrics}");
}

#[tokio::test]
async fn pages_of_other_sites_do_not_reach_the_state() {
    let admin = Admin::loopback().metrics(|| "up 1\n".to_owned());
    let address = serve(probe(Server::builder().admin(admin)), "tcp://127.0.0.1:0").await;
    let rebound = "host: evil.example\r\naccept: text/html\r\n";
    let unknown = get(&address, "/unknown", rebound).await;
    assert_eq!(unknown.0, "HTTP/1.1 404 Not Found");
    for path in ["/debug/farcall", "/metrics"] {
        assert_eq!(get(&address, path, rebound).await, unknown, "{path}");
    }
    let authority = address.split_once("://").unwrap().1;
    let call = |path: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: evil.example\r\n\
             content-type: application/grpc-web\r\ncontent-length: 5\r\n\r\n"
        );
        async move { within(http1(authority, &head, &[0; 5])).await }
    };
    let admin = call("/farcall.admin.v1.Admin/GetSnapshot").await;
    let unknown = call("/farcall.admin.v1.Admin/GetUnknown1").await;
    assert_eq!(admin.replace("GetSnapshot", "GetUnknown1"), unknown);
}

/// Pages that may call the service may not read the server's state, also where an operator's
/// browser reaches the server at a loopback address.
#[tokio::test]
async fn pages_of_allowed_origins_do_not_reach_the_state() {
    let admin = Admin::loopback().metrics(|| "up 1\n".to_owned());
    let builder = Server::builder().grpc_web_origins(["*"]).admin(admin);
    let address = serve(probe(builder), "tcp://127.0.0.1:0").await;
    let page = "host: 127.0.0.1\r\norigin: https://app.example\r\n";
    let unknown = get(&address, "/unknown", page).await;
    for path in ["/debug/farcall", "/metrics"] {
        assert_eq!(get(&address, path, page).await, unknown, "{path}");
    }
    let authority = address.split_once("://").unwrap().1;
    let call = |path: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\n{page}\
             content-type: application/grpc-web\r\ncontent-length: 5\r\n\r\n"
        );
        async move { within(http1(authority, &head, &[0; 5])).await }
    };
    let admin = call("/farcall.admin.v1.Admin/GetSnapshot").await;
    let unknown = call("/farcall.admin.v1.Admin/GetUnknown1").await;
    assert_eq!(admin.replace("GetSnapshot", "GetUnknown1"), unknown);
}
