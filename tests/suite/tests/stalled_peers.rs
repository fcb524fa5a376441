//! Peers that answer pings, and have stopped to take or to send what is under way, over TCP.

mod log;

use std::time::Duration;

use farcall::{Channel, Code, Limits, Server};
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub, SERVICE};
use farcall_suite::proto::{EchoRequest, ProduceRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_with, record};
use farcall_suite::{Probe, SharedSettings};
use log::Log;
use prost::Message;
use rpc_core::wire::{FrameHeader, FrameKind};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Much longer than a peer that reads takes for anything here.
const PROGRESS_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval of a peer's pongs.
const PONG_INTERVAL: Duration = Duration::from_millis(20);

/// Longer than what the two kernels take for a peer that does not read.
const LONG_LEN: usize = 64 << 20;

const WHOLE: u8 = 1;
const FIRST: u8 = 2;

const LIMITS: Limits = Limits::DEFAULTS
    .with_max_message_len(128 << 20)
    .with_max_metadata_len(16 << 10)
    .with_max_calls(16)
    .with_max_receiving_bytes(256 << 20)
    .with_max_stream_messages(16)
    .with_max_stream_bytes(1 << 20);

fn settings() -> SharedSettings {
    SharedSettings::new(|settings| {
        settings.limits = LIMITS;
        settings.progress_timeout = Some(PROGRESS_TIMEOUT);
    })
}

async fn within<T>(what: &str, waited: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waited).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

fn request(name: &str, message: &[u8]) -> Vec<u8> {
    let index = SERVICE.methods.iter().position(|method| method.path.ends_with(name));
    let method = u16::try_from(index.expect("the service has it")).expect("it has few");
    frame(FrameKind::Request, 1, method, message)
}

/// Sends `bytes` to a server as a peer that reads nothing and answers pings, until the server has
/// ended the connection, and gives what was logged.
async fn cut_after(bytes: Vec<u8>) -> Result<Vec<String>, Failure> {
    let (log, _capturing) = Log::capture();
    let builder =
        settings().server(Server::builder()).add_service(ProbeService::new(Probe::new().0));
    let server = builder.build();
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().to_string();
    let _serving = AbortOnDropHandle::new(tokio::spawn(listener.serve()));
    let mut peer = RawPeer::connect(&address).await?;
    peer.send(&hello_with(&LIMITS, Vec::new())).await?;
    within("the server's Hello", peer.read_hello()).await?;
    peer.send(&bytes).await?;
    let pong = record(WHOLE, 0, &FrameHeader::bare(FrameKind::Pong, 0).to_bytes());
    let cut = async {
        while !server.connections().is_empty() {
            // The server may have closed by now.
            let _ = peer.send(&pong).await;
            tokio::time::sleep(PONG_INTERVAL).await;
        }
    };
    within("the end of the connection", cut).await;
    let honest = ProbeStub::new(settings().channel(Channel::builder(&address)?).connect().await?);
    within("an honest call", honest.echo(EchoRequest::default())).await?;
    Ok(log.take_lines())
}

fn check(lines: &[String], text: &str) {
    println!("{lines:?}");
    assert_eq!(lines.len(), 1, "it is said once: {lines:?}");
    assert!(lines[0].contains(text) && lines[0].contains("(progress_timeout)"), "{lines:?}");
}

#[tokio::test]
async fn a_client_that_takes_no_answers_is_cut() -> Result<(), Failure> {
    let message = ProduceRequest { seed: 1, len: LONG_LEN as u64 }.encode_to_vec();
    let lines = cut_after(record(WHOLE, 0, &request("/Produce", &message))).await?;
    check(&lines, "the peer has taken nothing of what waits for it for 500ms");
    Ok(())
}

#[tokio::test]
async fn a_client_that_stops_inside_a_large_frame_is_cut() -> Result<(), Failure> {
    let request = request("/Echo", &vec![0; 200_000]);
    let len = (request.len() as u64).to_le_bytes();
    let first = record(FIRST, 1, &[&len[..], &request[..100_000]].concat());
    let lines = cut_after(first).await?;
    check(&lines, "the peer has begun a large frame and sent nothing more of it for 500ms");
    Ok(())
}

#[tokio::test]
async fn a_server_that_takes_no_requests_is_left() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("tcp://{}", listener.local_addr()?);
    let builder = settings().channel(Channel::builder(address)?);
    let channel = builder.keepalive(farcall::Keepalive::off()).connect_lazy();
    let payload = vec![7; LONG_LEN].into();
    let echo = EchoRequest { payload, ..EchoRequest::default() };
    let stub = ProbeStub::new(channel);
    let calling = AbortOnDropHandle::new(tokio::spawn(async move { stub.echo(echo).await }));
    let (stream, _) = within("the client", listener.accept()).await?;
    let mut server = RawPeer::new(stream);
    within("its Hello", server.read_hello()).await?;
    let paths = SERVICE.methods.iter().map(|method| method.path.to_owned());
    server.send(&hello_with(&LIMITS, paths.collect())).await?;
    let status = within("the end of the call", calling).await?.expect_err("the server stopped");
    println!("{status}");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("(progress_timeout)"), "{status}");
    Ok(())
}
