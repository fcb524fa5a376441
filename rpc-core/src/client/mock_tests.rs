//! Scripts of every kind, and what is said of scripts that do not fit.

use futures::{StreamExt, stream};
use tonic::Code;

use super::*;
use crate::client::{client_streaming, server_streaming, streaming, unary};
use crate::{Idempotency, MethodDescriptor};

static UNARY: MethodDescriptor = method("/t.T/Unary", CallKind::Unary);
static SERVER: MethodDescriptor = method("/t.T/Server", CallKind::ServerStreaming);
static CLIENT: MethodDescriptor = method("/t.T/Client", CallKind::ClientStreaming);
static BOTH: MethodDescriptor = method("/t.T/Both", CallKind::Streaming);

const fn method(path: &'static str, kind: CallKind) -> MethodDescriptor {
    MethodDescriptor::new(path, kind, Idempotency::Unknown)
}

fn numbers() -> Request<impl Stream<Item = u64> + Send + 'static> {
    Request::new(stream::iter([1_u64, 2, 3]))
}

#[tokio::test]
async fn every_kind_of_call_can_be_scripted() {
    let mock = MockChannel::new();
    mock.on_unary(UNARY.path, |request: Request<u64>| async move {
        let mut response = Response::new(request.into_inner().to_string());
        response.metadata_mut().insert("x-a", "b".parse().unwrap());
        Ok(response)
    });
    mock.on_server_streaming(SERVER.path, |request: Request<u64>| async move {
        let last = request.into_inner();
        // What follows an error is never seen, as nothing follows it from a server.
        let end = stream::iter([Err(Status::data_loss("no more")), Ok(9)]);
        Ok(Response::new(stream::iter((0..last).map(Ok)).chain(end)))
    });
    mock.on_client_streaming(CLIENT.path, |request: Request<BoxStream<'static, u64>>| async move {
        let numbers: Vec<u64> = request.into_inner().collect().await;
        Ok(Response::new(numbers.iter().sum::<u64>()))
    });
    mock.on_streaming(BOTH.path, |request: Request<BoxStream<'static, u64>>| async move {
        Ok(Response::new(request.into_inner().map(|number| Ok(number * 2))))
    });

    let response: Response<String> = unary(&mock, &UNARY, Request::new(7_u64)).await.unwrap();
    assert_eq!(response.metadata().get("x-a").unwrap(), "b");
    assert_eq!(response.into_inner(), "7");
    let response = server_streaming::<_, u64>(&mock, &SERVER, Request::new(2_u64)).await.unwrap();
    let items: Vec<_> =
        response.into_inner().map(|item| item.map_err(|e| e.code())).collect().await;
    assert_eq!(items, [Ok(0), Ok(1), Err(Code::DataLoss)]);
    let response = client_streaming::<_, u64>(&mock, &CLIENT, numbers()).await.unwrap();
    assert_eq!(response.into_inner(), 6);
    let mut response = streaming::<_, u64>(&mock, &BOTH, numbers()).await.unwrap().into_inner();
    let mut doubled = Vec::new();
    while let Some(number) = response.message().await.unwrap() {
        doubled.push(number);
    }
    assert_eq!(doubled, [2, 4, 6]);

    let calls = mock.calls();
    let paths: Vec<_> = calls.iter().map(|call| call.method.path()).collect();
    assert_eq!(paths, [UNARY.path, SERVER.path, CLIENT.path, BOTH.path]);
    assert_eq!(calls[0].request::<u64>().unwrap(), 7);
    assert!(calls[2].message.is_none());
}

#[tokio::test]
async fn a_call_without_a_script_that_fits_says_so() {
    let mock = MockChannel::new();
    mock.on_unary(UNARY.path, |_: Request<u64>| async { Ok(Response::new(1_u64)) });
    let absent = server_streaming::<_, u64>(&mock, &SERVER, Request::new(1_u64)).await.unwrap_err();
    assert_eq!(absent.code(), Code::Unimplemented);
    assert!(absent.message().contains(SERVER.path) && absent.message().contains(UNARY.path));
    let request = unary::<_, u64>(&mock, &UNARY, Request::new(String::new())).await.unwrap_err();
    assert_eq!(request.message(), "the script takes u64, but the call has another type");
    let response = unary::<_, String>(&mock, &UNARY, Request::new(1_u64)).await.unwrap_err();
    assert!(response.message().contains("answers with u64 instead of"), "{response}");
    static SAME: MethodDescriptor = method("/t.T/Unary", CallKind::ServerStreaming);
    let kind = server_streaming::<_, u64>(&mock, &SAME, Request::new(1_u64)).await.unwrap_err();
    assert!(kind.message().contains("kind Unary"), "{kind}");
    assert_eq!(mock.calls().len(), 4);
}
