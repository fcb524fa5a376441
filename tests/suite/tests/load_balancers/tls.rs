//! TLS that a load balancer ends, and that agrees on no protocol (ALPN).

use farcall::tls::{AlpnPolicy, ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{Channel, Server};
use farcall_testkit::certificates::{Authority, Wanted};

use super::balancer::Balancer;
use super::{address_seen, address_seen_by_grpc, serve, within};

fn server_tls(authority: &Authority, policy: AlpnPolicy) -> ServerTls {
    let leaf = authority.issue(Wanted::named("127.0.0.1")).unwrap();
    let config = ServerTlsConfig::new(Pem::bytes(leaf.cert), Pem::bytes(leaf.key));
    ServerTls::new(config.with_alpn(policy)).unwrap()
}

async fn connect(
    address: &str,
    authority: &Authority,
    policy: AlpnPolicy,
) -> Result<Channel, farcall::ConnectError> {
    let config = ClientTlsConfig::default().with_ca(Pem::bytes(authority.pem()));
    let tls = ClientTls::new(config.with_alpn(policy)).unwrap();
    within(Channel::builder(address).unwrap().tls(&tls).connect()).await
}

/// The load balancer's clients have no TLS, and its server has: no protocol is agreed on.
#[tokio::test]
async fn a_server_accepts_tls_without_alpn_where_it_is_optional() {
    let authority = Authority::new("a").unwrap();
    for (policy, is_accepted) in [(AlpnPolicy::Optional, true), (AlpnPolicy::Required, false)] {
        let server = serve(Server::builder().tls(&server_tls(&authority, policy))).await;
        let balancer = Balancer::default().encrypting(&authority).start(&server).await;
        assert_eq!(address_seen_by_grpc(&balancer).await.is_ok(), is_accepted);
        for scheme in ["tcp", "grpc"] {
            let channel = within(Channel::connect(format!("{scheme}://{balancer}"))).await;
            let called = match &channel {
                Ok(channel) => address_seen(channel).await.is_ok(),
                Err(_) => false,
            };
            assert_eq!(called, is_accepted, "{scheme}");
        }
        // Clients that do agree are served as before.
        for scheme in ["tcp", "grpcs"] {
            let address = format!("{scheme}://{server}");
            let channel = connect(&address, &authority, AlpnPolicy::Required).await.unwrap();
            address_seen(&channel).await.unwrap();
        }
    }
}

/// The load balancer ends its clients' TLS, and its server has none.
#[tokio::test]
async fn a_channel_accepts_tls_without_alpn_where_it_is_optional() {
    let authority = Authority::new("a").unwrap();
    let server = serve(Server::builder()).await;
    let balancer = Balancer::default().ending_tls(&authority).start(&server).await;
    for (scheme, id) in [("tcp", "farcall/1"), ("grpcs", "h2")] {
        let address = format!("{scheme}://{balancer}");
        let channel = connect(&address, &authority, AlpnPolicy::Optional).await.unwrap();
        address_seen(&channel).await.unwrap();
        let refused = connect(&address, &authority, AlpnPolicy::Required).await.unwrap_err();
        let expected = format!(
            "the server negotiated no protocol in the TLS handshake (ALPN {id}): something such \
             as a load balancer terminates TLS in between; accept that with tls.alpn = \
             \"optional\" on the channel"
        );
        assert!(refused.to_string().ends_with(&expected), "{refused}");
    }
}

/// A network load balancer with TLS on both sides, and the header of the client behind it.
#[tokio::test]
async fn tls_that_ends_on_the_way_keeps_the_header() {
    let authority = Authority::new("a").unwrap();
    let tls = server_tls(&authority, AlpnPolicy::Optional);
    let server = serve(Server::builder().tls(&tls).proxy_protocol(["127.0.0.1"])).await;
    let balancer = Balancer::saying(b"PROXY TCP4 192.0.2.1 192.0.2.9 7 443\r\n");
    let balancer = balancer.ending_tls(&authority).encrypting(&authority).start(&server).await;
    for scheme in ["tcp", "grpcs"] {
        let address = format!("{scheme}://{balancer}");
        let channel = connect(&address, &authority, AlpnPolicy::Optional).await.unwrap();
        assert_eq!(address_seen(&channel).await.unwrap(), "192.0.2.1:7", "{scheme}");
    }
}
