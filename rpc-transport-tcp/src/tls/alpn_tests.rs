//! What the two ends of a TLS session agree to speak.

use rpc_core::connect::{Alpn, HandshakeError};
use rpc_core::transport::TlsInfo;

use super::pair::Both;
use crate::connection::socket::Socket as _;

/// What both sides say of a handshake: the server first.
async fn handshake(server: &[Alpn], client: &[Alpn]) -> [Result<TlsInfo, String>; 2] {
    let [mut client, mut server] = Both::new().ends(server, client).await.unwrap();
    let (opened, accepted) = tokio::join!(client.open(), server.open());
    [accepted, opened].map(|info| match info {
        Ok(info) => Ok(info.expect("it has TLS")),
        Err(HandshakeError::Tls { reason }) => Err(reason),
        Err(error) => panic!("{error}"),
    })
}

#[tokio::test]
async fn both_sides_know_what_was_agreed_on() {
    for protocol in [Alpn::FARCALL, Alpn::GRPC] {
        for info in handshake(&[Alpn::FARCALL, Alpn::GRPC], &[protocol]).await {
            assert_eq!(info.unwrap().protocol(), Some(protocol.id));
        }
    }
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_told_by_name() {
    let [server, client] = handshake(&[Alpn::FARCALL], &[Alpn::GRPC]).await;
    let words = "the client speaks TLS, and not farcall over it (ALPN farcall/1)";
    assert_eq!(server.unwrap_err(), words);
    assert_eq!(client.unwrap_err(), "the server speaks TLS, and not gRPC over it (ALPN h2)");
    let other = Alpn { id: "other/7", name: "other" };
    let [server, _] = handshake(&[Alpn::FARCALL, Alpn::GRPC], &[other]).await;
    let words = "the client speaks TLS, and not farcall or gRPC over it (ALPN farcall/1, h2)";
    assert_eq!(server.unwrap_err(), words);
}

/// Such a server leaves it open what is spoken.
#[tokio::test]
async fn a_server_without_alpn_is_not_taken_for_one_of_grpc() {
    let [_, client] = handshake(&[], &[Alpn::GRPC]).await;
    assert_eq!(client.unwrap_err(), "the server speaks TLS, and not gRPC over it (ALPN h2)");
}

#[tokio::test]
async fn a_client_without_alpn_speaks_http1_where_a_server_does() {
    let [server, _] = handshake(&[Alpn::FARCALL, Alpn::HTTP1], &[]).await;
    assert_eq!(server.unwrap().protocol(), Some("http/1.1"));
    let [server, _] = handshake(&[Alpn::FARCALL], &[]).await;
    let words = "the client speaks TLS, and not farcall over it (ALPN farcall/1)";
    assert_eq!(server.unwrap_err(), words);
}
