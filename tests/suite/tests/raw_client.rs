//! The server's own frames, as a client sees them that only writes and reads frames.

use std::time::Duration;

use farcall::Server;
use farcall_suite::proto::probe_rpc::SERVICE;
use farcall_suite::proto::{EchoReply, EchoRequest, ParkRequest};
use farcall_suite::raw_peer::{RawFrame, RawPeer, frame, record};
use farcall_suite::{Failure, Harness, Path, Running, WatchEvent};
use prost::Message;
use rpc_core::wire::outcome::Outcome;
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};
use tonic::{Code, Status};

const LIMIT: Duration = Duration::from_secs(30);
const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const NEXT: u8 = 3;

fn method(name: &str) -> u16 {
    let index = SERVICE.methods.iter().position(|method| method.path.ends_with(name));
    u16::try_from(index.expect("the service has it")).expect("it has few methods")
}

async fn connected() -> Result<(Running, RawPeer), Failure> {
    let server = Harness::new(Path::Tcp, LIMIT).serve().await?;
    let mut client = RawPeer::connect(server.address()).await?;
    let hello = client.greet().await?;
    let paths: Vec<_> = SERVICE.methods.iter().map(|method| method.path).collect();
    let first = &hello.methods[..paths.len()];
    assert_eq!(first, paths, "a method's id is its place in the service, the first one's");
    Ok((server, client))
}

async fn answer(client: &mut RawPeer) -> Result<RawFrame, Failure> {
    let read = tokio::time::timeout(LIMIT, client.read_frame()).await;
    let answer = read.expect("the server answers in time")?;
    assert_eq!(answer.header.kind, FrameKind::Response);
    Ok(answer)
}

fn status(answer: &RawFrame) -> Status {
    let block = answer.body.slice(..answer.header.metadata_len as usize);
    let outcome = Outcome::decode(answer.header.selector, block).expect("the outcome decodes");
    outcome.result.expect_err("the call has failed")
}

fn echo(call: u64, payload: &'static [u8]) -> Vec<u8> {
    let request = EchoRequest { payload: payload.into(), ..Default::default() };
    frame(FrameKind::Request, call, method("/Echo"), &request.encode_to_vec())
}

/// Checks that the connection still works.
async fn check_echo(client: &mut RawPeer, call: u64) -> Result<(), Failure> {
    client.send(&record(WHOLE, 0, &echo(call, b"still here"))).await?;
    let answer = answer(client).await?;
    assert_eq!((answer.header.call, answer.header.selector), (call, 0));
    let reply = EchoReply::decode(answer.body).expect("the reply decodes");
    assert_eq!(reply.payload, "still here");
    Ok(())
}

#[tokio::test]
async fn the_server_ends_a_call_at_its_deadline_without_being_asked() -> Result<(), Failure> {
    let (mut server, mut client) = connected().await?;
    let message = ParkRequest { tag: 3, ..Default::default() }.encode_to_vec();
    let mut request = frame(FrameKind::Request, 7, method("/Park"), &message);
    let mut header = FrameHeader::parse(&request).expect("the header is ours");
    header.argument = 1_000_000;
    request[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    client.send(&record(WHOLE, 0, &request)).await?;
    assert_eq!(server.event().await?, WatchEvent::Entered(3));
    let answer = answer(&mut client).await?;
    assert_eq!(answer.header.call, 7);
    assert_eq!(status(&answer).code(), Code::DeadlineExceeded);
    assert_eq!(server.event().await?, WatchEvent::Dropped(3));
    check_echo(&mut client, 8).await
}

/// A request of 200,000 bytes in two pieces of half of it each.
struct TooLong {
    first: Vec<u8>,
    next: Vec<u8>,
}

/// A server that takes half of that, and its client.
async fn connected_with_too_long() -> Result<(Running, RawPeer, TooLong), Failure> {
    let limits = farcall::Limits::default().with_max_message_len(100_000);
    let server = Harness::new(Path::Tcp, LIMIT).serve_under(limits).await?;
    let mut client = RawPeer::connect(server.address()).await?;
    client.greet().await?;
    let request = frame(FrameKind::Request, 1, method("/Echo"), &vec![0; 200_000]);
    let (first, next) = request.split_at(100_000);
    let first = [&(request.len() as u64).to_le_bytes()[..], first].concat();
    let pieces = TooLong { first: record(FIRST, 1, &first), next: record(NEXT, 1, next) };
    Ok((server, client, pieces))
}

#[tokio::test]
async fn a_message_over_the_limit_is_answered_and_thrown_away() -> Result<(), Failure> {
    let (_server, mut client, pieces) = connected_with_too_long().await?;
    client.send(&pieces.first).await?;
    let answer = answer(&mut client).await?;
    let status = status(&answer);
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("limits.max_message_len"), "{}", status.message());
    client.send(&pieces.next).await?;
    check_echo(&mut client, 2).await
}

