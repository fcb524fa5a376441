//! Access control by identity, and the credentials that calls carry.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use farcall::client::unary;
use farcall::metadata::{AsciiMetadataValue, MetadataMap};
use farcall::server::Authorize;
use farcall::{Channel, Code, Identity, Method, Request, Server, Status};
use parking_lot::Mutex;

use crate::authority::{Authority, named};
use crate::service::{SERVICE, Tls, builder, echo, serve, who};

/// Lets `a.example` call all, every client of the authority `Echo`, and anyone `Token`.
#[derive(Clone, Default)]
struct Rules {
    checked: Arc<Mutex<Vec<String>>>,
}

impl Authorize for Rules {
    fn allows(&self, identity: &Identity, method: &str) -> bool {
        self.checked.lock().push(format!("{identity} {method}"));
        identity.has_name("a.example") || method == "/t.Tls/Echo"
    }

    fn allows_anonymous(&self, method: &str) -> bool {
        method == "/t.Tls/Token"
    }
}

#[tokio::test]
async fn a_call_that_is_not_allowed_never_reaches_its_handler() {
    let (authority, rules) = (Authority::new(), Rules::default());
    let service = Tls::default();
    let calls = Arc::clone(&service.calls);
    let listener = Server::builder()
        .tls(&authority.mutual_server())
        .max_message_len(64 << 20)
        .authorize(rules.clone())
        .add_service(service)
        .bind("tcp://127.0.0.1:0");
    let listener = listener.await.unwrap();
    let address = listener.local_address().to_string();
    let server = listener.server().clone();
    tokio::spawn(listener.serve());
    let connect = async |name: &str| -> Channel {
        let tls = authority.client_with(named(name));
        builder(&address).tls(&tls).max_message_len(64 << 20).connect().await.unwrap()
    };
    let (a, b) = (connect("a.example").await, connect("b.example").await);
    assert_eq!(who(&a).await.unwrap(), "a.example");
    assert_eq!(echo(&b, Bytes::from_static(b"x")).await.unwrap(), "x");
    let reached = calls.load(Ordering::Relaxed);
    let denied = who(&b).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    assert_eq!(denied.message(), "b.example may not call /t.Tls/Who");
    // One that is announced is refused before it is received.
    let large = Request::new(Bytes::from(vec![7; 32 << 20]));
    let denied = unary::<_, String>(&b, &SERVICE.methods[0], large).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied);
    let received = server.connections().iter().map(|it| it.stats.large_received).sum::<u64>();
    assert_eq!(received, 0, "the large request was refused by its header");
    assert_eq!(calls.load(Ordering::Relaxed), reached, "no handler was called");
    assert!(rules.checked.lock().contains(&"b.example /t.Tls/Who".to_owned()));
}

#[tokio::test]
async fn a_client_without_an_identity_is_told_that_it_needs_one() {
    let authority = Authority::new();
    // With TLS and no client certificates, and without TLS.
    let tls = serve(Server::builder().tls(&authority.server()).authorize(Rules::default())).await;
    let plain = serve(Server::builder().authorize(Rules::default())).await;
    for channel in [
        builder(&tls.address).tls(&authority.client()).connect().await.unwrap(),
        builder(&plain.address).connect().await.unwrap(),
    ] {
        let denied = who(&channel).await.unwrap_err();
        assert_eq!(denied.code(), Code::Unauthenticated);
        let message = "/t.Tls/Who requires a client certificate, and this client has none";
        assert_eq!(denied.message(), message);
        assert_eq!(token(&channel).await.unwrap(), "none");
    }
}

/// The token that a call carried.
async fn token(channel: &Channel) -> Result<String, Status> {
    Ok(unary::<_, String>(channel, &SERVICE.methods[3], Request::new(())).await?.into_inner())
}

/// Gives each call a token of its own.
fn numbered() -> impl Fn(&Method, &mut MetadataMap) -> Result<(), Status> {
    let count = AtomicUsize::new(0);
    move |method: &Method, metadata: &mut MetadataMap| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        if number == 2 {
            return Err(Status::unauthenticated("the token has run out"));
        }
        let token: AsciiMetadataValue = format!("{} {number}", method.name()).parse().unwrap();
        metadata.insert("authorization", token);
        Ok(())
    }
}

#[tokio::test]
async fn every_call_carries_credentials_of_its_own() {
    let authority = Authority::new();
    let server = serve(Server::builder().tls(&authority.server())).await;
    let channel = builder(&server.address).tls(&authority.client()).call_credentials(numbered());
    let channel = channel.connect().await.unwrap();
    assert_eq!(token(&channel).await.unwrap(), "Token 0");
    assert_eq!(token(&channel).await.unwrap(), "Token 1");
    let failed = token(&channel).await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::Unauthenticated, "the token has run out"));
    let layered = channel.layer(tower::ServiceBuilder::new().concurrency_limit(1));
    let answer = unary::<_, String>(&layered, &SERVICE.methods[3], Request::new(())).await;
    assert_eq!(answer.unwrap().into_inner(), "Token 3");
}

#[tokio::test]
async fn credentials_do_not_leave_the_host_in_the_clear() {
    let server = serve(Server::builder()).await;
    let with_credentials = |address: &str| builder(address).call_credentials(numbered());
    let error = with_credentials(&server.address).connect().await.unwrap_err().to_string();
    assert!(error.contains("calls carry credentials, but the channel has no `tls`"), "{error}");
    let lazy = with_credentials(&server.address).connect_lazy();
    assert!(token(&lazy).await.unwrap_err().message().contains("carry credentials"));
    let allowed = with_credentials(&server.address).allow_unencrypted_credentials(true);
    assert_eq!(token(&allowed.connect().await.unwrap()).await.unwrap(), "Token 0");

    let authority = Authority::new();
    let listening = Server::builder().tls(&authority.server());
    let server = crate::service::serve_at(listening, "auto://127.0.0.1:0").await;
    let channel = with_credentials(&server.address).tls(&authority.client());
    let path = channel.connect().await.unwrap().path().to_string();
    assert!(path.contains("RDMA is not encrypted, but calls carry credentials"), "{path}");
}
