//! The fate of calls whose server sends GOAWAY, frame by frame.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use rpc_core::client::{
    ClientConfig, Connect, EncodedBody, EncodedCall, EncodedReply, Established,
};
use rpc_core::connect::Wanted;
use rpc_core::{CallKind, Idempotency, MayHaveExecuted, MethodDescriptor, NotExecuted, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tonic::Extensions;
use tonic::metadata::MetadataMap;

use super::test_stream::connector;

const LIMIT: Duration = Duration::from_secs(10);

/// Waits for `future`, but not forever.
pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

const fn method(kind: CallKind) -> MethodDescriptor {
    let idempotency = Idempotency::Unknown;
    MethodDescriptor::new("/test.Test/Call", kind, idempotency)
}

pub(super) static UNARY: MethodDescriptor = method(CallKind::Unary);
static CLIENT_STREAMING: MethodDescriptor = method(CallKind::ClientStreaming);
pub(super) static SERVER_STREAMING: MethodDescriptor = method(CallKind::ServerStreaming);

/// A server that sends frames on command.
pub(super) struct Server(TcpStream);

pub(super) const HEADERS: u8 = 1;
pub(super) const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;

pub(super) const END_HEADERS: u8 = 4;

impl Server {
    pub(super) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = u8::try_from(payload.len()).expect("it is short");
        let head = [&[0, 0, len, kind, flags][..], &stream.to_be_bytes()].concat();
        let frame = [&head, payload].concat();
        self.0.write_all(&frame).await.expect("the client listens");
    }

    /// Sends a GOAWAY: the server does not take streams above `last`.
    async fn send_go_away(&mut self, last: u8, reason: h2::Reason) {
        let reason = u32::from(reason).to_be_bytes();
        self.send(GO_AWAY, 0, 0, &[&[0, 0, 0, last], &reason[..]].concat()).await;
    }

    /// Reads the next frame. Returns its type, flags and stream.
    pub(super) async fn frame(&mut self) -> (u8, u8, u32) {
        let [a, b, c, kind, flags, id @ ..] = self.read::<9>().await;
        for _ in 0..u32::from_be_bytes([0, a, b, c]) {
            self.read::<1>().await;
        }
        (kind, flags, u32::from_be_bytes(id))
    }

    /// Reads up to the headers of a stream.
    pub(super) async fn opened(&mut self, stream: u32) {
        let read =
            async { while !matches!(self.frame().await, (HEADERS, _, id) if id == stream) {} };
        within(read).await;
    }

    async fn read<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        self.0.read_exact(&mut bytes).await.expect("the client goes on");
        bytes
    }
}

/// Returns a connection, and its server, which has sent its SETTINGS.
pub(super) async fn connected() -> (Established, Server) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let connector = connector(authority, ClientConfig::default());
    let accepted = async {
        let mut server = Server(listener.accept().await.unwrap().0);
        server.read::<24>().await;
        server.send(SETTINGS, 0, 0, &[]).await;
        server
    };
    let (connection, server) = within(futures::future::join(
        connector.connect(Wanted::Bootstrap("broken".into())),
        accepted,
    ))
    .await;
    (connection.unwrap(), server)
}

/// Starts a call whose first message is sent and whose other messages, if any, never arrive.
pub(super) fn start(
    connection: &Established,
    method: &'static MethodDescriptor,
) -> JoinHandle<Result<EncodedReply, Status>> {
    let message = Bytes::from_static(b"request");
    let body = match method.kind.has_request_stream() {
        true => EncodedBody::Stream(stream::iter([Ok(message)]).chain(stream::pending()).boxed()),
        false => EncodedBody::Message(message),
    };
    let (metadata, extensions) = (MetadataMap::new(), Extensions::new());
    let call = EncodedCall { method: method.into(), metadata, extensions, limit: None, body };
    let Established::Encoded(connection) = connection else { panic!("it takes encoded calls") };
    tokio::spawn(Arc::clone(connection).call(call))
}

pub(super) async fn status(call: JoinHandle<Result<EncodedReply, Status>>) -> Status {
    match within(call).await.unwrap() {
        Ok(_) => panic!("the server has not answered"),
        Err(status) => status,
    }
}

#[tokio::test]
async fn streams_above_the_last_one_were_not_executed() {
    let kinds = [&UNARY, &CLIENT_STREAMING, &SERVER_STREAMING];
    let reasons = [h2::Reason::NO_ERROR, h2::Reason::ENHANCE_YOUR_CALM];
    for (refused, reason) in kinds.into_iter().flat_map(|kind| reasons.map(|it| (kind, it))) {
        let (connection, mut server) = connected().await;
        let taken = start(&connection, &UNARY);
        server.opened(1).await;
        let above = start(&connection, refused);
        server.opened(3).await;
        server.send_go_away(1, reason).await;
        let status_above = status(above).await;
        assert!(NotExecuted::matches(&status_above), "{:?}: {status_above}", refused.kind);
        assert!(!taken.is_finished(), "the server may still answer it");
        drop(server);
        let status_taken = status(taken).await;
        assert!(MayHaveExecuted::matches(&status_taken), "{status_taken}");
        for status in [status_above, status_taken] {
            assert!(status.message().contains(&format!("({reason:?})")), "{status}");
        }
    }
}

/// A server that has answered has taken the call, whatever it claims later.
#[tokio::test]
async fn an_answered_stream_may_have_been_executed() {
    let (connection, mut server) = connected().await;
    let call = start(&connection, &SERVER_STREAMING);
    server.opened(1).await;
    // `:status: 200` by its index in HPACK's static table.
    server.send(HEADERS, END_HEADERS, 1, &[0x88]).await;
    let Ok(EncodedReply::Stream { mut parts, .. }) = within(call).await.unwrap() else {
        panic!("the server has answered");
    };
    assert!(parts.next().now_or_never().is_none());
    server.send_go_away(0, h2::Reason::INTERNAL_ERROR).await;
    let status = within(parts.next()).await.expect("it is not over").unwrap_err();
    assert!(MayHaveExecuted::matches(&status), "{status}");
}
