//! Clients behind a load balancer that says who they are.

use std::net::SocketAddr;
use std::time::Duration;

use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{Channel, Code, ServeErrorKind, Server};
use farcall_suite::interop_proto::Empty;
use farcall_suite::interop_proto::test_service_rpc::TestServiceStub;
use farcall_testkit::certificates::{Authority, Wanted};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::balancer::{Balancer, binary, line, raw};
use super::{Where, address_seen, address_seen_by_grpc, serve, serve_with, within};

const V4: &str = "192.0.2.1:51234";
const V6: &str = "[2001:db8::1]:51234";

fn client(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn behind_loopback() -> farcall::ServerBuilder {
    Server::builder().proxy_protocol(["127.0.0.0/8"])
}

async fn connect(authority: &str) -> Result<Channel, farcall::ConnectError> {
    within(Channel::connect(format!("tcp://{authority}"))).await
}

#[tokio::test]
async fn handlers_see_the_client_behind_the_proxy() {
    let server = serve(behind_loopback()).await;
    for text in [V4, V6] {
        let client = client(text);
        for header in [line(client), binary(client)] {
            let balancer = Balancer::saying(header).start(&server).await;
            let channel = connect(&balancer).await.unwrap();
            assert_eq!(address_seen(&channel).await.unwrap(), text);
            assert_eq!(address_seen_by_grpc(&balancer).await.unwrap(), text);
        }
    }
}

#[tokio::test]
async fn tls_passes_behind_a_header() {
    let authority = Authority::new("a").unwrap();
    let leaf = authority.issue(Wanted::named("127.0.0.1")).unwrap();
    let config = ServerTlsConfig::new(Pem::bytes(leaf.cert), Pem::bytes(leaf.key));
    let server = serve(behind_loopback().tls(&ServerTls::new(config).unwrap())).await;
    let balancer = Balancer::saying(binary(client(V4))).start(&server).await;
    let config = ClientTlsConfig::default().with_ca(Pem::bytes(authority.pem()));
    let tls = ClientTls::new(config).unwrap();
    for scheme in ["tcp", "grpcs", "auto"] {
        let builder = Channel::builder(format!("{scheme}://{balancer}")).unwrap().tls(&tls);
        let channel = within(builder.connect()).await.unwrap();
        assert_eq!(address_seen(&channel).await.unwrap(), V4, "{scheme}");
    }
}

#[tokio::test]
async fn a_header_without_a_client_leaves_the_proxy() {
    let server = serve(behind_loopback()).await;
    let headers = [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY UNKNOWN fe80::1 fe80::2 1 2\r\n".to_vec(),
        raw(0, 0x00, &[]),
        raw(0, 0x11, &[7; 12]),
        raw(1, 0x00, &[]),
        raw(1, 0x31, &[b'/'; 216]),
    ];
    for header in headers {
        let balancer = Balancer::saying(header).start(&server).await;
        let seen = address_seen(&connect(&balancer).await.unwrap()).await.unwrap();
        assert!(seen.starts_with("127.0.0.1:"), "{seen}");
    }
}

#[tokio::test]
async fn connections_are_limited_by_the_client_behind_the_proxy() {
    let builder = behind_loopback().max_connections_per_peer(1);
    let (server, authority) = serve_with(builder, Where::default()).await;
    let balancer = |text| Balancer::saying(binary(client(text))).start(&authority);
    let (first, second) = (balancer(V4).await, balancer("192.0.2.2:1").await);
    let channels = [connect(&first).await.unwrap(), connect(&second).await.unwrap()];
    assert!(connect(&first).await.is_err(), "that client has its connection");
    for channel in &channels {
        address_seen(channel).await.unwrap();
    }
    let peers = server.connections().into_iter().map(|info| info.addresses.peer.unwrap());
    let mut peers: Vec<String> = peers.map(|peer| peer.to_string()).collect();
    peers.sort();
    assert_eq!(peers, [V4, "192.0.2.2:1"]);
}

#[tokio::test]
async fn calls_are_limited_by_the_client_behind_the_proxy() {
    let service = Where::default();
    let builder = behind_loopback().max_calls_per_peer(1);
    let (_, authority) = serve_with(builder, service.clone()).await;
    let balancer = |text| Balancer::saying(line(client(text))).start(&authority);
    let first = connect(&balancer("192.0.2.1:1").await).await.unwrap();
    let same = connect(&balancer("192.0.2.1:2").await).await.unwrap();
    let other = connect(&balancer("192.0.2.2:1").await).await.unwrap();
    let stub = TestServiceStub::new(first);
    let held = tokio::spawn(async move { stub.empty_call(Empty {}).await });
    within(service.entered.notified()).await;
    let refused = address_seen(&same).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert_eq!(address_seen(&other).await.unwrap(), "192.0.2.2:1");
    service.go_on.notify_one();
    within(held).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_header_from_elsewhere_is_refused() {
    for builder in [Server::builder(), Server::builder().proxy_protocol(["192.0.2.0/24"])] {
        let server = serve(builder).await;
        for header in [line(client(V4)), binary(client(V4))] {
            let balancer = Balancer::saying(header).start(&server).await;
            connect(&balancer).await.unwrap_err();
        }
        address_seen(&connect(&server).await.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_proxy_without_a_header_is_refused() {
    let server = serve(behind_loopback()).await;
    connect(&server).await.unwrap_err();
    address_seen_by_grpc(&server).await.unwrap_err();
    // Each costs its own connection alone.
    let headers: [&[u8]; 4] =
        [b"PROXY", b"PROXY TCP4 x\r\n", b"\r\n\r\n\0\r\nQUIT\n\x31\0\0\0", &[0]];
    for header in headers {
        let mut stream = TcpStream::connect(&server).await.unwrap();
        stream.write_all(header).await.unwrap();
        stream.shutdown().await.unwrap();
        let _ = within(stream.read_to_end(&mut Vec::new())).await;
    }
    let balancer = Balancer::saying(line(client(V4))).start(&server).await;
    assert_eq!(address_seen(&connect(&balancer).await.unwrap()).await.unwrap(), V4);
}

/// A header that does not come is bounded like a handshake, and holds up no other connection.
#[tokio::test]
async fn proxies_that_stall_are_bounded_and_hold_up_no_other() {
    let timeout = Duration::from_millis(200);
    let server = serve(behind_loopback().handshake_timeout(timeout)).await;
    let begun = binary(client(V4));
    let mut stalled = Vec::new();
    for begin in [&b""[..], b"PROXY TCP4 192", &begun[..13], &begun[..40]] {
        let mut stream = TcpStream::connect(&server).await.unwrap();
        stream.write_all(begin).await.unwrap();
        stalled.push(stream);
    }
    let balancer = Balancer::saying(line(client(V4))).start(&server).await;
    let channel = connect(&balancer).await.unwrap();
    for mut stream in stalled {
        let _ = within(stream.read_to_end(&mut Vec::new())).await;
    }
    assert_eq!(address_seen(&channel).await.unwrap(), V4);
}

#[tokio::test]
async fn addresses_without_tcp_have_no_proxy_protocol() {
    for address in ["unix://@farcall-suite-proxied", "inproc://proxied"] {
        let refused = behind_loopback().bind(address).await.unwrap_err();
        assert_eq!(refused.kind(), ServeErrorKind::Settings, "{refused}");
        let expected = format!("cannot listen on {address}: proxy_protocol needs TCP");
        assert!(refused.to_string().starts_with(&expected), "{refused}");
    }
    let (_, ours) = tokio::io::duplex(1000);
    let incoming = futures::stream::iter([Ok::<_, std::io::Error>(ours)]);
    let refused = behind_loopback().build().serve_incoming(incoming).await.unwrap_err();
    assert!(
        refused.to_string().contains("proxy_protocol does not work for byte streams"),
        "{refused}"
    );
}

#[test]
#[should_panic(expected = "proxy_protocol.from is \"10.0.0.0/33\": a network such as")]
fn a_network_that_is_none_panics_where_it_is_set() {
    let _ = Server::builder().proxy_protocol(["10.0.0.0/33"]);
}
