//! gRPC over TLS: tonic's clients at the port of a farcall server with TLS, and `grpcs://`.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farcall::metadata::{AsciiMetadataValue, MetadataMap};
use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{
    Channel, Code, Identity, Method, PeerInfo, Request, Response, Server, ServerBuilder, Status,
    async_trait,
};
use farcall_suite::OneServer as _;
use farcall_suite::interop_proto::test_service_client::TestServiceClient;
use farcall_suite::interop_proto::test_service_rpc::{TestServiceService, TestServiceStub};
use farcall_suite::interop_proto::test_service_server::{TestService, TestServiceServer};
use farcall_suite::interop_proto::{Empty, SimpleRequest, SimpleResponse};
use farcall_testkit::certificates::{Authority as Issuer, Leaf, Wanted};
use rpc_core::client::{ClientConfig, OpenStream as _};
use rpc_core::connect::Alpn;
use rpc_transport_tcp::TcpConnector;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, ClientTlsConfig as TonicTls, Endpoint, ServerTlsConfig as Of};

const LIMIT: Duration = Duration::from_secs(30);

/// Waits for something, within a bound.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// A certificate authority of the test's own, and what it says to either side.
struct Authority(Issuer);

impl Authority {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self(Issuer::new(&name).unwrap())
    }

    fn issue(&self, name: &str) -> Leaf {
        self.0.issue(Wanted::named(name)).unwrap()
    }

    fn pem(&self) -> Pem {
        Pem::bytes(self.0.pem())
    }

    fn server_config(&self) -> ServerTlsConfig {
        let Leaf { cert, key } = self.issue("127.0.0.1");
        ServerTlsConfig::new(Pem::bytes(cert), Pem::bytes(key))
    }

    /// A server that asks for no certificates.
    fn server(&self) -> ServerTls {
        ServerTls::new(self.server_config()).unwrap()
    }

    /// A server that requires certificates of this authority.
    fn mutual_server(&self) -> ServerTls {
        ServerTls::new(self.server_config().with_client_ca(self.pem())).unwrap()
    }

    /// A channel without a certificate.
    fn client(&self) -> ClientTls {
        ClientTls::new(ClientTlsConfig::default().with_ca(self.pem())).unwrap()
    }

    /// A channel with a certificate for `name`.
    fn client_of(&self, name: &str) -> ClientTls {
        let Leaf { cert, key } = self.issue(name);
        let config = ClientTlsConfig::default().with_ca(self.pem());
        ClientTls::new(config.with_cert(Pem::bytes(cert), Pem::bytes(key))).unwrap()
    }

    /// The TLS of tonic's client.
    fn tonic_client(&self) -> TonicTls {
        TonicTls::new().ca_certificate(Certificate::from_pem(self.0.pem()))
    }

    /// The same with a certificate for `name`.
    fn tonic_client_of(&self, name: &str) -> TonicTls {
        let Leaf { cert, key } = self.issue(name);
        self.tonic_client().identity(tonic::transport::Identity::from_pem(cert, key))
    }

    /// The TLS of tonic's server.
    fn tonic_server(&self) -> Of {
        let Leaf { cert, key } = self.issue("127.0.0.1");
        Of::new().identity(tonic::transport::Identity::from_pem(cert, key))
    }
}

/// Tells its callers who they are, and what token they carry.
#[derive(Debug, Clone, Default)]
struct Who {
    entered: Arc<Notify>,
    go_on: Arc<Notify>,
}

#[async_trait]
impl TestService for Who {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.entered.notify_one();
        self.go_on.notified().await;
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        // None behind tonic's server.
        let peer = PeerInfo::current();
        let identity = peer.as_ref().and_then(|peer| peer.addresses.identity());
        let transport = peer.as_ref().map_or("tonic", |peer| peer.transport);
        let caller = identity.map_or_else(|| "anonymous".to_owned(), ToString::to_string);
        let token = request.metadata().get("authorization");
        let token = token.and_then(|token| token.to_str().ok()).unwrap_or_default();
        let username = format!("{caller} over {transport}");
        let oauth_scope = token.to_owned();
        Ok(Response::new(SimpleResponse { username, oauth_scope, ..SimpleResponse::default() }))
    }
}

