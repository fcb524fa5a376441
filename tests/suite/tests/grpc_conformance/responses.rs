//! Results of a stub at `grpc://` for a server's responses, malformed ones included.

use std::fmt::Write as _;

use bytes::Bytes;
use farcall::{Channel, Code, Request, Response, Status};
use farcall_suite::interop_proto::test_service_rpc::TestServiceStub;
use farcall_suite::interop_proto::{
    Empty, SimpleResponse, StreamingInputCallRequest, StreamingInputCallResponse,
    StreamingOutputCallRequest,
};

use crate::raw::{Answering, Fields, HttpAnswer, framed, within};

/// The kind of the call.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Unary,
    ClientStream,
    ServerStream,
}

const GRPC: Fields = &[("content-type", "application/grpc")];
const PROTO: Fields = &[("content-type", "application/grpc+proto")];
const OK: Option<Fields> = Some(&[("grpc-status", "0")]);

fn answer(headers: Fields, body: Bytes, trailers: Option<Fields>) -> HttpAnswer {
    HttpAnswer { status: 200, headers, body, trailers }
}

fn messages(count: usize) -> Bytes {
    framed(0, &SimpleResponse::default()).repeat(count).into()
}

async fn stub(answer: HttpAnswer) -> (TestServiceStub<Channel>, Answering) {
    let server = Answering::with(answer).await;
    let channel = Channel::connect(format!("grpc://{}", server.authority)).await.unwrap();
    (TestServiceStub::new(channel), server)
}

/// Returns the end of a call.
async fn outcome(kind: Kind, answer: HttpAnswer) -> Result<(), Status> {
    let (stub, _server) = stub(answer).await;
    within(async {
        match kind {
            Kind::Unary => stub.empty_call(Empty {}).await.map(drop),
            Kind::ClientStream => {
                let requests = tokio_stream::iter([StreamingInputCallRequest::default()]);
                stub.streaming_input_call(requests).await.map(drop)
            }
            Kind::ServerStream => {
                let call = stub.streaming_output_call(StreamingOutputCallRequest::default());
                let mut messages = call.await?.into_inner();
                while messages.message().await?.is_some() {}
                Ok(())
            }
        }
    })
    .await
}

