//! TLS on both sides, with certificates of both: who may call what, tokens, and new files while
//! the server runs.

use std::fs;
use std::path::Path;

use farcall::metadata::{MetadataMap, MetadataValue};
use farcall::tls::{ClientTls, ClientTlsConfig, ServerTls, ServerTlsConfig};
use farcall::{Channel, Code, Identity, PeerInfo, Request, Response, Server, Status};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};
use farcall_testkit::certificates::{Authority, Wanted};

use super::{MyGreeter, hello};

/// Greets a caller by the name in its certificate.
struct ByIdentity;

#[farcall::async_trait]
impl Greeter for ByIdentity {
    async fn say_hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let peer = PeerInfo::current();
        let identity = peer.as_ref().and_then(|peer| peer.addresses.identity());
        let uri = identity.and_then(|identity| identity.uris().first());
        Ok(Response::new(HelloReply { message: uri.cloned().unwrap_or_default() }))
    }
}

/// Puts an authority's certificate into `tls`, and a certificate with its key for each side.
fn issue(tls: &Path) -> anyhow::Result<()> {
    let authority = Authority::new("the example's authority")?;
    fs::write(tls.join("ca.pem"), authority.pem())?;
    let billing = Wanted::nameless().with_uri("spiffe://example.org/billing");
    for (name, wanted) in [("server", Wanted::named("localhost")), ("billing", billing)] {
        let leaf = authority.issue(wanted)?;
        fs::write(tls.join(format!("{name}.pem")), leaf.cert)?;
        fs::write(tls.join(format!("{name}.key")), leaf.key)?;
    }
    Ok(())
}

#[tokio::test]
async fn callers_are_known_by_their_certificates() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let tls = folder.path();
    issue(tls)?;

    // The server, with a certificate for its own name.
    let config = ServerTlsConfig::new(tls.join("server.pem"), tls.join("server.key"))
        .with_client_ca(tls.join("ca.pem"));
    let server_tls = ServerTls::new(config)?;
    let server = Server::builder().tls(&server_tls).add_service(GreeterService::new(ByIdentity));
    let server = server.authorize(|identity: &Identity, method: &str| {
        identity.has_name("spiffe://example.org/billing") && method == "/hello.Greeter/SayHello"
    });
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    // A client, with a certificate of its own.
    let config = ClientTlsConfig::default()
        .with_ca(tls.join("ca.pem"))
        .with_cert(tls.join("billing.pem"), tls.join("billing.key"))
        .with_server_name("localhost");
    let client_tls = ClientTls::new(config)?;
    let channel = Channel::builder(&address)?.tls(&client_tls).connect().await?;
    let reply = GreeterStub::new(channel).say_hello(hello("me")).await?;
    assert_eq!(reply.into_inner().message, "spiffe://example.org/billing");

    // New files: connections from now on have them.
    issue(tls)?;
    server_tls.reload()?;
    client_tls.reload()?;
    let channel = Channel::builder(&address)?.tls(&client_tls).connect().await?;
    GreeterStub::new(channel).say_hello(hello("me")).await?;

    // A client without a certificate is refused.
    let config = ClientTlsConfig::default().with_ca(tls.join("ca.pem"));
    let nameless = ClientTls::new(config.with_server_name("localhost"))?;
    let channel = Channel::builder(&address)?.tls(&nameless).connect_lazy();
    let status = GreeterStub::new(channel).say_hello(hello("me")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    Ok(())
}

#[tokio::test]
async fn a_token_goes_with_every_call() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let tls = folder.path();
    issue(tls)?;
    let server_tls =
        ServerTls::new(ServerTlsConfig::new(tls.join("server.pem"), tls.join("server.key")))?;
    let needs_token = farcall::server::intercepted(GreeterService::new(MyGreeter), authorize);
    let server = Server::builder().tls(&server_tls).add_service(needs_token);
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let config = ClientTlsConfig::default().with_ca(tls.join("ca.pem"));
    let client_tls = ClientTls::new(config.with_server_name("localhost"))?;
    let builder = Channel::builder(&address)?.tls(&client_tls);
    let channel = builder.call_credentials(|_: &farcall::Method, metadata: &mut MetadataMap| {
        metadata.insert("authorization", MetadataValue::from_static("Bearer letmein"));
        Ok(())
    });
    GreeterStub::new(channel.connect().await?).say_hello(hello("me")).await?;
    Ok(())
}

fn authorize(request: Request<()>) -> Result<Request<()>, Status> {
    match request.metadata().get("authorization") {
        Some(token) if token == "Bearer letmein" => Ok(request),
        _ => Err(Status::unauthenticated("no token, or a wrong one")),
    }
}