/// A server, and the way to shut it down.
struct Running {
    authority: String,
    shutdown: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

async fn serve_with(builder: ServerBuilder, service: Who) -> Running {
    let builder = builder.add_service(TestServiceService::new(service));
    let listener = builder.bind("tcp://127.0.0.1:0").await.unwrap();
    let authority = listener.local_address().to_string().replace("tcp://", "");
    let (shutdown, shut_down) = oneshot::channel();
    let serving = tokio::spawn(async move {
        listener.serve().with_graceful_shutdown(async { drop(shut_down.await) }).await.unwrap();
    });
    Running { authority, shutdown, serving }
}

async fn serve(builder: ServerBuilder) -> Running {
    serve_with(builder, Who::default()).await
}

/// Serves with tonic's own server.
async fn serve_by_tonic(tls: Option<Of>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let mut server = tonic::transport::Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).unwrap();
    }
    let router = server.add_service(TestServiceServer::new(Who::default()));
    tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
    authority
}

type TonicClient = TestServiceClient<tonic::transport::Channel>;

async fn try_tonic(
    running: &Running,
    tls: TonicTls,
) -> Result<TonicClient, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("https://{}", running.authority)).unwrap();
    Ok(TestServiceClient::new(within(endpoint.tls_config(tls).unwrap().connect()).await?))
}

async fn tonic(running: &Running, tls: TonicTls) -> TonicClient {
    try_tonic(running, tls).await.expect("it has TLS")
}

async fn who(client: &mut TonicClient) -> Result<String, Status> {
    Ok(within(client.unary_call(SimpleRequest::default())).await?.into_inner().username)
}

/// The same by a channel.
async fn who_by(channel: &Channel) -> Result<SimpleResponse, Status> {
    let stub = TestServiceStub::new(channel.clone());
    Ok(within(stub.unary_call(SimpleRequest::default())).await?.into_inner())
}

async fn connect(address: &str, tls: &ClientTls) -> Result<Channel, farcall::ConnectError> {
    within(Channel::builder(address).unwrap().tls(tls).connect()).await
}

async fn refused(address: &str, tls: &ClientTls) -> String {
    connect(address, tls).await.expect_err("there is no connection").to_string()
}

#[tokio::test]
async fn tonics_clients_call_the_port_over_tls_beside_farcalls() {
    let authority = Authority::new();
    let running = serve(Server::builder().tls(&authority.server())).await;
    let mut client = tonic(&running, authority.tonic_client()).await;
    assert_eq!(who(&mut client).await.unwrap(), "anonymous over grpc");
    let farcalls = connect(&format!("tcp://{}", running.authority), &authority.client()).await;
    assert_eq!(who_by(&farcalls.unwrap()).await.unwrap().username, "anonymous over tls");
    assert_eq!(who(&mut client).await.unwrap(), "anonymous over grpc");
}

#[tokio::test]
async fn a_handler_sees_who_calls_over_mutual_tls() {
    let authority = Authority::new();
    let running = serve(Server::builder().tls(&authority.mutual_server())).await;
    let mut client = tonic(&running, authority.tonic_client_of("a.example")).await;
    assert_eq!(who(&mut client).await.unwrap(), "a.example over grpc");
    // TLS 1.3 tells a client of it with the first answer.
    let refused = match try_tonic(&running, authority.tonic_client()).await {
        Ok(mut client) => who(&mut client).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "it presented no certificate");
}

#[tokio::test]
async fn rules_of_access_hold_for_clients_of_grpc() {
    let authority = Authority::new();
    let builder = Server::builder().tls(&authority.mutual_server());
    let rule = |identity: &Identity, _: &str| identity.has_name("a.example");
    let running = serve(builder.authorize(rule)).await;
    let mut allowed = tonic(&running, authority.tonic_client_of("a.example")).await;
    assert_eq!(who(&mut allowed).await.unwrap(), "a.example over grpc");
    let mut denied = tonic(&running, authority.tonic_client_of("b.example")).await;
    let status = who(&mut denied).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert_eq!(status.message(), "b.example may not call /grpc.testing.TestService/UnaryCall");
}

#[tokio::test]
async fn a_shutdown_answers_tls_calls_in_flight() {
    let (authority, service) = (Authority::new(), Who::default());
    let builder = Server::builder().tls(&authority.server()).max_calls(1);
    let running = serve_with(builder, service.clone()).await;
    let mut client = tonic(&running, authority.tonic_client()).await;
    let mut second = tonic(&running, authority.tonic_client()).await;
    let call = tokio::spawn(async move { client.empty_call(Empty {}).await });
    within(service.entered.notified()).await;
    // The server's limits hold over TLS.
    assert_eq!(who(&mut second).await.unwrap_err().code(), Code::ResourceExhausted);
    running.shutdown.send(()).unwrap();
    service.go_on.notify_one();
    within(call).await.unwrap().unwrap();
    drop(second);
    within(running.serving).await.unwrap();
}

