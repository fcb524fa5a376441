//! The lines of the log.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use farcall::client::{client_streaming, server_streaming, unary};
use farcall::retry::MethodConfig;
use farcall::{Channel, ChannelBuilder, Rdma, RdmaConfig, Request, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::service::{Demo, demo, failure, listen, named, on, serve, with_device, without_device};
use crate::transcript::{LIMIT, Log, Transcript};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const UNIX: &str = "unix://@farcall-messages-log";
const SOON: Duration = Duration::from_millis(50);

pub(crate) async fn tell(transcript: &mut Transcript, log: &Log) {
    once(transcript, log);
    starting(transcript, log).await;
    failing(transcript, log).await;
    silenced(log).await;
    access(transcript, log).await;
    strangers(transcript, log).await;
    proxies(transcript, log).await;
    vanishing(transcript, log).await;
    without_rdma(transcript, log).await;
    names(transcript, log).await;
    draining(transcript, log).await;
    refusing(transcript, log).await;
    ports(transcript, log).await;
}

/// Lines that other tests of this process cause several times.
fn once(transcript: &mut Transcript, log: &Log) {
    let text = log.text();
    for (side, message) in [
        ("client", "INFO farcall::path: connected over TCP, without RDMA"),
        ("server", "INFO farcall::path: a client is connected over TCP, without RDMA"),
    ] {
        let lines: Vec<_> = text.lines().filter(|line| line.contains(message)).collect();
        assert_eq!(lines.len(), 1, "{text}");
        transcript.say(
            &format!("auto:// without a device: the {side}'s line, once a process"),
            lines[0].trim(),
        );
    }
}

async fn starting(transcript: &mut Transcript, log: &Log) {
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
        transcript.say(&format!("a server at {cause}"), line.replace(&bound, address));
        serving.abort();
    }
}

async fn failing(transcript: &mut Transcript, log: &Log) {
    let (address, _) = demo(Server::builder()).await;
    let port = address.rsplit(':').next().expect("it has a port").to_owned();
    let channel = Channel::builder(format!("auto://localhost:{port}")).unwrap();
    let channel = channel.rdma(&without_device()).connect().await.unwrap();
    let say = |transcript: &mut Transcript, cause: &str, line: String| {
        transcript.say(cause, line.replace(&format!("localhost:{port}"), "localhost:<port>"));
    };
    for (name, cause) in [("Panic", "a handler that panics"), ("Fail", "a status of a handler")] {
        log.clear();
        failure(&channel, name, "").await;
        let line = log.line(&["farcall::call", "peer=auto://"]).await;
        say(transcript, &format!("{cause}: the client's line"), line);
        let line = log.line(&["farcall::call", "peer=127.0.0.1"]).await;
        say(transcript, &format!("{cause}: the server's line"), line);
    }
    log.clear();
    let impatient = Channel::builder(format!("auto://localhost:{port}")).unwrap();
    let impatient = impatient.rdma(&without_device()).unary_timeout(SOON).connect().await.unwrap();
    failure(&impatient, "Wait", "").await;
    let line = log.line(&["farcall::call", "DEADLINE_EXCEEDED"]).await;
    say(transcript, "a timeout: the client's line", line);
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
    say(transcript, "a stream that fails after its first message: the client's line", line);
    log.clear();
    let nowhere = Channel::builder("tcp://127.0.0.1:1").unwrap().connect_lazy();
    failure(&nowhere, "Echo", "").await;
    say(transcript, "a call to no server", log.line(&["farcall::call"]).await);
    log.clear();
    let (address, waiting) = demo(Server::builder()).await;
    let channel = Channel::connect(&address).await.unwrap();
    let calling = channel.clone();
    let given_up = tokio::spawn(async move { failure(&calling, "Wait", "").await });
    waiting.notified().await;
    given_up.abort();
    let line = log.line(&["farcall::call", "CANCELLED"]).await;
    say(transcript, "a call that its client gives up: the server's line", line);
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

async fn access(transcript: &mut Transcript, log: &Log) {
    let (address, _) = demo(Server::builder().access_log(true)).await;
    let channel = Channel::builder(&address).unwrap().timeout(Duration::from_secs(60));
    let channel = channel.connect().await.unwrap();
    for (cause, name) in [("a call", "Echo"), ("a call that fails", "Fail")] {
        log.clear();
        let request = Request::new("hello".to_owned());
        let _ = unary::<String, String>(&channel, named(name), request).await;
        transcript.say(&format!("access_log: {cause}"), log.line(&["farcall::access"]).await);
    }
    log.clear();
    let requests = futures::stream::iter(["a", "b", "c"].map(str::to_owned));
    let upload = client_streaming::<_, String>(&channel, named("Upload"), Request::new(requests));
    upload.await.unwrap();
    transcript.say("access_log: a stream of requests", log.line(&["farcall::access"]).await);
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
    transcript.say("access_log: a stream of responses that fails", line);
}

/// Clients that speak something else.
async fn strangers(transcript: &mut Transcript, log: &Log) {
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
        transcript.say(&format!("a client that speaks {name}"), line);
    }
}

/// A load balancer that does not say who its clients are, and one that says it wrong.
async fn proxies(transcript: &mut Transcript, log: &Log) {
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
        transcript.say(&format!("proxy_protocol: a load balancer with {name}"), line);
    }
}