/// Sees that each case ends with one of its codes, and names all that do not.
async fn check(cases: impl IntoIterator<Item = (String, Kind, HttpAnswer, &'static [Code])>) {
    let mut faults = String::new();
    for (name, kind, answer, codes) in cases {
        let ended = outcome(kind, answer).await;
        if !ended.as_ref().is_err_and(|status| codes.contains(&status.code())) {
            writeln!(faults, "{name}: {ended:?}, not {codes:?}").unwrap();
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

#[tokio::test]
async fn http_codes_become_codes() {
    use Code::{Internal, PermissionDenied, Unauthenticated, Unavailable, Unimplemented, Unknown};
    let codes: [(u16, &'static [Code]); 16] = [
        (400, &[Internal]),
        (401, &[Unauthenticated]),
        (403, &[PermissionDenied]),
        (404, &[Unimplemented]),
        (409, &[Unknown]),
        (412, &[Unknown]),
        (413, &[Unknown]),
        (415, &[Unknown]),
        (418, &[Unknown]),
        (429, &[Unavailable]),
        (431, &[Unknown]),
        (502, &[Unavailable]),
        (503, &[Unavailable]),
        (504, &[Unavailable]),
        (505, &[Unknown]),
        (800, &[Unknown]),
    ];
    let case = |(status, codes)| {
        let answer = HttpAnswer { status, ..HttpAnswer::default() };
        (format!("HTTP {status}"), Kind::Unary, answer, codes)
    };
    check(codes.into_iter().map(case)).await;
}

const HTML: Fields = &[("content-type", "text/html")];
const PAGE: &[u8] = b"<html>no upstream\x1b[31m</html>";

#[tokio::test]
async fn pages_of_proxies_are_mapped_by_their_http_status() {
    use Code::{Internal, PermissionDenied, Unauthenticated, Unavailable, Unimplemented, Unknown};
    const TYPED: Fields = &[("content-type", "application/grpc")];
    let codes: [(u16, &'static [Code]); 8] = [
        (200, &[Unknown]),
        (301, &[Unknown]),
        (400, &[Internal]),
        (401, &[Unauthenticated]),
        (403, &[PermissionDenied]),
        (404, &[Unimplemented]),
        (503, &[Unavailable]),
        (504, &[Unavailable]),
    ];
    let kinds = [Kind::Unary, Kind::ClientStream, Kind::ServerStream];
    let headers = [HTML, TYPED, &[]];
    let mut cases = Vec::new();
    for (status, codes) in codes {
        for (kind, headers) in kinds.into_iter().flat_map(|kind| headers.map(|it| (kind, it))) {
            let page = HttpAnswer { status, headers, body: PAGE.into(), trailers: None };
            let name = format!("HTTP {status} {kind:?} {headers:?}");
            cases.push((format!("{name} page"), kind, page.clone(), codes));
            let trailers = Some(&[("x-cache", "miss")][..]);
            cases.push((format!("{name} trailers"), kind, HttpAnswer { trailers, ..page }, codes));
            let empty = HttpAnswer { status, headers, ..HttpAnswer::default() };
            cases.push((format!("{name} empty"), kind, empty, codes));
        }
    }
    check(cases).await;
}

#[tokio::test]
async fn mapped_statuses_quote_a_bounded_escaped_piece() {
    let body: Bytes = [PAGE, &[b'x'; 100_000]].concat().into();
    for (status, kind) in [(503, Kind::Unary), (503, Kind::ServerStream), (200, Kind::Unary)] {
        let page = HttpAnswer { status, headers: HTML, body: body.clone(), trailers: None };
        let error = outcome(kind, page).await.unwrap_err();
        let message = error.message();
        assert!(message.contains(&format!("HTTP {status}")), "{message}");
        assert!(message.contains("text/html"), "{message}");
        assert!(message.contains("<html>no upstream\\u{1b}[31m</html>"), "{message}");
        assert!(message.len() < 1024 && !message.contains('\x1b'), "{message}");
    }
}

#[tokio::test]
async fn invalid_grpc_statuses_count_as_none() {
    use Code::{Unavailable, Unknown};
    let mut cases = Vec::new();
    for value in ["abc", "", "17", "42", "-1", "00", "1.0", "99999999999"] {
        let fields: Fields = Vec::leak(vec![("grpc-status", value), ("grpc-message", "said so")]);
        let typed: Fields = Vec::leak([GRPC, fields].concat());
        let codes: [(u16, &'static [Code]); 2] = [(200, &[Unknown]), (503, &[Unavailable])];
        for (status, codes) in codes {
            for kind in [Kind::Unary, Kind::ServerStream] {
                let alone = HttpAnswer { status, headers: typed, ..HttpAnswer::default() };
                cases.push((format!("{status} {value:?} alone"), kind, alone, codes));
                let behind =
                    HttpAnswer { status, headers: GRPC, body: messages(1), trailers: None };
                let behind = HttpAnswer { trailers: Some(fields), ..behind };
                cases.push((format!("{status} {value:?} trailer"), kind, behind, codes));
            }
        }
    }
    check(cases).await;
}

#[tokio::test]
async fn valid_grpc_statuses_win_over_http() {
    const DENIED: Fields = &[("content-type", "text/html"), ("grpc-status", "9")];
    let trailers: Option<Fields> = Some(&[("grpc-status", "9"), ("grpc-message", "busy")]);
    let mut cases = Vec::new();
    let codes: &'static [Code] = &[Code::FailedPrecondition];
    for kind in [Kind::Unary, Kind::ClientStream, Kind::ServerStream] {
        for status in [200, 404, 503] {
            let alone = HttpAnswer { status, headers: DENIED, ..HttpAnswer::default() };
            cases.push((format!("HTTP {status} alone"), kind, alone, codes));
            for headers in [GRPC, HTML] {
                for body in [Bytes::new(), PAGE.into()] {
                    // A body that is not gRPC's breaks off the reading of messages.
                    if headers == GRPC && !body.is_empty() {
                        continue;
                    }
                    let ended = HttpAnswer { status, headers, body, trailers };
                    cases.push((format!("HTTP {status} {ended:?}"), kind, ended, codes));
                }
            }
        }
    }
    check(cases).await;
}

/// tonic panics over such details.
#[tokio::test]
async fn details_that_are_no_base64_cost_the_details_alone() {
    let fields: Fields = &[("grpc-status", "9"), ("grpc-status-details-bin", "%%%")];
    let typed: Fields = Vec::leak([GRPC, fields].concat());
    let alone = answer(typed, Bytes::new(), None);
    for answer in [alone, answer(GRPC, Bytes::new(), Some(fields))] {
        for kind in [Kind::Unary, Kind::ServerStream] {
            let status = outcome(kind, answer.clone()).await.unwrap_err();
            assert_eq!((status.code(), status.details()), (Code::FailedPrecondition, &b""[..]));
        }
    }
}

#[tokio::test]
async fn unexpected_responses_are_errors() {
    use Code::{FailedPrecondition, Internal, Unimplemented, Unknown};
    use Kind::{ClientStream, Unary};
    const MISSING: Option<Fields> = Some(&[("grpc-message", "error")]);
    const STATUS_9: Fields = &[("content-type", "application/grpc"), ("grpc-status", "9")];
    const STATUS_8: Fields = &[("content-type", "application/grpc"), ("grpc-status", "8")];
    const TRAILER_9: Option<Fields> = Some(&[("foo", "bar"), ("grpc-status", "9")]);
    const FOO: Fields = &[("content-type", "application/grpc+proto"), ("grpc-encoding", "foo")];
    const IDENTITY: Fields =
        &[("content-type", "application/grpc+proto"), ("grpc-encoding", "identity")];
    let compressed = framed(1, &SimpleResponse::default());
    let json: Fields = &[("content-type", "application/grpc+json")];
    let cases: Vec<(&str, Kind, HttpAnswer, &'static [Code])> = vec![
        ("missing-status", Unary, answer(GRPC, Bytes::new(), MISSING), &[Unknown, Internal]),
        ("unary/ok-but-no-response", Unary, answer(GRPC, Bytes::new(), OK), &[Unimplemented]),
        ("unary/multiple-responses", Unary, answer(GRPC, messages(2), OK), &[Unimplemented]),
        (
            "client-stream/ok-but-no-response",
            ClientStream,
            answer(GRPC, Bytes::new(), OK),
            &[Unimplemented],
        ),
        (
            "client-stream/multiple-responses",
            ClientStream,
            answer(GRPC, messages(2), OK),
            &[Unimplemented],
        ),
        (
            "trailers-only/ignore-header-if-body-present",
            Unary,
            answer(STATUS_9, messages(1), None),
            &[Internal, Unknown],
        ),
        (
            "trailers-only/ignore-header-if-trailer-present",
            Unary,
            answer(STATUS_8, Bytes::new(), TRAILER_9),
            &[FailedPrecondition],
        ),
        (
            "unexpected-content-type",
            Unary,
            answer(&[("content-type", "image/jpeg")], Bytes::new(), None),
            &[Unknown],
        ),
        (
            "unexpected-codec",
            Unary,
            answer(json, messages(1), OK),
            &[Internal, Unknown, Unimplemented],
        ),
        ("unexpected-compression", Unary, answer(FOO, compressed.clone(), OK), &[Internal]),
        ("unexpected-compressed-message", Unary, answer(IDENTITY, compressed, OK), &[Internal]),
    ];
    check(cases.into_iter().map(|(name, kind, answer, codes)| (name.into(), kind, answer, codes)))
        .await;
}

#[tokio::test]
async fn subformats_are_taken() {
    for headers in [GRPC, PROTO] {
        outcome(Kind::Unary, answer(headers, messages(1), OK)).await.unwrap();
    }
}

const HEADERS: Fields = &[
    ("content-type", "application/grpc"),
    ("x-custom-header", "foo"),
    ("x-custom-header", "bar"),
    ("x-custom-header", "baz"),
];
const TRAILERS: Fields = &[
    ("grpc-status", "9"),
    ("grpc-message", "error"),
    ("x-custom-trailer", "bing"),
    ("x-custom-trailer", "quuz"),
];
const TRAILERS_ONLY: Fields = &[
    ("content-type", "application/grpc"),
    ("grpc-status", "9"),
    ("grpc-message", "error"),
    ("x-custom-trailer", "bing"),
    ("x-custom-trailer", "quuz"),
];

#[tokio::test]
async fn trailers_come_at_the_end_or_alone() {
    let answers =
        [answer(HEADERS, Bytes::new(), Some(TRAILERS)), answer(TRAILERS_ONLY, Bytes::new(), None)];
    for answer in answers {
        let status = outcome(Kind::Unary, answer.clone()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "error"));
        let values: Vec<_> = status.metadata().get_all("x-custom-trailer").iter().collect();
        assert_eq!(values, ["bing", "quuz"], "{answer:?}");
    }
}

/// A message of no bytes is a message.
#[tokio::test]
async fn empty_responses_are_responses() {
    const HEADERS: Fields = &[("content-type", "application/grpc"), ("x-custom-header", "foo")];
    const TRAILERS: Fields = &[("grpc-status", "0"), ("x-custom-trailer", "bing")];
    let empty = Bytes::from_static(&[0; 5]);
    let (stub, _server) = stub(answer(HEADERS, empty, Some(TRAILERS))).await;
    fn check<T: PartialEq + std::fmt::Debug + Default>(response: Response<T>) {
        assert_eq!(response.metadata().get("x-custom-header").unwrap(), "foo");
        let trailers = response.extensions().get::<farcall::Trailers>();
        assert_eq!(trailers.unwrap().0.get("x-custom-trailer").unwrap(), "bing");
        assert_eq!(response.into_inner(), T::default());
    }
    check::<Empty>(within(stub.empty_call(Empty {})).await.unwrap());
    let requests = || tokio_stream::iter([StreamingInputCallRequest::default()]);
    let response = within(stub.streaming_input_call(requests())).await.unwrap();
    check::<StreamingInputCallResponse>(response);
    let server_stream =
        within(stub.streaming_output_call(StreamingOutputCallRequest::default())).await.unwrap();
    let bidi = Request::new(tokio_stream::iter([Default::default()]));
    let bidi = within(stub.half_duplex_call(bidi)).await.unwrap();
    for response in [server_stream, bidi] {
        assert_eq!(response.metadata().get("x-custom-header").unwrap(), "foo");
        let mut messages = response.into_inner();
        assert_eq!(within(messages.message()).await.unwrap(), Some(Default::default()));
        assert_eq!(within(messages.message()).await.unwrap(), None);
        let trailers = within(messages.trailers()).await.unwrap().unwrap();
        assert_eq!(trailers.get("x-custom-trailer").unwrap(), "bing");
    }
}
