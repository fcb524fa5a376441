//! The messages of each side when there is no TLS session.

use farcall::tls::{ClientCerts, ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{Channel, ChannelBuilder, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::authority::{Authority, Folder, Wanted, named};
use crate::service::{demo, failure, serve};
use crate::transcript::{Log, Transcript};

pub(crate) async fn tell(transcript: &mut Transcript, log: &Log) {
    certificates(transcript, log).await;
    files(transcript);
    without_tls(transcript, log).await;
    settings(transcript).await;
    renewal(transcript, log).await;
}

fn builder(address: &str) -> ChannelBuilder {
    Channel::builder(address).unwrap()
}

/// The client's error, which a call may see as well as the connect.
async fn refusal(channel: ChannelBuilder) -> String {
    match channel.connect().await {
        Err(error) => error.to_string(),
        Ok(channel) => failure(&channel, "Echo", "").await.message().to_owned(),
    }
}

/// Records the messages of both sides for a connection that fails.
async fn refused(
    transcript: &mut Transcript,
    log: &Log,
    cause: &str,
    server: &str,
    channel: ChannelBuilder,
) {
    log.clear();
    transcript.say(&format!("{cause}: the client"), refusal(channel).await);
    let line = log.line(&["farcall::server", server]).await;
    transcript.say(&format!("{cause}: the server"), line);
}

async fn certificates(transcript: &mut Transcript, log: &Log) {
    const REFUSED: &str = "refused a connection";
    let (ours, others) = (Authority::new(), Authority::new());
    let here = || named("127.0.0.1");
    let server = |config| ServerTls::new(config).unwrap();
    let mutual = ours.mutual_server();
    let optional = ours.server_config(here()).with_client_ca(Pem::bytes(ours.pem()));
    let optional = server(optional.with_client_certs(ClientCerts::Optional));
    for (cause, server, client) in [
        ("the server has another authority", others.server(), ours.client()),
        (
            "the server has another authority of the same name",
            Authority::named("same").server(),
            Authority::named("same").client(),
        ),
        (
            "the server's certificate has expired",
            server(ours.server_config(here().with_years(2000, 2001))),
            ours.client(),
        ),
        (
            "the server's certificate is of the future",
            server(ours.server_config(here().with_years(2100, 2101))),
            ours.client(),
        ),
        (
            "the server's certificate is for another name",
            server(ours.server_config(named("a.example"))),
            ours.client(),
        ),
        (
            "server_name is another than the certificate's",
            ours.server(),
            ClientTls::new(ours.client_config().with_server_name("b.example")).unwrap(),
        ),
        (
            "the server's certificate is that of an authority",
            server(ours.server_config(here().as_authority())),
            ours.client(),
        ),
        (
            "the server's certificate has a common name alone",
            server(ours.server_config(Wanted::nameless())),
            ours.client(),
        ),
        ("the client has no certificate", mutual.clone(), ours.client()),
        (
            "the client's certificate has expired",
            mutual.clone(),
            ours.client_with(named("c.example").with_years(2000, 2001)),
        ),
        ("the client has another authority", mutual, {
            let leaf = others.issue(named("c.example"));
            let config = ours.client_config();
            ClientTls::new(config.with_cert(Pem::bytes(leaf.cert), Pem::bytes(leaf.key))).unwrap()
        }),
        ("certificates are optional, and the client has another authority", optional, {
            let leaf = others.issue(named("c.example"));
            let config = ours.client_config();
            ClientTls::new(config.with_cert(Pem::bytes(leaf.cert), Pem::bytes(leaf.key))).unwrap()
        }),
    ] {
        let (address, _) = demo(Server::builder().tls(&server)).await;
        let channel = builder(&address).tls(&client);
        refused(transcript, log, cause, REFUSED, channel).await;
    }
}

/// Files that cannot be used as they are.
fn files(transcript: &mut Transcript) {
    let authority = Authority::new();
    let leaf = authority.issue(named("a.example"));
    let section = |label: &str| format!("-----BEGIN {label}-----\nMIGb\n-----END {label}-----\n");
    let server = |cert: &str, key: &str| {
        ServerTls::new(ServerTlsConfig::new(Pem::bytes(cert), Pem::bytes(key))).unwrap_err()
    };
    for label in ["ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY", "PUBLIC KEY"] {
        transcript
            .say(&format!("a key that is a section {label}"), server(&leaf.cert, &section(label)));
    }
    transcript.say("a certificate in place of a key", server(&leaf.cert, &leaf.cert));
    transcript.say("a key in place of a certificate", server(&leaf.key, &leaf.key));
    transcript.say("an empty file in place of a key", server(&leaf.cert, ""));
    let request = section("CERTIFICATE REQUEST");
    transcript.say("a request in place of a certificate", server(&request, &leaf.key));
    let other = authority.issue(named("b.example"));
    transcript.say("the key of another certificate", server(&leaf.cert, &other.key));
    let der = [0x30, 0x82, 1, 9, 0x30, 0x82, 1, 0];
    let der = ServerTlsConfig::new(Pem::bytes(der), Pem::bytes(&leaf.key));
    transcript.say("a certificate in DER", ServerTls::new(der).unwrap_err());
    let ca = ClientTlsConfig::default().with_ca(Pem::bytes(section("CERTIFICATE")));
    transcript.say("an authority that is none", ClientTls::new(ca).unwrap_err());
}

async fn without_tls(transcript: &mut Transcript, log: &Log) {
    const REFUSED: &str = "refused a connection";
    let authority = Authority::new();
    let (address, _) = demo(Server::builder().tls(&authority.server())).await;
    let plain = builder(&address);
    refused(transcript, log, "a client without TLS at a server with TLS", REFUSED, plain).await;
    let (address, _) = demo(Server::builder()).await;
    let channel = builder(&address).tls(&authority.client());
    refused(transcript, log, "a client with TLS at a server without TLS", REFUSED, channel).await;

    let (address, _) = demo(Server::builder().tls(&authority.server())).await;
    let authority_of = |address: &str| address.trim_start_matches("tcp://").to_owned();
    for (name, first) in [
        ("HTTP/1.1", &b"GET / HTTP/1.1\r\n\r\n"[..]),
        ("gRPC", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("something else", b"220 mail.example"),
    ] {
        log.clear();
        let mut stream = TcpStream::connect(authority_of(&address)).await.unwrap();
        stream.write_all(first).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        let line = log.line(&[REFUSED]).await;
        transcript.say(&format!("a server with TLS, and a client that speaks {name}"), line);
    }
    for (name, first) in [
        ("speaks HTTP/1.1", &b"HTTP/1.1 400 Bad Request\r\n"[..]),
        ("speaks HTTP/2", &[0, 0, 18, 4, 0, 0, 0, 0, 0]),
        ("closes without a word", b""),
    ] {
        let address = answering(first).await;
        let error = refusal(builder(&address).tls(&authority.client())).await;
        transcript.say(&format!("a client with TLS, and a server that {name}"), error);
    }
}

/// A server that reads what a client says first, answers with `words` and ends its stream.
async fn answering(message: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(message).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    format!("tcp://{address}")
}

/// Records the messages about settings that exclude each other.
async fn settings(transcript: &mut Transcript) {
    let authority = Authority::new();
    let (of_server, of_client) = (authority.server(), authority.client());
    for address in ["unix://@farcall-tls-told", "inproc://farcall-tls-told"] {
        let bound = Server::builder().tls(&of_server).bind(address).await;
        transcript.say(&format!("`tls` of a server at {address}"), bound.unwrap_err());
        let connected = builder(address).tls(&of_client).connect().await;
        transcript.say(&format!("`tls` of a channel to {address}"), connected.unwrap_err());
    }
    let connected = builder("grpc://shop:50051").tls(&of_client).connect().await;
    transcript.say("`tls` of a channel to grpc://", connected.unwrap_err());
    let connected = builder("grpcs://shop:443").connect().await;
    transcript.say("a channel to grpcs:// without `tls`", connected.unwrap_err());
    let bound = Server::builder().require_encryption(true).bind("auto://127.0.0.1:0").await;
    transcript.say("require_encryption of a server without `tls`", bound.unwrap_err());
    let connected = builder("auto://127.0.0.1:1").require_encryption(true).connect().await;
    transcript.say("require_encryption of a channel without `tls`", connected.unwrap_err());
    let streams = futures::stream::pending::<std::io::Result<TcpStream>>();
    let served = Server::builder().tls(&of_server).build().serve_incoming(streams).await;
    transcript.say("`tls` of a server of byte streams", served.unwrap_err());
    let opened = builder("tcp://backend:7000").tls(&of_client);
    let channel = opened.connect_with_connector(|| async { TcpStream::connect("[::1]:1").await });
    transcript.say(
        "`tls` of a channel over streams of the program",
        failure(&channel, "Echo", "").await.message(),
    );

    // RDMA is what encryption cannot be had with.
    let listening = Server::builder().tls(&of_server).require_encryption(true);
    let running = serve(listening.bind("auto://127.0.0.1:0").await.unwrap());
    let channel = |address: &str| builder(address).tls(&of_client).require_encryption(true);
    let connected: Channel = channel(&running).connect().await.unwrap();
    transcript.say("require_encryption at auto://", connected.path());
    let address = running.replace("auto://", "rdma://");
    transcript.say("require_encryption at rdma://", refusal(channel(&address)).await);
    let bound = Server::builder().tls(&of_server).require_encryption(true);
    let bound = bound.bind("rdma://127.0.0.1:0").await;
    transcript.say("require_encryption of a server at rdma://", bound.unwrap_err());
}

/// A reload with another certificate has a line, and one with the same has none.
async fn renewal(transcript: &mut Transcript, log: &Log) {
    let (ours, folder) = (Authority::new(), Folder::new("renewal"));
    let write = |name: &str| {
        let leaf = ours.issue(named(name).with_years(2020, 2031));
        (folder.write("server.pem", &leaf.cert), folder.write("server.key", &leaf.key))
    };
    let (cert, key) = write("a.example");
    let server = ServerTls::new(ServerTlsConfig::new(cert.clone(), key.clone())).unwrap();
    let client = ClientTls::new(ours.client_config().with_cert(cert, key)).unwrap();
    log.clear();
    server.reload().unwrap();
    assert_eq!(log.text(), "");
    write("127.0.0.1");
    server.reload().unwrap();
    let line = log.line(&["read a certificate again"]).await;
    transcript.say("a server's TLS is reloaded with another certificate", line);
    server.reload().unwrap();
    log.clear();
    client.reload().unwrap();
    let line = log.line(&["read a certificate again"]).await;
    transcript.say("a channel's TLS is reloaded with another certificate", line);
}