/// A client that does not heed the server's limit shares a frame between messages over it, which is
/// no longer than a frame of short messages may be.
#[tokio::test]
async fn messages_over_the_limit_that_share_a_frame_fail_their_stream() -> Result<(), Failure> {
    let limits = farcall::Limits::default().with_max_message_len(1_024);
    let server = Harness::new(Path::Tcp, LIMIT).serve_under(limits).await?;
    let mut client = RawPeer::connect(server.address()).await?;
    client.greet().await?;
    let framed = |len: usize| {
        let message = EchoRequest { payload: vec![7; len].into(), ..Default::default() };
        let message = message.encode_to_vec();
        let len = u32::try_from(message.len()).expect("it is short");
        [&len.to_le_bytes()[..], &message].concat()
    };
    for (call, lens) in (1..).zip([[10, 5_000, 5_000], [5_000, 10, 10]]) {
        let mut request = frame(FrameKind::Request, call, method("/Upload"), &[]);
        let mut header = FrameHeader::parse(&request).expect("the header is ours");
        header.is_streaming = true;
        request[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        client.send(&record(WHOLE, 0, &request)).await?;
        let messages: Vec<u8> = lens.into_iter().flat_map(framed).collect();
        client.send(&record(WHOLE, 0, &frame(FrameKind::Messages, call, 0, &messages))).await?;
        let answer = loop {
            let read = tokio::time::timeout(LIMIT, client.read_frame()).await;
            let read = read.expect("the server answers in time")?;
            if read.header.kind == FrameKind::Response {
                break read;
            }
        };
        let status = status(&answer);
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        assert!(status.message().contains("limits.max_message_len"), "{status}");
    }
    check_echo(&mut client, 9).await
}

#[tokio::test]
async fn a_piece_that_asks_is_answered_with_receipts() -> Result<(), Failure> {
    let (_server, mut client, mut pieces) = connected_with_too_long().await?;
    pieces.first[1] = 1;
    client.send(&pieces.first).await?;
    // What is thrown away is read, too.
    assert_eq!(status(&answer(&mut client).await?).code(), Code::ResourceExhausted);
    let mut read = 0;
    while read < 100_000 {
        let receipt = tokio::time::timeout(LIMIT, client.read_receipt()).await;
        read = receipt.expect("the server tells in time")?;
    }
    // This piece does not ask, and nothing comes before the answer to the next call.
    client.send(&pieces.next).await?;
    check_echo(&mut client, 2).await
}

#[tokio::test]
async fn a_method_id_of_nothing_is_unimplemented() -> Result<(), Failure> {
    let (_server, mut client) = connected().await?;
    client.send(&record(WHOLE, 0, &frame(FrameKind::Request, 1, u16::MAX, b""))).await?;
    assert_eq!(status(&answer(&mut client).await?).code(), Code::Unimplemented);
    check_echo(&mut client, 2).await
}

#[tokio::test]
async fn a_cancel_of_nothing_is_nothing() -> Result<(), Failure> {
    let (_server, mut client) = connected().await?;
    client.send(&record(WHOLE, 0, &frame(FrameKind::Cancel, 77, 0, b""))).await?;
    check_echo(&mut client, 2).await
}

#[tokio::test]
async fn a_cancelled_call_is_dropped_and_never_answered() -> Result<(), Failure> {
    let (mut server, mut client) = connected().await?;
    let message = ParkRequest { tag: 3, ..Default::default() }.encode_to_vec();
    let request = frame(FrameKind::Request, 7, method("/Park"), &message);
    client.send(&record(WHOLE, 0, &request)).await?;
    assert_eq!(server.event().await?, WatchEvent::Entered(3));
    client.send(&record(WHOLE, 0, &frame(FrameKind::Cancel, 7, 0, b""))).await?;
    assert_eq!(server.event().await?, WatchEvent::Dropped(3));
    check_echo(&mut client, 8).await
}

#[tokio::test]
async fn a_client_that_vanishes_takes_its_handlers_along() -> Result<(), Failure> {
    let (mut server, mut client) = connected().await?;
    let message = ParkRequest { tag: 3, ..Default::default() }.encode_to_vec();
    let request = frame(FrameKind::Request, 7, method("/Park"), &message);
    client.send(&record(WHOLE, 0, &request)).await?;
    assert_eq!(server.event().await?, WatchEvent::Entered(3));
    // Inside a frame, as it happens when a process is killed.
    client.send(&record(WHOLE, 0, &echo(8, b"cut short"))[..20]).await?;
    drop(client);
    assert_eq!(server.event().await?, WatchEvent::Dropped(3));
    server.until("the connection's end", |server| server.connections().is_empty()).await
}

fn ping(number: u64) -> Vec<u8> {
    let mut header = FrameHeader::bare(FrameKind::Ping, 0);
    header.argument = number;
    record(WHOLE, 0, &header.to_bytes())
}

#[tokio::test]
async fn a_ping_is_answered_with_its_number() -> Result<(), Failure> {
    let (_server, mut client) = connected().await?;
    client.send(&ping(77)).await?;
    let pong = tokio::time::timeout(LIMIT, client.read_frame()).await.expect("an answer")?;
    assert_eq!((pong.header.kind, pong.header.argument), (FrameKind::Pong, 77));
    check_echo(&mut client, 1).await
}

#[tokio::test]
async fn a_flood_of_pings_costs_its_connection() -> Result<(), Failure> {
    let (server, mut client) = connected().await?;
    let flood: Vec<u8> = (0..1000).flat_map(ping).collect();
    // The server may close before it has read all.
    let _ = client.send(&flood).await;
    tokio::time::timeout(LIMIT, client.closed()).await.expect("the server closes");
    server.until("its end at the server", |server| server.connections().is_empty()).await
}

/// A request that crosses the server's word comes back as one that no handler has seen.
#[tokio::test]
async fn a_request_after_goaway_is_refused_as_not_executed() -> Result<(), Failure> {
    let idle = Duration::from_millis(5);
    let builder = |probe| Server::builder().idle_timeout(idle).add_service(probe);
    let server = Harness::new(Path::Tcp, LIMIT).serve_with(builder).await?;
    let mut client = RawPeer::connect(server.address()).await?;
    client.greet().await?;
    let word = tokio::time::timeout(LIMIT, client.read_frame()).await.expect("in time")?;
    assert_eq!((word.header.kind, word.header.call), (FrameKind::GoAway, 0));
    client.send(&record(WHOLE, 0, &echo(1, b"too late"))).await?;
    let answer = answer(&mut client).await?;
    assert!(answer.header.is_not_executed, "{answer:?}");
    assert_eq!(status(&answer).code(), Code::Unavailable);
    // It need not wait for a client that has understood, and does not wait for ever.
    client.finish().await?;
    tokio::time::timeout(LIMIT, client.closed()).await.expect("the server closes");
    Ok(())
}
