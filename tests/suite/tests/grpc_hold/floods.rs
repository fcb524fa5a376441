//! Clients that make HTTP/2 warn.

use std::net::SocketAddr;

use farcall::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::log::Log;
use crate::service::{serve, within};

/// The lines that a kind may have in a flood of seconds.
const LINES_MAX: usize = 20;

const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// An acknowledgement of a ping that was not sent.
const STRAY_PONG: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0farcall!";

async fn said(authority: &str, bytes: &[u8]) -> (SocketAddr, Vec<u8>) {
    let mut stream = TcpStream::connect(authority).await.expect("it listens");
    let address = stream.local_addr().expect("it is open");
    let _ = stream.write_all(&[OPENING, bytes].concat()).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    (address, answer)
}

#[tokio::test]
async fn stray_pongs_write_no_lines() {
    let (log, _capturing) = Log::capture();
    let running = serve(Server::builder()).await;
    within(said(&running.authority, &STRAY_PONG.repeat(1_000))).await;
    let lines = log.take_lines();
    assert!(lines.len() <= LINES_MAX, "{} lines: {:?}", lines.len(), lines.first());
}

/// Frames of HEADERS that do not end: HTTP/2 ends the connection.
#[tokio::test]
async fn a_limit_that_ends_a_connection_is_named_with_the_peer() {
    let (log, _capturing) = Log::capture();
    let running = serve(Server::builder()).await;
    let begun = b"\0\0\0\x01\0\0\0\0\x01";
    let flood = [&begun[..], &b"\0\0\0\x09\0\0\0\0\x01".repeat(1_000)].concat();
    let mut peers = Vec::new();
    for _ in 0..100 {
        peers.push(within(said(&running.authority, &flood)).await.0);
    }
    let lines = log.take_lines();
    println!("{:?}", lines.first());
    assert!(!lines.is_empty() && lines.len() <= LINES_MAX, "{} lines", lines.len());
    assert!(lines[0].contains(&peers[0].to_string()), "{}", lines[0]);
    assert!(lines[0].contains("too_many_continuations"), "{}", lines[0]);
}
