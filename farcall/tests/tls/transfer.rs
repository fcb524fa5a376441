//! Calls of all sizes over TLS, and who made them.

use bytes::Bytes;
use farcall::{Path, Server};

use crate::authority::{Authority, named};
use crate::service::{builder, echo, serve, sum, who};

#[tokio::test]
async fn calls_of_every_kind_and_size_go_over_tls() {
    let authority = Authority::new();
    let max = 64 << 20;
    let server = serve(Server::builder().tls(&authority.server()).max_message_len(max)).await;
    let channel = builder(&server.address).tls(&authority.client()).max_message_len(max);
    let channel = channel.connect().await.unwrap();
    assert_eq!(channel.path(), Path::Direct { transport: "tls" });
    for len in [0, 1, 100, 4 << 10, 16 << 10, (16 << 10) + 1, 100_000, 1 << 20, (17 << 20) + 3] {
        let payload = Bytes::from(payload_of(len));
        assert!(echo(&channel, payload.clone()).await.unwrap() == payload, "{len} bytes differ");
    }
    assert_eq!(sum(&channel, 10_000).await.unwrap(), 10_000 * 9_999 / 2);
    assert_eq!(who(&channel).await.unwrap(), "anonymous");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once_share_a_tls_connection() {
    let authority = Authority::new();
    let server = serve(Server::builder().tls(&authority.server())).await;
    let channel = builder(&server.address).tls(&authority.client()).connect().await.unwrap();
    let calls = (0..200_usize).map(|number| {
        let channel = channel.clone();
        tokio::spawn(async move {
            let payload = Bytes::from(payload_of(number * 977));
            for _ in 0..5 {
                assert!(echo(&channel, payload.clone()).await.unwrap() == payload);
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(server.server.connections().len(), 1);
}

#[tokio::test]
async fn a_handler_and_the_list_of_connections_know_the_client() {
    let authority = Authority::new();
    let server = serve(Server::builder().tls(&authority.mutual_server())).await;
    let identity = named("billing.example").with_uri("spiffe://example.org/billing");
    let tls = authority.client_with(identity);
    let channel = builder(&server.address).tls(&tls).connect().await.unwrap();
    assert_eq!(who(&channel).await.unwrap(), "spiffe://example.org/billing");
    let info = server.server.connections().remove(0);
    let client = info.addresses.identity().unwrap();
    assert_eq!(client.dns_names(), ["billing.example"]);
    assert_eq!(client.uris(), ["spiffe://example.org/billing"]);
    assert!(client.certificate().starts_with(&[0x30]), "it is DER");
    // The channel knows the server in the same way.
    let info = channel.endpoints().into_iter().find_map(|it| it.info).unwrap();
    assert!(info.addresses.identity().unwrap().dns_names().is_empty(), "it has an address alone");
}

/// Bytes without a pattern, from a fixed seed.
fn payload_of(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}
