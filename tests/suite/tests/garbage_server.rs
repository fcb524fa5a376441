//! Servers that do not speak the protocol: a call to one ends, in time, with words that help.

use std::error::Error;
use std::io;
use std::time::Duration;

use farcall::{
    Channel, ChannelBuilder, CloseReason, Code, ConnectError, ConnectErrorKind, MayHaveExecuted,
    Status,
};
use farcall_suite::payload;
use farcall_suite::proto::probe_rpc::{ProbeStub, SERVICE};
use farcall_suite::proto::{DownloadRequest, EchoRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_bytes, record};
use rpc_core::wire::FrameKind;
use tokio::net::TcpListener;

const LIMIT: Duration = Duration::from_secs(30);
/// Time allowed for a handshake with a silent server.
const SILENCE: Duration = Duration::from_millis(500);
const WHOLE: u8 = 1;

/// The server's answer.
enum FaultyAnswer {
    /// Instead of its Hello.
    First(Vec<u8>),
    /// After a good Hello and a request.
    AfterRequest(Vec<u8>),
    /// Nothing, for ever.
    Silence,
    /// The end of the connection after a good Hello and a request, as a cable has it that is cut.
    Reset,
}

async fn serve(listener: TcpListener, answer: FaultyAnswer) -> std::io::Result<()> {
    let (stream, _) = listener.accept().await?;
    if matches!(answer, FaultyAnswer::Reset) {
        stream.set_zero_linger()?;
    }
    let mut server = RawPeer::new(stream);
    server.read_hello().await?;
    match answer {
        FaultyAnswer::Reset => {
            let paths = SERVICE.methods.iter().map(|method| method.path.to_owned());
            server.send(&hello_bytes(paths.collect())).await?;
            return server.read_frame().await.map(drop);
        }
        FaultyAnswer::First(bytes) => server.send(&bytes).await?,
        FaultyAnswer::AfterRequest(bytes) => {
            let paths = SERVICE.methods.iter().map(|method| method.path.to_owned());
            server.send(&hello_bytes(paths.collect())).await?;
            server.read_frame().await?;
            server.send(&bytes).await?;
        }
        FaultyAnswer::Silence => {}
    }
    server.closed().await;
    Ok(())
}

/// Calls a server that answers so, and gives the call's status.
async fn call(answer: FaultyAnswer) -> Status {
    status_of(answer, async |stub| stub.echo(EchoRequest::default()).await.err()).await
}

/// The status of a call of a server that answers so.
async fn status_of(
    answer: FaultyAnswer,
    call: impl AsyncFnOnce(ProbeStub) -> Option<Status>,
) -> Status {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be listened on");
    let address = format!("tcp://{}", listener.local_addr().expect("it has an address"));
    let handshake = if matches!(answer, FaultyAnswer::Silence) { SILENCE } else { LIMIT };
    let server = tokio::spawn(serve(listener, answer));
    let address = address.parse().expect("the address is one");
    let builder = ChannelBuilder::new(address).handshake_timeout(handshake);
    let stub = ProbeStub::new(builder.connect_lazy());
    let called = tokio::time::timeout(2 * LIMIT, call(stub)).await;
    let status = called.expect("the call ends in time").expect("the call fails");
    let served = tokio::time::timeout(LIMIT, server).await.expect("the client closes in time");
    served.expect("the server does not panic").expect("the server saw a good client");
    status
}

fn check(status: &Status, code: Code, text: &str) {
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(text), "{status}");
}

#[tokio::test]
async fn garbage_instead_of_a_hello() {
    for seed in 0..20 {
        let status = call(FaultyAnswer::First(payload(seed, 100).to_vec())).await;
        check(&status, Code::Unavailable, "does not speak farcall");
    }
}

#[tokio::test]
async fn another_protocol() {
    let status = call(FaultyAnswer::First(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())).await;
    check(&status, Code::Unavailable, "does not speak farcall: this is HTTP/1.1");
}

#[tokio::test]
async fn a_future_version() {
    let mut hello = hello_bytes(Vec::new());
    hello[8..12].copy_from_slice(&[7, 0, 9, 0]);
    let status = call(FaultyAnswer::First(hello)).await;
    check(&status, Code::Unavailable, "the peer speaks 7 to 9, this side speaks 1 to 1");
}

#[tokio::test]
async fn silence() {
    let status = call(FaultyAnswer::Silence).await;
    check(&status, Code::Unavailable, "did not end within 500 ms");
}

#[tokio::test]
async fn garbage_instead_of_an_answer() {
    for seed in 0..20 {
        let status = call(FaultyAnswer::AfterRequest(payload(seed, 100).to_vec())).await;
        check(&status, Code::Unavailable, "has ended: record");
    }
}

#[tokio::test]
async fn a_request_instead_of_an_answer() {
    let request = record(WHOLE, 0, &frame(FrameKind::Request, 1, 0, b""));
    let status = call(FaultyAnswer::AfterRequest(request)).await;
    check(&status, Code::Unavailable, "a server may not send a Request frame");
}

