//! Why there is no connection, and why it is not on RDMA.

use std::net::{IpAddr, Ipv4Addr};

use farcall::{Channel, ConnectError, Rdma, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::service::{demo, failure, on, with_device, without_device};
use crate::transcript::Transcript;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

pub(crate) async fn tell(transcript: &mut Transcript) {
    addresses(transcript).await;
    nothing_there(transcript).await;
    other_protocols(transcript).await;
    no_rdma(transcript).await;
    fallbacks(transcript).await;
}

async fn refused(address: &str) -> ConnectError {
    let builder = Channel::builder(address).expect("an address");
    builder.connect().await.expect_err("there is no connection")
}

async fn refused_on(host: &Rdma, address: &str) -> ConnectError {
    let builder = Channel::builder(address).expect("an address").rdma(host);
    builder.connect().await.expect_err("there is no connection")
}

async fn addresses(transcript: &mut Transcript) {
    for text in [
        "http://inventory:7000",
        "https://inventory:7000",
        "inventory:7000",
        "inventory",
        "tcp://inventory",
        "tcp://::1:7000",
        "unix:/run/app.sock",
        "unix://run/app.sock",
        "grpc://inventory",
    ] {
        let error = Channel::connect(text).await.unwrap_err();
        transcript.say(&format!("Channel::connect({text:?})"), error);
    }
}

async fn nothing_there(transcript: &mut Transcript) {
    let unix = format!("unix:///tmp/farcall-messages-{}", std::process::id());
    for address in ["tcp://127.0.0.1:1", "auto://127.0.0.1:1", "rdma://127.0.0.1:1", &unix] {
        transcript.say(&format!("no server at {address}"), refused(address).await);
    }
    transcript.say("no server at inproc://none", refused("inproc://none").await);
    let channel = Channel::builder("rdma://127.0.0.1:1").unwrap().connect_lazy();
    transcript.say("a call to no server", failure(&channel, "Echo", "").await.message());
    transcript.say("the next call, while the channel backs off", {
        failure(&channel, "Echo", "").await.message().to_owned()
    });
    transcript.say("`Channel::path` meanwhile", channel.path());
}

/// A server that answers with the first bytes of another protocol.
async fn answering(first: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(first).await.unwrap();
        // Until the client closes.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    format!("tcp://{address}")
}

async fn other_protocols(transcript: &mut Transcript) {
    for (name, first) in [
        ("gRPC over HTTP/2", &[0, 0, 18, 4, 0, 0, 0, 0, 0][..]),
        ("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n"),
        ("TLS", &[21, 3, 1, 0, 2, 2, 70, 0]),
        ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n"),
        ("something else", b"220 mail.example ESMTP"),
        ("nothing: it closes", b""),
    ] {
        let address = match first {
            b"" => closing().await,
            first => answering(first).await,
        };
        let error = refused(&address).await;
        transcript.say(&format!("the server speaks {name}"), error);
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", silent.local_addr().unwrap());
    let timeout = std::time::Duration::from_millis(50);
    let builder = Channel::builder(&address).unwrap().handshake_timeout(timeout);
    transcript.say("the server says nothing", builder.connect().await.unwrap_err());
}

/// A server that closes each connection, once it has read what the client says first.
async fn closing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.shutdown().await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    format!("tcp://{address}")
}

async fn no_rdma(transcript: &mut Transcript) {
    let (address, _) = demo(Server::builder()).await;
    let address = address.replace("tcp://", "rdma://");
    transcript
        .say("rdma:// on a host without a device", refused_on(&without_device(), &address).await);
    let elsewhere = with_device(&[ELSEWHERE]);
    transcript
        .say("rdma:// whose device has another address", refused_on(&elsewhere, &address).await);
    let here = with_device(&[LOOPBACK]);
    transcript.say("rdma:// to a server at tcp://", refused_on(&here, &address).await);
    let channel = Channel::builder(&address).unwrap().rdma(&without_device()).connect_lazy();
    transcript.say("a call over rdma:// on a host without a device", {
        failure(&channel, "Echo", "").await.message().to_owned()
    });
}

async fn fallbacks(transcript: &mut Transcript) {
    let here = with_device(&[LOOPBACK]);
    for (cause, server, client) in [
        ("auto:// where the client has no device", here.clone(), without_device()),
        ("auto:// where the server has no device", without_device(), here.clone()),
    ] {
        let listener = on(&server).bind("auto://127.0.0.1:0").await.unwrap();
        let address = crate::service::serve(listener);
        let channel = Channel::builder(&address).unwrap().rdma(&client);
        transcript.say(cause, channel.connect().await.unwrap().path());
    }
}