/// Clients whose program or cable ends in the middle of the handshake: nothing to warn of.
async fn vanishing(transcript: &mut Transcript, log: &Log) {
    for (cause, line, end) in [
        ("ends its stream in the handshake", "disconnected", End::Close),
        ("goes silent in the handshake", "took too long", End::Silence),
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
        transcript.say(&format!("a client that {cause}"), log.line(&[line]).await);
        drop(silent);
    }
    assert!(!log.text().contains("WARN"), "{}", log.text());
}

/// The end of a client.
enum End {
    Close,
    Silence,
}

/// First bytes of a Hello.
const FIRST_BYTES: [u8; 4] = *b"farc";

async fn without_rdma(transcript: &mut Transcript, log: &Log) {
    let listener = on(&with_device(&[LOOPBACK])).bind("auto://127.0.0.1:0").await.unwrap();
    let address = serve(listener);
    log.clear();
    let channel = Channel::builder(&address).unwrap().rdma(&with_device(&[OTHER]));
    let _channel = channel.connect().await.unwrap();
    let line = log.line(&["connected over TCP"]).await;
    transcript
        .say("auto:// where the client's device has another address: the client's line", line);
}

/// Names in `methods` that no server has, before any call. One line each, however many servers.
async fn names(transcript: &mut Transcript, log: &Log) {
    let [(one, _), (other, _)] = [demo(Server::builder()).await, demo(Server::builder()).await];
    let names = ["demo.Demo", "demo.Dema", "/demo.Demo/Ecko"];
    for (cause, address) in [("one server", one.clone()), ("two servers", format!("{one},{other}"))]
    {
        log.clear();
        let builder = Channel::builder(address).unwrap();
        let set = |builder: ChannelBuilder, name| builder.method(name, MethodConfig::default());
        let channel = names.into_iter().fold(builder, set).connect().await.unwrap();
        let line = log.line(&["farcall::settings", "Ecko"]).await;
        transcript.say(&format!("an unknown method in `methods` of a target of {cause}"), line);
        let line = log.line(&["farcall::settings", "Dema"]).await;
        transcript.say(&format!("an unknown service in `methods` of a target of {cause}"), line);
        for _ in 0..10 {
            let request = Request::new(String::new());
            unary::<String, String>(&channel, named("Echo"), request).await.unwrap();
        }
        assert_eq!(log.text().matches("farcall::settings").count(), 2, "{}", log.text());
    }
}

async fn draining(transcript: &mut Transcript, log: &Log) {
    let demo = Demo::default();
    let waiting = std::sync::Arc::clone(&demo.waiting);
    let server = Server::builder().drain_timeout(Duration::ZERO).add_service(demo);
    let listener = listen(server).await;
    let address = listener.local_address().to_string();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(listener.serve().with_graceful_shutdown(async {
        let _ = stopped.await;
    }));
    let channel = Channel::connect(&address).await.unwrap();
    let call = tokio::spawn(async move { failure(&channel, "Wait", "").await });
    waiting.notified().await;
    log.clear();
    stop.send(()).unwrap();
    transcript.say("a server shuts down", log.line(&["a drain begins"]).await);
    serving.await.unwrap().unwrap();
    call.await.unwrap();
    assert_eq!(log.text().matches("a drain begins").count(), 1, "{}", log.text());
}

/// One client that asks again and again has ten lines.
async fn refusing(transcript: &mut Transcript, log: &Log) {
    let server = Server::builder().log_failed_calls(false);
    let server =
        server.authorize(|_: &farcall::Identity, method: &str| method != "/demo.Demo/Echo");
    let (address, _) = demo(server).await;
    let channel = Channel::builder(&address).unwrap().log_failed_calls(false).connect().await;
    let channel = channel.unwrap();
    log.clear();
    for _ in 0..30 {
        failure(&channel, "Echo", "").await;
    }
    transcript.say("authorize refuses a call", log.line(&["authorize refused"]).await);
    let count = log.text().matches("authorize refused a call").count();
    assert!((1..=11).contains(&count), "{count}");
}

/// A device whose port goes down and comes up, under a channel that had no RDMA at first.
async fn ports(transcript: &mut Transcript, log: &Log) {
    let network = farcall::sim::SimNetwork::new(1);
    let device = network.add_device("sim0", &[LOOPBACK]);
    let host = Rdma::simulated(&network, RdmaConfig::default());
    let listener = on(&host).add_service(Demo::default()).bind("auto://127.0.0.1:0").await.unwrap();
    let address = serve(listener);
    let channel = || {
        let backoff = farcall::Backoff::PATH.with_initial_delay(Duration::from_millis(1));
        Channel::builder(&address).unwrap().rdma(&host).path_backoff(backoff).connect()
    };
    let first = channel().await.unwrap();
    assert!(first.path().is_upgraded(), "{}", first.path());
    log.clear();
    device.link_down();
    let line = log.line(&["farcall::rdma", "INFO", "no longer"]).await;
    transcript.say("the port of a server's RDMA device goes down", line);
    drop(first);
    let second = channel().await.unwrap();
    assert_eq!(second.path().transport(), Some("tcp"));
    assert_eq!(log.text().matches("no longer").count(), 1, "{}", log.text());
    log.clear();
    device.link_up();
    let line = log.line(&["farcall::path", "INFO"]).await;
    transcript.say("auto:// gets RDMA for the first time", line);
    let line = log.line(&["farcall::rdma", "has become usable"]).await;
    transcript.say("the port of a server's RDMA device comes up", line);
    for line in ["has become usable", "from TCP to RDMA"] {
        assert_eq!(log.text().matches(line).count(), 1, "{}", log.text());
    }
    assert!(!log.text().contains("calls are back on RDMA"), "{}", log.text());
    drop(second);
}