#[tokio::test]
async fn grpcs_calls_tonics_server_and_the_port() {
    let authority = Authority::new();
    let ca = Certificate::from_pem(authority.0.pem());
    let tonics = serve_by_tonic(Some(authority.tonic_server().client_ca_root(ca))).await;
    let ours = serve(Server::builder().tls(&authority.mutual_server())).await;
    let tls = authority.client_of("a.example");
    for (address, expected) in
        [(&tonics, "anonymous over tonic"), (&ours.authority, "a.example over grpc")]
    {
        let builder = Channel::builder(format!("grpcs://{address}")).unwrap().tls(&tls);
        let channel = within(builder.require_encryption(true).connect()).await.unwrap();
        assert_eq!(channel.path().transport(), Some("grpc"));
        assert_eq!(who_by(&channel).await.unwrap().username, expected);
        let tls = channel.info().unwrap().addresses.tls.expect("it has TLS");
        assert_eq!(tls.protocol, Some("h2"));
        assert!(tls.identity.as_ref().is_some_and(|server| server.dns_names().is_empty()));
    }
    // A list of such servers, each checked with its own name.
    let list = format!("grpcs://{tonics},{}", ours.authority);
    let channel = connect(&list, &tls).await.unwrap();
    who_by(&channel).await.unwrap();
}

#[tokio::test]
async fn credentials_go_over_grpcs_and_not_over_grpc() {
    let authority = Authority::new();
    let running = serve(Server::builder().tls(&authority.server())).await;
    let credentials = |_: &Method, metadata: &mut MetadataMap| {
        metadata.insert("authorization", AsciiMetadataValue::from_static("token"));
        Ok::<_, Status>(())
    };
    let builder = Channel::builder(format!("grpcs://{}", running.authority)).unwrap();
    let builder = builder.tls(&authority.client()).call_credentials(credentials);
    let channel = within(builder.connect()).await.unwrap();
    assert_eq!(who_by(&channel).await.unwrap().oauth_scope, "token");
    let plain = Channel::builder(format!("grpc://{}", running.authority)).unwrap();
    let refused = within(plain.clone().call_credentials(credentials).connect()).await.unwrap_err();
    assert!(refused.to_string().contains("calls carry credentials"), "{refused}");
    let refused = within(plain.require_encryption(true).connect()).await.unwrap_err();
    assert!(refused.to_string().contains("require_encryption is set"), "{refused}");
}

#[tokio::test]
async fn a_channel_to_grpcs_reads_its_files_again() {
    let (authority, other) = (Authority::new(), Authority::new());
    let running = serve(Server::builder().tls(&authority.server())).await;
    let file = std::env::temp_dir().join(format!("farcall-grpcs-{}.pem", std::process::id()));
    std::fs::write(&file, other.0.pem()).unwrap();
    let tls = ClientTls::new(ClientTlsConfig::default().with_ca(&*file)).unwrap();
    let address = format!("grpcs://{}", running.authority);
    let text = refused(&address, &tls).await;
    let expected = format!("the TLS handshake with {address} failed: the server's certificate");
    assert!(text.starts_with(&expected), "{text}");
    std::fs::write(&file, authority.0.pem()).unwrap();
    tls.reload().unwrap();
    std::fs::remove_file(&file).unwrap();
    who_by(&connect(&address, &tls).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_server_with_tls_and_no_grpc_is_told_by_name() {
    let authority = Authority::new();
    let running = serve(Server::builder().grpc_clients(false).tls(&authority.server())).await;
    let text = refused(&format!("grpcs://{}", running.authority), &authority.client()).await;
    assert!(text.ends_with("the server speaks TLS, but not gRPC over it (ALPN h2)"), "{text}");
    // A server of gRPC where one of farcall is expected.
    let tonics = serve_by_tonic(Some(authority.tonic_server())).await;
    let text = refused(&format!("tcp://{tonics}"), &authority.client()).await;
    assert!(text.ends_with("but not farcall over it (ALPN farcall/1)"), "{text}");
}

#[tokio::test]
async fn tls_on_one_side_alone_is_told_by_name() {
    let authority = Authority::new();
    let with_tls = serve(Server::builder().tls(&authority.server())).await;
    let without = serve(Server::builder()).await;
    // HTTP/2 without TLS, at a port with it.
    let endpoint = Endpoint::from_shared(format!("http://{}", with_tls.authority)).unwrap();
    let refused_call = match within(endpoint.connect()).await {
        Ok(channel) => {
            who(&mut TestServiceClient::new(channel)).await.map_err(|it| format!("{it:?}"))
        }
        Err(error) => Err(format!("{error:?}")),
    };
    let text = refused_call.unwrap_err();
    assert!(text.contains("this port requires TLS"), "{text}");
    let refused_plain = within(Channel::connect(format!("grpc://{}", with_tls.authority))).await;
    let text = refused_plain.unwrap_err().to_string();
    let expected = "the server refused the connection (GOAWAY): for a port with TLS, write \
                    grpcs://";
    assert!(text.ends_with(expected), "{text}");
    // HTTP/1.
    let mut stream = TcpStream::connect(&with_tls.authority).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("TLS\n"), "{answer}");
    // TLS, at a port without it.
    let text = refused(&format!("grpcs://{}", without.authority), &authority.client()).await;
    assert!(text.ends_with(
        "the server speaks farcall without TLS: remove `tls` from this channel, or \
                        set it on the server"
    ));
    assert!(try_tonic(&without, authority.tonic_client()).await.is_err());
    let tonics = serve_by_tonic(None).await;
    let text = refused(&format!("grpcs://{tonics}"), &authority.client()).await;
    assert!(text.contains("the server speaks HTTP/2 without TLS: "), "{text}");
}

/// A middleman could else have a client's bytes taken for another protocol's.
#[tokio::test]
async fn a_client_that_agrees_on_grpc_and_speaks_farcall_is_refused() {
    let authority = Authority::new();
    let running = serve(Server::builder().tls(&authority.server())).await;
    let connector = TcpConnector::new(&*running.authority, ClientConfig::default());
    let connector = connector.with_tls(authority.client(), None).with_protocol(Alpn::GRPC);
    let refused = within(rpc_core::Channel::connect(connector)).await.unwrap_err().to_string();
    assert!(refused.contains("closed the connection"), "{refused}");
}

/// The point at which a client falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// The head of a record of TLS.
    HalfARecord,
    /// Its TLS handshake, and that it speaks gRPC.
    Handshake,
    /// The first bytes of HTTP/2 over TLS as well: too few to tell it.
    HalfThePreface,
    /// The preface of HTTP/2 over TLS, without the SETTINGS that belong behind it.
    Preface,
}

