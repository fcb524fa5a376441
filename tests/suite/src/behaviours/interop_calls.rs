//! gRPC's interoperability tests of calls that end well: each kind of call, and metadata.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use farcall::metadata::{MetadataMap, MetadataValue};
use farcall::{Request, Streaming, Trailers};
use futures::stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::failure::{check, check_eq};
use crate::harness::stack::TrailersSeen;
use crate::interop::{ECHO_INITIAL, ECHO_TRAILING};
use crate::interop_proto::{
    Empty, Payload, ResponseParameters, SimpleRequest, StreamingInputCallRequest,
    StreamingOutputCallRequest, StreamingOutputCallResponse,
};
use crate::{Failure, Harness};

/// The lengths that the descriptions of the tests name.
const LARGE_REQUEST_LEN: usize = 271_828;
const LARGE_RESPONSE_LEN: i32 = 314_159;
const REQUEST_LENS: [usize; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSE_LENS: [i32; 4] = [31_415, 9, 2_653, 58_979];

const INITIAL: &[u8] = b"comes back first";
const TRAILING: &[u8] = &[0xab, 0, 0xff];

pub(crate) fn zeros(len: usize) -> Option<Payload> {
    Some(Payload { body: Bytes::from(vec![0; len]), ..Default::default() })
}

/// A request for one answer, and with a payload.
pub(crate) fn output_request(payload_len: usize, answer_len: i32) -> StreamingOutputCallRequest {
    StreamingOutputCallRequest {
        response_parameters: vec![ResponseParameters { size: answer_len, ..Default::default() }],
        payload: zeros(payload_len),
        ..Default::default()
    }
}

fn large_request() -> SimpleRequest {
    SimpleRequest {
        response_size: LARGE_RESPONSE_LEN,
        payload: zeros(LARGE_REQUEST_LEN),
        ..Default::default()
    }
}

fn check_zeros(what: &str, payload: Option<Payload>, len: i32) -> Result<(), Failure> {
    let body = payload.unwrap_or_default().body;
    check_eq(what, &i32::try_from(body.len()).ok(), &Some(len))?;
    check(body.iter().all(|byte| *byte == 0), what, "bytes that are not zero")
}

/// Reads one answer of a stream.
pub(crate) async fn read(
    answers: &mut Streaming<StreamingOutputCallResponse>,
    len: i32,
) -> Result<(), Failure> {
    let answer = answers.message().await?;
    check(answer.is_some(), "an answer", "the end of the stream")?;
    check_zeros("an answer's payload", answer.unwrap_or_default().payload, len)
}

async fn end<T: fmt::Debug + PartialEq>(answers: &mut Streaming<T>) -> Result<(), Failure> {
    check_eq("what follows the last answer", &answers.message().await?, &None)
}

pub(crate) async fn interop_empty_unary(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let reply = server.test().await?.empty_call(Empty {}).await?;
    check_eq("the answer", &reply.into_inner(), &Empty {})
}

pub(crate) async fn interop_large_unary(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let reply = server.test().await?.unary_call(large_request()).await?.into_inner();
    check_zeros("the answer's payload", reply.payload, LARGE_RESPONSE_LEN)
}

pub(crate) async fn interop_client_streaming(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let request = |len| StreamingInputCallRequest { payload: zeros(len), ..Default::default() };
    let requests = stream::iter(REQUEST_LENS.map(request));
    let reply = server.test().await?.streaming_input_call(requests).await?.into_inner();
    let sum: usize = REQUEST_LENS.iter().sum();
    check_eq("the sum", &usize::try_from(reply.aggregated_payload_size).ok(), &Some(sum))
}

pub(crate) async fn interop_server_streaming(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let parameters = |size| ResponseParameters { size, ..Default::default() };
    let request = StreamingOutputCallRequest {
        response_parameters: RESPONSE_LENS.map(parameters).to_vec(),
        ..Default::default()
    };
    let mut answers = server.test().await?.streaming_output_call(request).await?.into_inner();
    for len in RESPONSE_LENS {
        read(&mut answers, len).await?;
    }
    end(&mut answers).await
}

pub(crate) async fn interop_ping_pong(harness: &Harness) -> Result<(), Failure> {
    ping_pong(harness, Duration::ZERO).await
}

/// The same with a silence in the middle, which must not end the call.
///
/// # Errors
///
/// Returns the first difference from what gRPC has.
pub async fn ping_pong(harness: &Harness, silence: Duration) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let (sender, requests) = mpsc::channel(1);
    let send = async |turn: usize| {
        let request = output_request(REQUEST_LENS[turn], RESPONSE_LENS[turn]);
        check(sender.send(request).await.is_ok(), "the request stream", "closed")
    };
    // Some servers say nothing, not even that the call has begun, before there is a request.
    send(0).await?;
    let requests = ReceiverStream::new(requests);
    let mut answers = server.test().await?.full_duplex_call(requests).await?.into_inner();
    read(&mut answers, RESPONSE_LENS[0]).await?;
    tokio::time::sleep(silence).await;
    for (turn, answer_len) in RESPONSE_LENS.into_iter().enumerate().skip(1) {
        send(turn).await?;
        read(&mut answers, answer_len).await?;
    }
    drop(sender);
    end(&mut answers).await
}

pub(crate) async fn interop_empty_stream(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let answers = server.test().await?.full_duplex_call(stream::empty()).await?;
    end(&mut answers.into_inner()).await
}

fn with_metadata<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let initial = MetadataValue::try_from(INITIAL).ok();
    initial.map(|value| request.metadata_mut().insert(ECHO_INITIAL, value));
    request.metadata_mut().insert_bin(ECHO_TRAILING, MetadataValue::from_bytes(TRAILING));
    request
}

fn check_initial(metadata: &MetadataMap) -> Result<(), Failure> {
    let found = metadata.get(ECHO_INITIAL).map(|value| value.as_bytes().to_vec());
    check_eq("the initial metadata", &found, &Some(INITIAL.to_vec()))
}

fn check_trailing(are_sent: bool, trailers: Option<&MetadataMap>) -> Result<(), Failure> {
    let found = trailers.and_then(|trailers| trailers.get_bin(ECHO_TRAILING)?.to_bytes().ok());
    let expected = are_sent.then_some(Bytes::from_static(TRAILING));
    check_eq("the trailing metadata", &found, &expected)
}

pub(crate) async fn interop_custom_metadata(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let (seen, client) = (server.stack().trailers(), server.test().await?);
    let reply = client.unary_call(with_metadata(large_request())).await?;
    check_initial(reply.metadata())?;
    let Trailers(apart) = reply.extensions().get::<Trailers>().cloned().unwrap_or_default();
    check_trailing(seen == TrailersSeen::Apart, Some(&apart))?;
    check_trailing(seen != TrailersSeen::Nowhere, Some(reply.metadata()))?;
    check_zeros("the answer's payload", reply.into_inner().payload, LARGE_RESPONSE_LEN)?;
    let (request_len, answer_len) = (REQUEST_LENS[0], RESPONSE_LENS[0]);
    let requests = stream::iter([output_request(request_len, answer_len)]);
    let response = client.full_duplex_call(with_metadata(requests)).await?;
    check_initial(response.metadata())?;
    let mut answers = response.into_inner();
    read(&mut answers, answer_len).await?;
    end(&mut answers).await?;
    check_trailing(seen != TrailersSeen::Nowhere, answers.trailers().await?.as_ref())
}
