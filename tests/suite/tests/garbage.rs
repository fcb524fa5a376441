//! Peers that do not speak the protocol: each costs itself its connection, and one line in the log.

mod log;

use std::time::Duration;

use farcall_suite::proto::probe_rpc::{ProbeStub, SERVICE};
use farcall_suite::proto::{EchoRequest, ParkRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_bytes, record};
use farcall_suite::{Failure, Harness, Path, Running, payload};
use log::Log;
use prost::Message;
use rpc_core::wire::{FrameHeader, FrameKind};

const LIMIT: Duration = Duration::from_secs(30);
const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const NEXT: u8 = 3;
const ACK: u8 = 4;

/// The first bytes of a bad peer.
#[derive(Clone, Copy, PartialEq)]
enum Opening {
    Garbage,
    Hello,
}

async fn echo(stub: &ProbeStub, seed: u64) -> Result<(), Failure> {
    let payload = payload(seed, 1000);
    let request = EchoRequest { payload: payload.clone(), ..Default::default() };
    let reply = stub.echo(request).await?.into_inner();
    assert_eq!(reply.payload, payload);
    Ok(())
}

/// The bad peer says `bytes`; meanwhile and afterwards a good one is served.
async fn offend(
    server: &Running,
    good: &ProbeStub,
    opening: Opening,
    bytes: &[u8],
) -> Result<(), Failure> {
    let mut bad = RawPeer::connect(server.address()).await?;
    if opening == Opening::Hello {
        bad.greet().await?;
    }
    let offence = async {
        // The server may have closed before it has read everything.
        let _ = bad.send(bytes).await;
        let _ = bad.finish().await;
        bad.closed().await;
    };
    let service = async {
        for seed in 0..10 {
            echo(good, seed).await?;
        }
        Ok::<_, Failure>(())
    };
    let both = async { tokio::join!(offence, service).1 };
    tokio::time::timeout(LIMIT, both).await.expect("the bad connection is closed in time")?;
    server.until("the end of the bad connection", |server| server.connections().len() == 1).await?;
    echo(good, 99).await
}

/// Checks that `bytes` cost their connection, and one line that says `words`.
async fn costs_one_line(opening: Opening, bytes: &[u8], text: &str) -> Result<(), Failure> {
    let (log, _capturing) = Log::capture();
    let server = Harness::new(Path::Tcp, LIMIT).serve().await?;
    let good = server.stub().await?;
    offend(&server, &good, opening, bytes).await?;
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("WARN") && lines[0].contains(text), "{}", lines[0]);
    assert!(lines[0].contains("127.0.0.1:"), "it names the peer: {}", lines[0]);
    Ok(())
}

fn park(call: u64) -> Vec<u8> {
    let path = "/farcall.suite.Probe/Park";
    let index = SERVICE.methods.iter().position(|method| method.path == path);
    let index = u16::try_from(index.expect("the service has it")).expect("it has few methods");
    frame(FrameKind::Request, call, index, &ParkRequest::default().encode_to_vec())
}

