//! The protocol that the two ends of a TLS session agree on.

use rpc_core::connect::{Alpn, HandshakeError};
use rpc_core::transport::TlsInfo;

use super::AlpnPolicy;
use super::pair::Both;
use crate::connection::socket::Socket as _;

/// Returns the results of a handshake on both sides, the server's first.
async fn handshake(server: &[Alpn], client: &[Alpn]) -> [Result<TlsInfo, String>; 2] {
    handshake_under(AlpnPolicy::Required, server, client).await
}

async fn handshake_under(
    policy: AlpnPolicy,
    server: &[Alpn],
    client: &[Alpn],
) -> [Result<TlsInfo, String>; 2] {
    let [mut client, mut server] = Both::with_alpn(policy).ends(server, client).await.unwrap();
    let (opened, accepted) = tokio::join!(client.open(), server.open());
    [accepted, opened].map(|info| match info {
        Ok(info) => Ok(info.expect("it has TLS")),
        Err(HandshakeError::Tls { reason }) => Err(reason),
        Err(error) => panic!("{error}"),
    })
}

#[tokio::test]
async fn both_sides_know_the_negotiated_protocol() {
    for protocol in [Alpn::FARCALL, Alpn::GRPC] {
        for info in handshake(&[Alpn::FARCALL, Alpn::GRPC], &[protocol]).await {
            assert_eq!(info.unwrap().protocol, Some(protocol.id));
        }
    }
}

#[tokio::test]
async fn an_unsupported_protocol_is_reported_by_name() {
    let [server, client] = handshake(&[Alpn::FARCALL], &[Alpn::GRPC]).await;
    let message = "the client speaks TLS, but not farcall over it (ALPN farcall/1)";
    assert_eq!(server.unwrap_err(), message);
    assert_eq!(client.unwrap_err(), "the server speaks TLS, but not gRPC over it (ALPN h2)");
    let other = Alpn { id: "other/7", name: "other" };
    let [server, _] = handshake(&[Alpn::FARCALL, Alpn::GRPC], &[other]).await;
    let message = "the client speaks TLS, but not farcall or gRPC over it (ALPN farcall/1, h2)";
    assert_eq!(server.unwrap_err(), message);
}

/// Such a server does not reveal its protocol.
#[tokio::test]
async fn a_server_without_alpn_is_refused_unless_it_is_optional() {
    let [_, client] = handshake(&[], &[Alpn::GRPC]).await;
    let message = "the server negotiated no protocol in the TLS handshake (ALPN h2): something \
                   such as a load balancer terminates TLS in between; accept that with tls.alpn = \
                   \"optional\" on the channel";
    assert_eq!(client.unwrap_err(), message);
    let [_, client] = handshake_under(AlpnPolicy::Optional, &[], &[Alpn::GRPC]).await;
    assert_eq!(client.unwrap().protocol, None);
}

#[tokio::test]
async fn a_client_without_alpn_speaks_http1_unless_it_is_optional() {
    let [server, _] = handshake(&[Alpn::FARCALL, Alpn::HTTP1], &[]).await;
    assert_eq!(server.unwrap().protocol, Some("http/1.1"));
    let [server, _] = handshake(&[Alpn::FARCALL], &[]).await;
    let message = "the client negotiated no protocol in the TLS handshake (ALPN farcall/1): \
                   something such as a load balancer terminates TLS in between; accept that with \
                   tls.alpn = \"optional\" on the server";
    assert_eq!(server.unwrap_err(), message);
    for protocols in [&[Alpn::FARCALL, Alpn::HTTP1][..], &[Alpn::FARCALL]] {
        let [server, _] = handshake_under(AlpnPolicy::Optional, protocols, &[]).await;
        assert_eq!(server.unwrap().protocol, None);
    }
}

/// If both sides offer protocols, they must still agree.
#[tokio::test]
async fn optional_alpn_accepts_no_other_protocol() {
    let [server, client] =
        handshake_under(AlpnPolicy::Optional, &[Alpn::FARCALL], &[Alpn::GRPC]).await;
    assert!(server.unwrap_err().contains("not farcall over it"));
    assert!(client.unwrap_err().contains("not gRPC over it"));
}