/// A client that has said so much, and what the server says to it up to the end.
async fn stalled(authority: &str, tls: ClientTls, said: Said) {
    if said == Said::HalfARecord {
        let mut stream = TcpStream::connect(authority).await.unwrap();
        stream.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        return;
    }
    let connector = TcpConnector::new(authority, ClientConfig::default());
    let connector = connector.with_tls(tls, None).with_protocol(Alpn::GRPC);
    let mut stream = connector.open_stream().await.unwrap();
    stream.open().await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let sent = match said {
        Said::HalfThePreface => &preface[..4],
        Said::Preface => preface,
        Said::Handshake | Said::HalfARecord => &[],
    };
    stream.write_all(sent).await.unwrap();
    stream.flush().await.unwrap();
    // An end, or a stream that breaks: the server does not keep it.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn half_open_clients_are_held_to_the_bound_on_handshakes() {
    let authority = Authority::new();
    let builder = Server::builder().tls(&authority.server());
    let running = serve(builder.handshake_timeout(Duration::from_millis(200))).await;
    let all = [Said::HalfARecord, Said::Handshake, Said::HalfThePreface, Said::Preface];
    let stalled = all.map(|said| stalled(&running.authority, authority.client(), said));
    let all_stalled = futures::future::join_all(stalled);
    let others = async {
        let mut client = tonic(&running, authority.tonic_client()).await;
        assert_eq!(who(&mut client).await.unwrap(), "anonymous over grpc");
        client
    };
    let (_, mut client) = within(futures::future::join(all_stalled, others)).await;
    assert_eq!(who(&mut client).await.unwrap(), "anonymous over grpc", "it is not a half-open one");
}

/// Bytes that come one by one do not stretch the bound.
#[tokio::test]
async fn slow_clients_are_held_to_the_bound_on_handshakes() {
    let authority = Authority::new();
    let timeout = Duration::from_millis(200);
    let with_tls = Server::builder().tls(&authority.server()).handshake_timeout(timeout);
    let (with_tls, without) =
        (serve(with_tls).await, serve(Server::builder().handshake_timeout(timeout)).await);
    // A record of 16 KiB, and a head of HTTP/1 that has no end.
    let record = [&[22, 3, 1, 64, 0][..], &[1; 16 << 10]].concat();
    let head = [&b"GET /healthz HTTP/1.1\r\na: "[..], &[b'b'; 16 << 10]].concat();
    for (running, said) in [(with_tls, record), (without, head)] {
        let stream = TcpStream::connect(&running.authority).await.unwrap();
        let (mut reading, mut writing) = stream.into_split();
        let slowly = async {
            for byte in said {
                if writing.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let mut answer = Vec::new();
        let ended = async {
            tokio::select! {
                () = slowly => {}
                _ = reading.read_to_end(&mut answer) => {}
            }
        };
        within(ended).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
    }
}
