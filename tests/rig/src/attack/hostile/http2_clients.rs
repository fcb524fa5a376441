//! Hostile clients of gRPC: calls that stop at their headers, frames that are tiny, connections
//! that do nothing, answers that are not taken, and pongs without pings.

use super::orders::Orders;
use super::peer::{Peer, Reading};

/// The preface, and SETTINGS that set nothing.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Headers of one call: HTTP/2 counts 23 KiB, and decoded they take 100 KB.
const HEADERS: usize = 600;

/// Calls of one connection: the default of `Limits::max_calls`.
const CALLS: u32 = 1024;

const STREAM: &str = "/farcall.suite.Probe/Chat";
const UNKNOWN: &str = "/farcall.suite.Probe/Unknown";
const UNARY: &str = "/farcall.suite.Probe/Echo";

/// SETTINGS with windows of no bytes for what the victim sends.
const NO_WINDOWS: &[u8] = b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";

/// Frames of HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data = 0,
    Headers = 1,
    Ping = 6,
}

fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind as u8, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The headers of a call, as HPACK's literals, with so many more.
fn call(stream: u32, flags: u8, path: &str, more: usize) -> Vec<u8> {
    let fixed = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
        ("content-type", "application/grpc"),
    ];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value));
    let more = (0..more).map(|number| (format!("x{number}"), ""));
    let mut block = Vec::new();
    for (name, value) in fixed.into_iter().chain(more) {
        block.push(0);
        for text in [&*name, value] {
            // All are shorter than the 127 bytes of HPACK's shortest lengths.
            block.push(u8::try_from(text.len()).unwrap_or_default());
            block.extend_from_slice(text.as_bytes());
        }
    }
    // With END_HEADERS.
    frame(Kind::Headers, flags | 4, stream, &block)
}

/// The ids of a client's streams.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

async fn opened(orders: &Orders, reading: Reading) -> Option<Peer> {
    let mut peer = Peer::connect(orders.victim, reading, &orders.record).await.ok()?;
    match peer.send(OPENING).await {
        Ok(()) => Some(peer),
        Err(_) => {
            peer.count_closed();
            None
        }
    }
}

/// Keeps a connection, and reads what comes if its peer reads.
fn keep(peer: Option<Peer>, reading: Reading) {
    let Some(peer) = peer else { return };
    tokio::spawn(async move {
        match reading {
            Reading::Everything => peer.wait_for_end().await,
            Reading::Nothing => {
                let _peer = peer;
                std::future::pending::<()>().await;
            }
        }
    });
}

async fn send(orders: &Orders, reading: Reading, parts: impl Iterator<Item = Vec<u8>>) {
    if let Some(peer) = opened(orders, reading).await {
        keep(orders.send_and_stay(peer, parts).await, reading);
    }
}

/// Unary calls with many headers, whose message never comes.
pub(super) async fn headers_alone(orders: &Orders) {
    for _ in 0..orders.scale.pick(4, 20) {
        let calls = streams(CALLS).map(|stream| call(stream, 0, UNARY, HEADERS));
        send(orders, Reading::Everything, calls).await;
    }
}

/// Streams of the shortest messages for handlers that do not read, each in a frame of its own.
pub(super) async fn tiny_frames(orders: &Orders) {
    for _ in 0..orders.scale.pick(2, 20) {
        // Handlers wait for room for their answers.
        let begun = streams(100).map(|stream| call(stream, 0, STREAM, 0));
        let begun = std::iter::once(NO_WINDOWS.to_vec()).chain(begun);
        let message = |stream| frame(Kind::Data, 0, stream, &[0; 5]);
        let messages = streams(100).map(move |stream| message(stream).repeat(2_000));
        send(orders, Reading::Everything, begun.chain(messages)).await;
    }
}

/// Connections that do nothing.
pub(super) async fn idle(orders: &Orders) {
    for _ in 0..orders.scale.pick(1_000, 5_000) {
        keep(opened(orders, Reading::Everything).await, Reading::Everything);
    }
}

/// Calls of a method that there is not. Their answers are headers alone, and nothing is read.
pub(super) async fn untaken(orders: &Orders) {
    for _ in 0..orders.scale.pick(20, 200) {
        // With END_STREAM.
        let calls = streams(20 * CALLS).map(|stream| call(stream, 1, UNKNOWN, 0));
        let calls = calls.collect::<Vec<_>>().concat();
        let parts = calls.chunks(64 << 10).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let orders = orders.clone();
        tokio::spawn(async move {
            send(&orders, Reading::Nothing, parts.into_iter()).await;
        });
    }
}

/// Answers to pings that were not sent, of which h2 warns.
pub(super) async fn stray_pongs(orders: &Orders) {
    let pong = frame(Kind::Ping, 1, 0, b"farcall!");
    let parts = (0..orders.scale.pick(40, 400)).map(|_| pong.repeat(500));
    send(orders, Reading::Everything, parts).await;
}
