//! Calls next to others that are unread, excessive, or cancelled; and interim responses.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{TryStreamExt, future};
use http::{HeaderMap, HeaderValue, Response};
use rpc_core::Status;
use rpc_core::client::{ClientConfig, Connect, EncodedReply, Established, StreamPart};
use rpc_core::connect::Wanted;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::go_away_tests::{END_HEADERS, HEADERS, SETTINGS, Server};
use super::go_away_tests::{SERVER_STREAMING, UNARY, connected, start, status, within};
use super::test_stream::connector;

const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;

/// Returns a message of `len` bytes with gRPC's prefix.
fn framed(len: u32) -> Bytes {
    [&[0][..], &len.to_be_bytes(), &vec![7; len as usize]].concat().into()
}

/// The messages of each response: `count` of them, of `len` bytes, each in its own frame.
#[derive(Debug, Clone, Copy)]
struct Download {
    count: usize,
    len: u32,
}

/// Starts a server that answers the first `downloads` calls with a download and all others with one
/// message.
async fn serve(downloads: usize, download: Download) -> (Established, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut calls = 0;
        while let Some(Ok((request, respond))) = connection.accept().await {
            calls += 1;
            let one = Download { count: 1, len: 3 };
            let download = if calls <= downloads { download } else { one };
            tokio::spawn(answer(request, respond, download));
        }
    });
    let connector = connector(authority, ClientConfig::default());
    let connection = within(connector.connect(Wanted::Bootstrap("broken".into()))).await.unwrap();
    (connection, AbortOnDropHandle::new(serving))
}

async fn answer(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    Download { count, len }: Download,
) {
    let mut response = Response::new(());
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", grpc);
    let mut stream = respond.send_response(response, false).unwrap();
    for _ in 0..count {
        let message = framed(len);
        stream.reserve_capacity(message.len());
        while stream.capacity() < message.len() {
            let Some(Ok(_)) = future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        }
        stream.send_data(message, false).unwrap();
    }
    let ok = [("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))];
    stream.send_trailers(HeaderMap::from_iter(ok)).unwrap();
    drop(request);
}

type Parts = BoxStream<'static, Result<StreamPart, Status>>;

async fn downloads(connection: &Established, count: usize) -> Vec<Parts> {
    let calls: Vec<_> = (0..count).map(|_| start(connection, &SERVER_STREAMING)).collect();
    let replies = calls.into_iter().map(|call| async {
        match within(call).await.unwrap().unwrap() {
            EncodedReply::Stream { parts, .. } => parts,
            EncodedReply::Message { .. } => panic!("it has a stream"),
        }
    });
    future::join_all(replies).await
}

async fn check_unary(connection: &Established) {
    for _ in 0..10 {
        within(start(connection, &UNARY)).await.unwrap().unwrap();
    }
}

const LARGE: Download = Download { count: 80, len: 16_000 };

#[tokio::test]
async fn unread_downloads_leave_other_calls_alone() {
    for count in [4, 40] {
        let (connection, _serving) = serve(count, LARGE).await;
        let downloads = downloads(&connection, count).await;
        check_unary(&connection).await;
        drop(downloads);
        check_unary(&connection).await;
    }
}

#[tokio::test]
async fn downloads_that_are_read_in_turn_end() {
    let (connection, _serving) = serve(20, LARGE).await;
    for parts in downloads(&connection, 20).await {
        let parts: Vec<_> = within(parts.try_collect()).await.unwrap();
        assert_eq!(parts.len(), LARGE.count + 1);
    }
}

/// h2 counts unread small frames, and ends a connection with too many of them.
#[tokio::test]
async fn unread_tiny_messages_cost_no_connection() {
    let tiny = Download { count: 5000, len: 2 };
    let (connection, _serving) = serve(3, tiny).await;
    let downloads = downloads(&connection, 3).await;
    check_unary(&connection).await;
    for parts in downloads {
        let parts: Vec<_> = within(parts.try_collect()).await.unwrap();
        assert_eq!(parts.len(), tiny.count + 1);
    }
}

/// `:status: 200` by its index in HPACK's static table, and `grpc-status: 5`.
const NOT_FOUND: &[u8] = b"\x88\x00\x0bgrpc-status\x015";

impl Server {
    /// Limits the number of open streams.
    async fn limit_streams(&mut self, max: u8) {
        self.send(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, max]).await;
        self.check_nothing_opened().await;
    }

    /// Reads the headers of the next stream.
    async fn next_opened(&mut self) -> u32 {
        within(async {
            loop {
                if let (HEADERS, _, id) = self.frame().await {
                    return id;
                }
            }
        })
        .await
    }

    /// Checks that the client opens no stream before it has read the sent frames.
    async fn check_nothing_opened(&mut self) {
        self.send(PING, 0, 0, &[7; 8]).await;
        loop {
            match within(self.frame()).await {
                (HEADERS, _, id) => panic!("stream {id} is beyond the limit"),
                (PING, ACK, _) => break,
                _ => {}
            }
        }
    }

    async fn end(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, NOT_FOUND).await;
    }
}

