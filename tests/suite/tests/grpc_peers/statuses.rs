//! Statuses that are longer than a client accepts.

use bytes::Bytes;
use farcall::tonic::metadata::MetadataMap;
use farcall::{Code, Status};
use farcall_suite::interop_proto::test_service_client::TestServiceClient;
use farcall_suite::interop_proto::test_service_rpc::TestServiceStub;
use farcall_suite::interop_proto::{Empty, StreamingOutputCallRequest};
use http::HeaderMap;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint};

use super::service::{Answering, Running, serve};
use super::within;

/// A server whose calls all end with a status of that text and those details.
async fn failing(text: String, details_len: usize) -> Running {
    let answering = Answering::with(move |_| {
        let details = Bytes::from(vec![7; details_len]);
        Err(Status::with_details(Code::NotFound, text.clone(), details))
    });
    serve(answering.server(), "tcp://127.0.0.1:0").await
}

async fn tonic_client(running: &Running) -> TestServiceClient<Channel> {
    let endpoint =
        Endpoint::from_shared(format!("http://{}", running.authority)).expect("the peer works");
    TestServiceClient::new(within(endpoint.connect()).await.expect("the peer works"))
}

/// The statuses of a call without messages, and behind one.
async fn statuses(client: &mut TestServiceClient<Channel>) -> [Status; 2] {
    let headers = within(client.empty_call(Empty {})).await.expect_err("it is refused");
    let called = within(client.streaming_output_call(StreamingOutputCallRequest::default())).await;
    let mut messages = called.expect("the peer works").into_inner();
    within(messages.message()).await.expect("the peer works").expect("one comes");
    [headers, within(messages.message()).await.expect_err("it is refused")]
}

#[tokio::test]
async fn long_status_keeps_its_code_at_tonic() {
    for character in ["a", "%", "é", "漢", "😀"] {
        for len in [10, 3_000, 6_000, 15_000, 40_000] {
            for details_len in [0, 12 << 10, 40 << 10] {
                let text = character.repeat(len / character.len());
                let running = failing(text.clone(), details_len).await;
                let mut client = tonic_client(&running).await;
                for status in statuses(&mut client).await {
                    let case = format!("{len} bytes of {character}, {details_len} of details");
                    assert_eq!(status.code(), Code::NotFound, "{case}: {status}");
                    assert!(text.starts_with(status.message()), "{case}: {status}");
                    assert!(!status.message().is_empty(), "{case}");
                    assert!([0, details_len].contains(&status.details().len()), "{case}");
                    assert!(len > 10 || status.message() == text, "{case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn short_status_reaches_tonic_whole() {
    let text = "é".repeat(1_000);
    let running = failing(text.clone(), 4 << 10).await;
    let mut client = tonic_client(&running).await;
    for status in statuses(&mut client).await {
        assert_eq!((status.message(), status.details().len()), (&*text, 4 << 10));
    }
}

/// Header list of a response, as its client counts it.
fn list_len(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

/// A response's headers and trailers, for a client that announces its limit, or none.
async fn lists(running: &Running, announced: Option<u32>, path: &str) -> [HeaderMap; 2] {
    within(async {
        let stream = TcpStream::connect(&running.authority).await.expect("the peer works");
        let mut builder = h2::client::Builder::new();
        if let Some(len) = announced {
            builder.max_header_list_size(len);
        }
        let (mut sender, connection) =
            builder.handshake::<_, Bytes>(stream).await.expect("the peer works");
        let _driving = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let path = format!("http://{}/grpc.testing.TestService/{path}", running.authority);
        let request = http::Request::post(path).header("content-type", "application/grpc");
        let request = request.header("te", "trailers").body(()).expect("the peer works");
        let (response, mut requests) = sender.send_request(request, false).expect("the peer works");
        requests.send_data(Bytes::from_static(&[0; 5]), true).expect("the peer works");
        let (head, mut body) = response.await.expect("the peer works").into_parts();
        while let Some(piece) = body.data().await {
            let _ = body.flow_control().release_capacity(piece.expect("the peer works").len());
        }
        [head.headers, body.trailers().await.expect("the peer works").unwrap_or_default()]
    })
    .await
}

#[tokio::test]
async fn status_fits_the_limit_that_a_client_announces() {
    let running = failing("é".repeat(5_000), 10_000).await;
    for (announced, max) in [(Some(300), 300), (Some(2_000), 2_000), (None, 8 << 10)] {
        for path in ["EmptyCall", "StreamingOutputCall"] {
            let [headers, trailers] = lists(&running, announced, path).await;
            for list in [&headers, &trailers] {
                assert!(list_len(list) + 42 <= max, "{path}, {announced:?}: {list:?}");
            }
            let end = if trailers.is_empty() { &headers } else { &trailers };
            let status = Status::from_header_map(end).unwrap();
            assert_eq!(status.code(), Code::NotFound, "{path}, {announced:?}: {status}");
            assert!(status.message().starts_with("é"), "{status}");
            assert!(status.message().chars().all(|it| it == 'é'), "{status}");
        }
    }
}

/// Metadata is sent whole or not at all.
#[tokio::test]
async fn metadata_over_a_clients_limit_is_refused_by_name() {
    let answering = Answering::with(|_| {
        let mut metadata = MetadataMap::new();
        metadata.insert("x-long", "7".repeat(3_000).parse().unwrap());
        Ok(metadata)
    });
    let running = serve(answering.server(), "tcp://127.0.0.1:0").await;
    let [headers, _] = lists(&running, Some(1_000), "EmptyCall").await;
    let status = Status::from_header_map(&headers).expect("the headers end the call");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("SETTINGS_MAX_HEADER_LIST_SIZE"), "{status}");
    let [headers, trailers] = lists(&running, Some(4_000), "EmptyCall").await;
    assert_eq!((headers["x-long"].len(), &trailers["grpc-status"]), (3_000, &"0".parse().unwrap()));
}

/// farcall's own wire cuts in the same order.
#[tokio::test]
async fn long_status_keeps_its_text_on_farcalls_wire() {
    for (len, details_len, is_whole) in [(10_000, 20 << 10, true), (40_000, 0, false)] {
        let text = "é".repeat(len / 2);
        let running = failing(text.clone(), details_len).await;
        let channel = farcall::Channel::connect(format!("tcp://{}", running.authority));
        let stub = TestServiceStub::new(within(channel).await.unwrap());
        let status = within(stub.empty_call(Empty {})).await.unwrap_err();
        assert_eq!((status.code(), status.details()), (Code::NotFound, &[][..]), "{status}");
        assert_eq!(status.message() == text, is_whole, "{}", status.message().len());
        let is_named = status.message().contains("limits.max_metadata_len");
        assert!(status.message().starts_with(&text[..8_000]) && is_named != is_whole, "{status}");
    }
}