#[tokio::test]
async fn random_bytes_cost_one_connection_and_one_line_each() -> Result<(), Failure> {
    let (log, _capturing) = Log::capture();
    for tens in 0..10 {
        // So many lines of each kind a server writes at once.
        let server = Harness::new(Path::Tcp, LIMIT).serve().await?;
        let good = server.stub().await?;
        for (seed, opening) in (10 * tens..10 * (tens + 1)).flat_map(|seed| {
            [Opening::Garbage, Opening::Hello].into_iter().map(move |opening| (seed, opening))
        }) {
            let bytes = payload(seed, 16 + 50 * usize::try_from(seed).expect("it is small"));
            offend(&server, &good, opening, &bytes).await?;
            let lines = log.take_lines();
            assert_eq!(lines.len(), 1, "seed {seed}: {lines:#?}");
            assert!(lines[0].contains("WARN"), "seed {seed}: {}", lines[0]);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_foreign_protocol_is_named() -> Result<(), Failure> {
    let ssh = b"SSH-2.0-OpenSSH_9.2\r\n";
    costs_one_line(Opening::Garbage, ssh, "does not speak farcall: this is SSH").await
}

#[tokio::test]
async fn a_future_version_is_named() -> Result<(), Failure> {
    let mut hello = hello_bytes(Vec::new());
    hello[8..12].copy_from_slice(&[7, 0, 9, 0]);
    costs_one_line(Opening::Garbage, &hello, "the peer speaks 7 to 9, this side speaks 1 to 1")
        .await
}

#[tokio::test]
async fn a_hello_over_the_limit_is_named() -> Result<(), Failure> {
    let mut hello = hello_bytes(Vec::new());
    hello[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    costs_one_line(Opening::Garbage, &hello, "4294967295 bytes is over the limit").await
}

#[tokio::test]
async fn a_hello_that_does_not_decode_is_named() -> Result<(), Failure> {
    let mut hello = hello_bytes(Vec::new());
    hello.truncate(12);
    hello.extend([4, 0, 0, 0, 255, 255, 255, 255]);
    costs_one_line(Opening::Garbage, &hello, "Hello does not decode").await
}

#[tokio::test]
async fn a_peer_that_ends_inside_its_hello_is_a_line_of_info() -> Result<(), Failure> {
    let (log, _capturing) = Log::capture();
    let server = Harness::new(Path::Tcp, LIMIT).serve().await?;
    let good = server.stub().await?;
    offend(&server, &good, Opening::Garbage, b"farcall\n").await?;
    assert!(log.lines().is_empty(), "a cable that is pulled is no attack: {log:?}");
    let mut lines = log.all_lines();
    lines.retain(|line| line.contains("handshake"));
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    let pieces = ["disconnected during its handshake", "early eof", "127.0.0.1:"];
    assert!(pieces.iter().all(|piece| line.contains(piece)), "{line}");
    Ok(())
}

#[tokio::test]
async fn a_record_of_no_kind_is_named() -> Result<(), Failure> {
    costs_one_line(Opening::Hello, &record(9, 0, &[0; 40]), "record kind has the unknown value 9")
        .await
}

#[tokio::test]
async fn a_record_over_the_limit_is_named() -> Result<(), Failure> {
    let mut endless = record(WHOLE, 0, &park(1));
    endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    costs_one_line(Opening::Hello, &endless, "record of 4294967295 bytes is over the limit").await
}

#[tokio::test]
async fn a_frame_that_its_header_contradicts_is_named() -> Result<(), Failure> {
    let mut frame = park(1);
    frame.push(0);
    costs_one_line(Opening::Hello, &record(WHOLE, 0, &frame), "over the limit").await?;
    let mut first = u64::MAX.to_le_bytes().to_vec();
    first.extend(park(1));
    costs_one_line(Opening::Hello, &record(FIRST, 1, &first), "over the limit").await
}

#[tokio::test]
async fn a_chunk_of_no_frame_is_named() -> Result<(), Failure> {
    let text = "transfer of a next chunk has the unknown value 7";
    costs_one_line(Opening::Hello, &record(NEXT, 7, &[0; 100]), text).await
}

#[tokio::test]
async fn an_ack_of_what_was_not_sent_is_named() -> Result<(), Failure> {
    let ack = record(ACK, 0, &1000_u64.to_le_bytes());
    costs_one_line(Opening::Hello, &ack, "ack has the unknown value 1000").await
}

#[tokio::test]
async fn a_mark_on_a_whole_frame_is_named() -> Result<(), Failure> {
    let mut marked = record(WHOLE, 0, &park(1));
    marked[1] = 1;
    costs_one_line(Opening::Hello, &marked, "mark of a record has the unknown value 1").await
}

#[tokio::test]
async fn a_call_that_is_started_twice_is_named() -> Result<(), Failure> {
    let twice = [record(WHOLE, 0, &park(5)), record(WHOLE, 0, &park(5))].concat();
    costs_one_line(Opening::Hello, &twice, "call 0x5 was started twice").await
}

#[tokio::test]
async fn a_large_call_that_is_announced_twice_is_named() -> Result<(), Failure> {
    let frame = frame(FrameKind::Request, 5, 0, &[0; 200_000]);
    let first = |transfer| {
        let body = [&(frame.len() as u64).to_le_bytes()[..], &frame[..1000]].concat();
        record(FIRST, transfer, &body)
    };
    let twice = [first(1), first(2)].concat();
    costs_one_line(Opening::Hello, &twice, "call 0x5 was started twice").await
}

#[tokio::test]
async fn calls_over_the_limit_are_named() -> Result<(), Failure> {
    let calls: Vec<u8> = (0..1025).flat_map(|call| record(WHOLE, 0, &park(call))).collect();
    costs_one_line(Opening::Hello, &calls, "limits.max_calls").await
}

#[tokio::test]
async fn a_response_to_a_server_is_named() -> Result<(), Failure> {
    let response = record(WHOLE, 0, &frame(FrameKind::Response, 1, 0, b""));
    costs_one_line(Opening::Hello, &response, "a client may not send a Response frame").await
}

/// Each would be kept, and the stream's window would count none of them.
#[tokio::test]
async fn a_frame_of_messages_without_messages_is_named() -> Result<(), Failure> {
    let empty = record(WHOLE, 0, &frame(FrameKind::Messages, 1, 0, b""));
    costs_one_line(Opening::Hello, &empty, "frame of messages is cut short: 0 bytes").await
}

/// It would be kept with the frame, and no limit counts it.
#[tokio::test]
async fn metadata_on_a_frame_that_has_none_is_named() -> Result<(), Failure> {
    let kinds = [
        FrameKind::Messages,
        FrameKind::HalfClose,
        FrameKind::Cancel,
        FrameKind::Window,
        FrameKind::Ping,
        FrameKind::Pong,
    ];
    for kind in kinds {
        let mut header = FrameHeader::bare(kind, 1);
        header.metadata_len = 1000;
        let message: &[u8] = if kind == FrameKind::Messages { &[0; 4] } else { &[] };
        header.message_len = message.len() as u64;
        let frame = [&header.to_bytes()[..], &[0; 1000], message].concat();
        let text = format!("a {kind:?} frame has no metadata, but this one has 1000 bytes");
        costs_one_line(Opening::Hello, &record(WHOLE, 0, &frame), &text).await?;
    }
    Ok(())
}
