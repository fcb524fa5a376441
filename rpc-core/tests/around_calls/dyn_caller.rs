//! Callers whose type is forgotten.

use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use rpc_core::client::mock::MockChannel;
use rpc_core::client::{CallRules, DynCaller};
use rpc_core::layer::TraceLayer;
use rpc_core::server::ServerParts;
use rpc_core::{Code, Request, Response, Status};
use tower::timeout::TimeoutLayer;

use crate::numbers::{Numbers, NumbersStub, SERVICE, STEP, at_once, collect};
use crate::serving::Serving;

/// It holds a channel of any type, and is not generic over it.
struct Calculator {
    numbers: NumbersStub<DynCaller>,
}

impl Calculator {
    /// Calls of every kind.
    async fn check(&self) {
        assert_eq!(self.numbers.double(4).await.unwrap(), 8);
        let (numbers, status) = collect(self.numbers.count(3).await.unwrap()).await;
        assert_eq!((numbers, status.is_none()), (vec![0, 1, 2], true));
        assert_eq!(self.numbers.sum(at_once(0..5)).await.unwrap(), 10);
        let (sums, status) = collect(self.numbers.sums(at_once(1..4)).await.unwrap()).await;
        assert_eq!((sums, status.is_none()), (vec![1, 3, 6], true));
    }
}

fn serve() -> Serving {
    Serving::start(ServerParts::default().add_service(Numbers::new().0))
}

fn mock() -> MockChannel {
    let mock = MockChannel::new();
    let path = |method: usize| SERVICE.methods[method].path;
    mock.on_unary(path(0), |request: Request<u64>| async move {
        let mut response = Response::new(2 * request.get_ref());
        *response.metadata_mut() = request.metadata().clone();
        Ok(response)
    });
    mock.on_server_streaming(path(2), |request: Request<u64>| async move {
        Ok(Response::new(stream::iter((0..request.into_inner()).map(Ok))))
    });
    mock.on_client_streaming(path(3), |request: Request<BoxStream<'static, u64>>| async move {
        let sum = request.into_inner().fold(0, |sum, number| async move { sum + number });
        sum.map(Response::new).map(Ok).await
    });
    mock.on_streaming(path(4), |request: Request<BoxStream<'static, u64>>| async move {
        let sums = request.into_inner().scan(0, |sum, number| {
            *sum += number;
            std::future::ready(Some(Ok(*sum)))
        });
        Ok(Response::new(sums))
    });
    mock
}

#[tokio::test(start_paused = true)]
async fn one_type_holds_callers_of_every_type() {
    let serving = serve();
    let channel = serving.channel();
    let no_change = |request: Request<()>| -> Result<Request<()>, Status> { Ok(request) };
    let callers = [
        DynCaller::new(channel.clone()),
        DynCaller::new(channel.clone().layer(TraceLayer::new())),
        DynCaller::new(channel.clone().intercept(no_change)),
        DynCaller::new(DynCaller::new(channel)),
        DynCaller::new(mock()),
        DynCaller::new(DynCaller::new(mock())),
    ];
    for caller in callers {
        let calculator = Calculator { numbers: NumbersStub(caller.clone()) };
        calculator.check().await;
        // Metadata goes there and back.
        let mut request = Request::new(4);
        request.metadata_mut().insert("x-layers", "none".parse().unwrap());
        let response = NumbersStub(caller).double_request(request).await.unwrap();
        assert_eq!(response.metadata().get("x-layers").unwrap(), "none");
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_and_trailers_come_through() {
    let serving = serve();
    let channel = serving.channel();
    let stub = NumbersStub(DynCaller::new(channel.clone()));
    let mut messages = stub.count(2).await.unwrap();
    assert_eq!(collect(&mut messages).await.0, [0, 1]);
    let trailers = messages.trailers().await.unwrap().unwrap();
    assert_eq!(trailers.get("x-end").unwrap(), "yes");
    let rules = CallRules { timeout: Some(STEP * 5 / 2), ..CallRules::DEFAULT };
    let impatient = channel.with_rules(rules);
    let stub = NumbersStub(DynCaller::new(impatient.layer(TimeoutLayer::new(4 * STEP))));
    assert_eq!(stub.wait().await.unwrap_err().code(), Code::DeadlineExceeded);
    let mut messages = stub.count(10).await.unwrap();
    let (numbers, status) = collect(&mut messages).await;
    assert_eq!((numbers, status.unwrap().code()), (vec![0, 1], Code::DeadlineExceeded));
    assert!(messages.message().await.unwrap().is_none(), "the status comes once");
}

#[tokio::test]
async fn dropping_a_call_cancels_it() {
    let (numbers, mut dropped) = Numbers::new();
    let serving = Serving::start(ServerParts::default().add_service(numbers));
    let stub = NumbersStub(DynCaller::new(serving.channel()));
    // Connected, and the handler of a call that is polled once more has begun.
    stub.double(1).await.unwrap();
    {
        let mut wait = Box::pin(stub.wait());
        assert!(futures::poll!(&mut wait).is_pending());
        stub.double(1).await.unwrap();
    }
    dropped.recv().await.unwrap();
}

#[tokio::test]
async fn a_mock_tells_types_apart_through_a_caller_without_a_type() {
    let mock = MockChannel::new();
    mock.on_unary(SERVICE.methods[0].path, |_: Request<String>| async {
        Ok(Response::new(String::new()))
    });
    mock.on_client_streaming(SERVICE.methods[3].path, |_: Request<BoxStream<'static, String>>| {
        std::future::ready(Ok(Response::new(1_u64)))
    });
    let stub = NumbersStub(DynCaller::new(mock.clone()));
    for status in [stub.double(4).await.unwrap_err(), stub.sum(at_once(0..5)).await.unwrap_err()] {
        assert_eq!(status.code(), Code::Internal, "{status}");
        assert!(status.message().contains("another type"), "{status}");
    }
    assert_eq!(stub.wait().await.unwrap_err().code(), Code::Unimplemented);
    assert_eq!(mock.calls()[0].request::<u64>().unwrap(), 4);
}
