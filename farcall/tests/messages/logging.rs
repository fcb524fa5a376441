//! The lines of the log.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use farcall::client::{client_streaming, server_streaming, unary};
use farcall::{Channel, Request, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::service::{demo, failure, named, on, serve, with_device, without_device};
use crate::told::{LIMIT, Log, Told};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const UNIX: &str = "unix://@farcall-messages-log";
const SOON: Duration = Duration::from_millis(50);

pub(crate) async fn tell(told: &mut Told, log: &Log) {
    once(told, log);
    starting(told, log).await;
    failing(told, log).await;
    silenced(log).await;
    access(told, log).await;
    strangers(told, log).await;
    proxies(told, log).await;
    vanishing(told, log).await;
    without_rdma(told, log).await;
}

/// Lines that other tests of this process cause several times.
fn once(told: &mut Told, log: &Log) {
    let text = log.text();
    for (side, message) in [
        ("client", "INFO farcall::path: connected over TCP, without RDMA"),
        ("server", "INFO farcall::path: a client is connected over TCP, without RDMA"),
    ] {
        let lines: Vec<_> = text.lines().filter(|line| line.contains(message)).collect();
        assert_eq!(lines.len(), 1, "{text}");
        told.say(
            &format!("auto:// without a device: the {side}'s line, once a process"),
            lines[0].trim(),
        );
    }
}

async fn starting(told: &mut Told, log: &Log) {
    for (cause, address, host) in [
        ("auto:// with a device", "auto://127.0.0.1:0", with_device(&[LOOPBACK])),
        ("auto:// at every address", "auto://0.0.0.0:0", with_device(&[LOOPBACK])),
        ("rdma:// with a device", "rdma://127.0.0.1:0", with_device(&[LOOPBACK])),
        ("auto:// without a device", "auto://127.0.0.1:0", without_device()),
        ("rdma:// without a device, which is not required", "rdma://127.0.0.1:0", without_device()),
        ("tcp://", "tcp://127.0.0.1:0", without_device()),
        ("unix://", UNIX, without_device()),
        ("inproc://", "inproc://messages-log", without_device()),
    ] {
        log.clear();
        let is_required = !cause.contains("not required");
        let server = on(&host).rdma_required(is_required);
        let listener = server.bind(address).await.unwrap();
        let bound = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        let line = log.line(&["farcall::server", &bound]).await;
        told.say(&format!("a server at {cause}"), line.replace(&bound, address));
        serving.abort();
    }
}

async fn failing(told: &mut Told, log: &Log) {
    let (address, _) = demo(Server::builder()).await;
    let port = address.rsplit(':').next().expect("it has a port").to_owned();
    let channel = Channel::builder(format!("auto://localhost:{port}")).unwrap();
    let channel = channel.rdma(&without_device()).connect().await.unwrap();
    let say = |told: &mut Told, cause: &str, line: String| {
        told.say(cause, line.replace(&format!("localhost:{port}"), "localhost:<port>"));
    };
    for (name, cause) in [("Panic", "a handler that panics"), ("Fail", "a status of a handler")] {
        log.clear();
        failure(&channel, name, "").await;
        let line = log.line(&["farcall::call", "peer=auto://"]).await;
        say(told, &format!("{cause}: the client's line"), line);
        let line = log.line(&["farcall::call", "peer=127.0.0.1"]).await;
        say(told, &format!("{cause}: the server's line"), line);
    }
    log.clear();
    failure(&channel.clone().with_unary_timeout(SOON), "Wait", "").await;
    let line = log.line(&["farcall::call", "DEADLINE_EXCEEDED"]).await;
    say(told, "a timeout: the client's line", line);
    log.clear();
    let mut subscribed = server_streaming::<String, String>(
        &channel,
        named("Subscribe"),
        Request::new(String::new()),
    )
    .await
    .unwrap()
    .into_inner();
    while subscribed.message().await.is_ok_and(|message| message.is_some()) {}
    let line = log.line(&["farcall::call", "peer=auto://"]).await;
    say(told, "a stream that fails after its first message: the client's line", line);
    log.clear();
    let nowhere = Channel::builder("tcp://127.0.0.1:1").unwrap().connect_lazy();
    failure(&nowhere, "Echo", "").await;
    say(told, "a call to no server", log.line(&["farcall::call"]).await);
    log.clear();
    let (address, waiting) = demo(Server::builder()).await;
    let channel = Channel::connect(&address).await.unwrap();
    let calling = channel.clone();
    let given_up = tokio::spawn(async move { failure(&calling, "Wait", "").await });
    waiting.notified().await;
    given_up.abort();
    let line = log.line(&["farcall::call", "CANCELLED"]).await;
    say(told, "a call that its client gives up: the server's line", line);
    drop(channel);
}

/// Off means off, on either side.
async fn silenced(log: &Log) {
    let (address, _) = demo(Server::builder().log_failed_calls(false)).await;
    let channel = Channel::builder(&address).unwrap().log_failed_calls(false);
    let channel = channel.connect().await.unwrap();
    log.clear();
    failure(&channel, "Panic", "").await;
    // A later line comes behind any of the call before it.
    let (address, _) = demo(Server::builder()).await;
    failure(&Channel::connect(&address).await.unwrap(), "Fail", "").await;
    log.line(&["farcall::call", "NOT_FOUND", "peer=127.0.0.1"]).await;
    assert!(!log.text().contains("/demo.Demo/Panic"), "{}", log.text());
}

async fn access(told: &mut Told, log: &Log) {
    let (address, _) = demo(Server::builder().access_log(true)).await;
    let channel = Channel::connect(&address).await.unwrap().with_timeout(Duration::from_secs(60));
    for (cause, name) in [("a call", "Echo"), ("a call that fails", "Fail")] {
        log.clear();
        let request = Request::new("hello".to_owned());
        let _ = unary::<String, String>(&channel, named(name), request).await;
        told.say(&format!("access_log: {cause}"), log.line(&["farcall::access"]).await);
    }
    log.clear();
    let requests = futures::stream::iter(["a", "b", "c"].map(str::to_owned));
    let upload = client_streaming::<_, String>(&channel, named("Upload"), Request::new(requests));
    upload.await.unwrap();
    told.say("access_log: a stream of requests", log.line(&["farcall::access"]).await);
    log.clear();
    let mut subscribed = server_streaming::<String, String>(
        &channel,
        named("Subscribe"),
        Request::new(String::new()),
    )
    .await
    .unwrap()
    .into_inner();
    while subscribed.message().await.is_ok_and(|message| message.is_some()) {}
    let line = log.line(&["farcall::access"]).await;
    told.say("access_log: a stream of responses that fails", line);
}

/// Clients that speak something else.
async fn strangers(told: &mut Told, log: &Log) {
    let (address, _) = demo(Server::builder()).await;
    let authority = address.trim_start_matches("tcp://");
    for (name, first) in [
        ("SSH", &b"SSH-2.0-OpenSSH_9.2\r\n"[..]),
        ("TLS", &[22, 3, 1, 2, 0, 1, 0, 1]),
        ("the PROXY protocol", b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"),
    ] {
        log.clear();
        let mut stream = TcpStream::connect(authority).await.unwrap();
        stream.write_all(first).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        let line = log.line(&["refused a connection"]).await;
        told.say(&format!("a client that speaks {name}"), line);
    }
}

/// A load balancer that does not say who its clients are, and one that says it wrong.
async fn proxies(told: &mut Told, log: &Log) {
    let (address, _) = demo(Server::builder().proxy_protocol(["127.0.0.1"])).await;
    let authority = address.trim_start_matches("tcp://");
    for (name, first) in [
        ("no PROXY header", &b"PRI * HTTP/2.0\r\n"[..]),
        ("a malformed PROXY header", b"PROXY TCP4 10.0.0.1 10.0.0.2 1\r\n"),
    ] {
        log.clear();
        let mut stream = TcpStream::connect(authority).await.unwrap();
        stream.write_all(first).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        let line = log.line(&["refused a connection"]).await;
        told.say(&format!("proxy_protocol: a load balancer with {name}"), line);
    }
}

/// Clients whose program or cable ends in the middle of the handshake: nothing to warn of.
async fn vanishing(told: &mut Told, log: &Log) {
    for (cause, line, end) in [
        ("ends its stream in the handshake", "went away", End::Close),
        ("goes silent in the handshake", "in time", End::Silence),
    ] {
        let timeout = if matches!(end, End::Silence) { SOON } else { LIMIT };
        let (address, _) = demo(Server::builder().handshake_timeout(timeout)).await;
        log.clear();
        let authority = address.trim_start_matches("tcp://");
        let mut stream = TcpStream::connect(authority).await.unwrap();
        stream.write_all(&FIRST_BYTES).await.unwrap();
        match end {
            End::Close => stream.shutdown().await.unwrap(),
            End::Silence => {}
        }
        let silent = Some(stream).filter(|_| matches!(end, End::Silence));
        told.say(&format!("a client that {cause}"), log.line(&[line]).await);
        drop(silent);
    }
    assert!(!log.text().contains("WARN"), "{}", log.text());
}

/// How a client goes.
enum End {
    Close,
    Silence,
}

/// What a Hello of farcall begins with.
const FIRST_BYTES: [u8; 4] = *b"farc";

async fn without_rdma(told: &mut Told, log: &Log) {
    let listener = on(&with_device(&[LOOPBACK])).bind("auto://127.0.0.1:0").await.unwrap();
    let address = serve(listener);
    log.clear();
    let channel = Channel::builder(&address).unwrap().rdma(&with_device(&[OTHER]));
    let _channel = channel.connect().await.unwrap();
    let line = log.line(&["connected over TCP"]).await;
    told.say("auto:// where the client's device has another address: the client's line", line);
}
