//! Answers of a server's port to requests, malformed ones included.

use std::fmt::Write as _;

use bytes::Bytes;
use farcall::Code;
use farcall_suite::interop_proto::Empty;

use crate::raw::{Answered, Asking, Fields, ask, framed};
use crate::service::Serving;

const UNARY: &str = "/grpc.testing.TestService/EmptyCall";
const SERVER_STREAM: &str = "/grpc.testing.TestService/StreamingOutputCall";
const GRPC: Fields = &[("content-type", "application/grpc"), ("te", "trailers")];
const PROTO: Fields = &[("content-type", "application/grpc+proto"), ("te", "trailers")];

fn post(path: &'static str, headers: Fields, body: Bytes) -> Asking {
    Asking { verb: "POST", path, headers, body }
}

fn requests(count: usize) -> Bytes {
    framed(0, &Empty {}).repeat(count).into()
}

#[tokio::test]
async fn unexpected_requests_are_errors() {
    const FOO: Fields =
        &[("content-type", "application/grpc"), ("grpc-encoding", "foo"), ("te", "trailers")];
    const IDENTITY: Fields = &[
        ("content-type", "application/grpc+proto"),
        ("grpc-encoding", "identity"),
        ("te", "trailers"),
    ];
    const CODEC: Fields = &[("content-type", "application/grpc+foo"), ("te", "trailers")];
    const JPEG: Fields = &[("content-type", "image/jpeg")];
    let status = Answered::Status;
    let unimplemented = || vec![status(Code::Unimplemented)];
    // A client makes `UNKNOWN` of these codes of HTTP.
    let open = |http| {
        let codes = [Code::Unknown, Code::Internal, Code::Unimplemented].map(status);
        codes.into_iter().chain([Answered::Http(http)]).collect::<Vec<_>>()
    };
    let unknown = "/grpc.testing.UnknownService/UnknownMethod";
    let compressed = framed(1, &Empty {});
    let cases = [
        ("unary/no-request", post(UNARY, PROTO, Bytes::new()), unimplemented()),
        ("unary/multiple-requests", post(UNARY, PROTO, requests(2)), unimplemented()),
        ("server-stream/no-request", post(SERVER_STREAM, PROTO, Bytes::new()), unimplemented()),
        (
            "server-stream/multiple-requests",
            post(SERVER_STREAM, PROTO, requests(2)),
            unimplemented(),
        ),
        ("unexpected-verb", Asking { verb: "DELETE", ..post(UNARY, GRPC, requests(1)) }, open(405)),
        ("unexpected-uri", post(unknown, GRPC, requests(1)), unimplemented()),
        ("unexpected-codec", post(UNARY, CODEC, requests(1)), open(415)),
        ("unexpected-compression", post(UNARY, FOO, compressed.clone()), unimplemented()),
        (
            "unexpected-compressed-message",
            post(UNARY, IDENTITY, compressed),
            vec![status(Code::Internal)],
        ),
        (
            "unexpected-content-type",
            post(UNARY, JPEG, Bytes::from_static(b"12345678")),
            vec![Answered::Http(415)],
        ),
    ];
    let server = Serving::start().await;
    let mut faults = String::new();
    for (name, asking, answers) in cases {
        let answered = ask(&server.authority, asking).await;
        if !answers.contains(&answered) {
            writeln!(faults, "{name}: {answered:?}, not {answers:?}").unwrap();
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

/// With a subformat and without, and with a message of no bytes.
#[tokio::test]
async fn subformats_and_empty_requests_are_taken() {
    let server = Serving::start().await;
    for headers in [GRPC, PROTO] {
        let answered = ask(&server.authority, post(UNARY, headers, requests(1))).await;
        assert_eq!(answered, Answered::Status(Code::Ok), "{headers:?}");
    }
}
