//! RDMA that is agreed on over TLS.

use std::net::Ipv4Addr;

use bytes::Bytes;
use farcall::sim::SimNetwork;
use farcall::{ConnectionInfo, Rdma, RdmaConfig, Server};

use crate::authority::{Authority, named};
use crate::service::{Tls, builder, echo, serve_at, who};

#[tokio::test]
async fn the_peer_that_tls_has_verified_is_the_peer_over_rdma() {
    let authority = Authority::new();
    let network = SimNetwork::new(7);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    let rdma = || {
        let config = RdmaConfig::default().with_allow_untrusted_reads(true);
        Rdma::simulated(&network, config)
    };
    let listening = Server::builder().tls(&authority.mutual_server()).rdma(&rdma());
    let server = serve_at(listening, "rdma://127.0.0.1:0").await;
    let tls = authority.client_with(named("billing.example"));
    let channel = builder(&server.address).tls(&tls).rdma(&rdma()).connect().await.unwrap();
    assert_eq!(channel.path().to_string(), "rdma");
    assert_eq!(who(&channel).await.unwrap(), "billing.example");
    let payload = Bytes::from(vec![7; 1 << 20]);
    assert!(echo(&channel, payload.clone()).await.unwrap() == payload);
    let names = |info: &ConnectionInfo| info.addresses.identity().map(ToString::to_string);
    let connections = server.server.connections();
    assert_eq!(connections[0].transport, "rdma");
    assert_eq!(names(&connections[0]).as_deref(), Some("billing.example"));
    drop(channel);
}

#[tokio::test]
async fn required_encryption_leaves_rdma_out() {
    let authority = Authority::new();
    let network = SimNetwork::new(7);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    let rdma = || Rdma::simulated(&network, RdmaConfig::default());
    let strict = || Server::builder().require_encryption(true).rdma(&rdma());
    let refused = strict().build().bind("auto://127.0.0.1:0").await.unwrap_err();
    assert!(refused.to_string().contains("require_encryption"), "{refused}");

    let server = strict().tls(&authority.server()).add_service(Tls::default());
    let address = serve_at(server, "auto://127.0.0.1:0").await.address;
    let tls = authority.client();
    let channel = builder(&address).tls(&tls).rdma(&rdma()).connect().await.unwrap();
    assert_eq!(who(&channel).await.unwrap(), "anonymous");
    let path = channel.path().to_string();
    assert!(path.contains("require_encryption"), "{path}");
}