/// Servers count small frames that are not the last of their stream.
#[tokio::test]
async fn the_frame_of_a_unary_call_ends_its_stream() {
    let (connection, mut server) = connected().await;
    let _call = start(&connection, &UNARY);
    server.opened(1).await;
    assert_eq!(within(server.frame()).await, (DATA, END_STREAM, 1));
}

#[tokio::test]
async fn calls_wait_for_a_stream_after_the_limit_falls() {
    let (connection, mut server) = connected().await;
    server.limit_streams(3).await;
    let calls: Vec<_> = (0..10).map(|_| start(&connection, &UNARY)).collect();
    let mut open = VecDeque::new();
    for _ in 0..3 {
        open.push_back(server.next_opened().await);
    }
    server.limit_streams(1).await;
    for _ in 0..2 {
        server.end(open.pop_front().unwrap()).await;
        server.check_nothing_opened().await;
    }
    for _ in 0..7 {
        server.end(open.pop_front().unwrap()).await;
        open.push_back(server.next_opened().await);
        server.check_nothing_opened().await;
    }
    server.end(open.pop_front().unwrap()).await;
    for call in calls {
        assert_eq!(status(call).await.code(), tonic::Code::NotFound);
    }
    assert!(connection.is_open());
}

/// The answers cross the resets. h2 remembers few streams, and counts answers to forgotten ones.
#[tokio::test]
async fn answers_to_cancelled_calls_cost_no_connection() {
    const CALLS: usize = 3000;
    let (connection, mut server) = connected().await;
    server.limit_streams(0).await;
    server.send(SETTINGS, 0, 0, &[0, 3, 0, 1, 0, 0]).await;
    let calls: Vec<_> = (0..CALLS).map(|_| start(&connection, &UNARY)).collect();
    let mut streams = Vec::new();
    while streams.len() < CALLS {
        streams.push(server.next_opened().await);
    }
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    let mut resets = 0;
    while resets < CALLS {
        resets += usize::from(within(server.frame()).await.0 == RST_STREAM);
    }
    for stream in streams {
        server.send(HEADERS, END_HEADERS, stream, &NOT_FOUND[..1]).await;
        server.send(DATA, END_STREAM, stream, b"\0\0\0\0\0").await;
    }
    let call = start(&connection, &UNARY);
    let stream = server.next_opened().await;
    server.end(stream).await;
    assert_eq!(status(call).await.code(), tonic::Code::NotFound);
    assert!(connection.is_open());
    assert_eq!(
        tokio::time::timeout(Duration::ZERO, connection.ended().cancelled()).await.ok(),
        None
    );
}

/// `:status: 103` as a literal.
const EARLY_HINTS: &[u8] = b"\x08\x03103";

#[tokio::test]
async fn interim_responses_are_skipped() {
    for method in [&UNARY, &SERVER_STREAMING] {
        let (connection, mut server) = connected().await;
        let call = start(&connection, method);
        server.opened(1).await;
        for _ in 0..3 {
            server.send(HEADERS, END_HEADERS, 1, EARLY_HINTS).await;
        }
        server.end(1).await;
        assert_eq!(status(call).await.code(), tonic::Code::NotFound);
        // An interim response that ends its stream is malformed, and costs only its own call.
        let call = start(&connection, method);
        server.opened(3).await;
        server.send(HEADERS, END_HEADERS | END_STREAM, 3, EARLY_HINTS).await;
        let status = status(call).await;
        assert_ne!(status.code(), tonic::Code::Ok, "{status}");
    }
}
