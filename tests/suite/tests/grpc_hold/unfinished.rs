//! Frames and headers that begin and do not end.

use farcall::Server;
use farcall_suite::interop_proto::Empty;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::service::{Running, serve, until, within};

/// A frame's header, for the first stream.
fn frame_header(len: u32, kind: u8, flags: u8) -> Vec<u8> {
    let [_, high, middle, low] = len.to_be_bytes();
    vec![high, middle, low, kind, flags, 0, 0, 0, 1]
}

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// A raw client that has sent its SETTINGS and these bytes.
async fn begin(running: &Running, rest: &[u8]) -> TcpStream {
    let mut stream = within(TcpStream::connect(&running.authority)).await.expect("it listens");
    let opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(&[opening, rest].concat()).await.expect("it is open");
    stream
}

/// `accept-encoding: gzip, deflate` a hundred times, as HPACK's own table has it.
const MANY: [u8; 100] = [0x90; 100];

#[tokio::test]
async fn headers_without_an_end_count_until_they_end() {
    let running = serve(Server::builder().max_memory(64 << 20)).await;
    let _idle = begin(&running, &[]).await;
    within(until(|| running.grpc_connections() == 1)).await;
    within(until(|| running.server.memory_held() > 0)).await;
    let idle = running.server.memory_held();
    for begun in [
        [&frame_header(100, HEADERS, 0)[..], &MANY].concat(),
        [&frame_header(100, HEADERS, 4)[..], &MANY[..99]].concat(),
        [&frame_header(0, HEADERS, 0)[..], &frame_header(100, CONTINUATION, 4), &MANY[..1]]
            .concat(),
    ] {
        let stream = begin(&running, &begun).await;
        within(until(|| running.server.memory_held() > 2 * idle + 100_000)).await;
        println!("open headers count {} bytes", running.server.memory_held() - 2 * idle);
        drop(stream);
        within(until(|| running.server.memory_held() == idle)).await;
    }
}

#[tokio::test]
async fn open_headers_end_at_max_memory_and_others_are_served() {
    let running = serve(Server::builder().max_memory(8 << 20)).await;
    let begun = [&frame_header(100, HEADERS, 0)[..], &MANY].concat();
    let mut open = Vec::new();
    let mut most = 0;
    for _ in 0..100 {
        open.push(begin(&running, &begun).await);
        most = most.max(running.server.memory_held());
    }
    within(until(|| running.server.memory_held() > 3 << 20)).await;
    most = most.max(running.server.memory_held());
    println!("100 clients with open headers count {most} bytes at most");
    assert!(most <= 9 << 20, "{most}");
    let mut other = running.client_from([127, 0, 0, 2].into()).await;
    within(other.empty_call(Empty {})).await.expect("others are served");
}