/// An error and all its sources.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[tokio::test]
async fn program_tells_a_violation_from_a_dead_link_by_types() {
    let garbage = call(FaultyAnswer::AfterRequest(payload(1, 100).to_vec())).await;
    let reason = CloseReason::of(&garbage).expect("the connection has ended");
    assert!(matches!(reason, CloseReason::Protocol(_)), "{garbage:?}");
    assert!(!reason.is_failure());

    let reset = call(FaultyAnswer::Reset).await;
    let reason = CloseReason::of(&reset).expect("the connection has ended");
    assert!(matches!(reason, CloseReason::Failed(_)) && reason.is_failure(), "{reset:?}");
    let kinds = chain(&reset).filter_map(<dyn Error>::downcast_ref::<io::Error>);
    assert_eq!(kinds.map(io::Error::kind).next(), Some(io::ErrorKind::ConnectionReset));
    for status in [garbage, reset] {
        assert!(MayHaveExecuted::matches(&status), "{status:?}");
    }
}

/// Answers the first request of each connection with garbage.
async fn violate(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let mut server = RawPeer::new(stream);
        server.read_hello().await?;
        let paths = SERVICE.methods.iter().map(|method| method.path.to_owned());
        server.send(&hello_bytes(paths.collect())).await?;
        server.read_frame().await?;
        server.send(&payload(1, 100)).await?;
        server.closed().await;
    }
}

/// A call that finds the channel backing off fails for the reason of the last connection.
#[tokio::test]
async fn backing_off_keeps_what_ended_the_last_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be listened on");
    let address = format!("tcp://{}", listener.local_addr().expect("it has an address"));
    let server = tokio::spawn(violate(listener));
    let stub = ProbeStub::new(Channel::builder(address).expect("it is one").connect_lazy());
    let error = loop {
        let called = tokio::time::timeout(LIMIT, stub.echo(EchoRequest::default())).await;
        let status = called.expect("the call ends in time").expect_err("the server is no server");
        if ConnectError::of(&status).is_some() {
            break status;
        }
    };
    let waiting = ConnectError::of(&error);
    let kind = waiting.map(ConnectError::kind);
    assert_eq!(kind, Some(ConnectErrorKind::BackingOff), "{error:?}");
    let reason = waiting.and_then(|error| CloseReason::of(error));
    assert!(matches!(reason, Some(CloseReason::Protocol(_))), "{error:?}");
    server.abort();
}

/// The first call of a connection has this id.
const FIRST_CALL: u64 = 1 << 32;

#[tokio::test]
async fn an_answer_that_does_not_decode() {
    let answer = record(WHOLE, 0, &frame(FrameKind::Response, FIRST_CALL, 0, &[0xff; 20]));
    check(
        &call(FaultyAnswer::AfterRequest(answer)).await,
        Code::Internal,
        "message does not decode",
    );
}

#[tokio::test]
async fn a_status_code_that_means_nothing() {
    let answer = record(WHOLE, 0, &frame(FrameKind::Response, FIRST_CALL, 999, b""));
    let status = call(FaultyAnswer::AfterRequest(answer)).await;
    check(&status, Code::Internal, "status code has the unknown value 999");
}

/// The two sides have different editions of the `.proto`: no reason to end the connection.
#[tokio::test]
async fn a_stream_instead_of_one_message() {
    for (kind, body) in [(FrameKind::Headers, &b""[..]), (FrameKind::Messages, &[0; 4])] {
        let answer = record(WHOLE, 0, &frame(kind, FIRST_CALL, 0, body));
        let status = call(FaultyAnswer::AfterRequest(answer)).await;
        check(&status, Code::Internal, "a stream, but the method");
    }
}

#[tokio::test]
async fn one_message_instead_of_a_stream() {
    let answer = record(WHOLE, 0, &frame(FrameKind::Response, FIRST_CALL, 0, b"abc"));
    let status = status_of(FaultyAnswer::AfterRequest(answer), async |stub| {
        stub.download(DownloadRequest::default()).await.err()
    });
    check(&status.await, Code::Internal, "one message, but the method");
}

/// A server may neither send messages before its headers, nor its headers twice.
#[tokio::test]
async fn headers_that_are_not_where_they_belong() {
    let numbered = |kind, place, body: &[u8]| {
        let mut frame = frame(kind, FIRST_CALL, 0, body);
        frame[16..24].copy_from_slice(&u64::to_le_bytes(place));
        record(WHOLE, 0, &frame)
    };
    let headers = |place| numbered(FrameKind::Headers, place, b"");
    let twice = [headers(0), headers(1)].concat();
    let none = numbered(FrameKind::Messages, 0, &[0; 4]);
    for (answer, text) in [
        (twice, "headers at place 1 of its call: an answer has them once"),
        (none, "frame of messages at place 0 of its call: an answer begins with its headers"),
    ] {
        let status = status_of(FaultyAnswer::AfterRequest(answer), async |stub| {
            let mut replies = match stub.download(DownloadRequest::default()).await {
                Ok(response) => response.into_inner(),
                Err(status) => return Some(status),
            };
            replies.message().await.err()
        });
        check(&status.await, Code::Unavailable, text);
    }
}
