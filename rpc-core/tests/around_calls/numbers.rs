//! A service with a method of each kind, and its stub, as they are generated from a `.proto` file.

use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use rpc_core::client::{client_streaming, server_streaming, streaming, unary};
use rpc_core::server::{HandlerFuture, ServerCall};
use rpc_core::{
    CallKind, Caller, Idempotency, MethodDescriptor, Request, Response, Service, ServiceDescriptor,
    Status, Streaming, Trailers,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The time between two messages of a stream.
pub(crate) const STEP: Duration = Duration::from_secs(1);

pub(crate) static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "test.Numbers",
    methods: &[
        method("/test.Numbers/Double", CallKind::Unary),
        method("/test.Numbers/Wait", CallKind::Unary),
        method("/test.Numbers/Count", CallKind::ServerStreaming),
        method("/test.Numbers/Sum", CallKind::ClientStreaming),
        method("/test.Numbers/Sums", CallKind::Streaming),
    ],
};

/// The same methods under the names of another service.
pub(crate) static OTHERS: ServiceDescriptor = ServiceDescriptor {
    name: "test.Others",
    methods: &[method("/test.Others/Double", CallKind::Unary)],
};

const fn method(path: &'static str, kind: CallKind) -> MethodDescriptor {
    let idempotency = Idempotency::Unknown;
    MethodDescriptor::new(path, kind, idempotency)
}

/// The service.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Hears of each `Wait` whose future was dropped.
    dropped: UnboundedSender<()>,
}

impl Numbers {
    /// The service, and a receiver that hears of each `Wait` whose future was dropped.
    pub(crate) fn new() -> (Self, UnboundedReceiver<()>) {
        let (dropped, receiver) = unbounded_channel();
        (Self { dropped }, receiver)
    }
}

/// The service under the name of another one.
#[derive(Debug)]
pub(crate) struct Others(pub(crate) Numbers);

impl Service for Others {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &OTHERS
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        self.0.call(method, call)
    }
}

/// Tells of its end.
struct TellDropped(UnboundedSender<()>);

impl Drop for TellDropped {
    fn drop(&mut self) {
        // A test that has ended listens no more.
        let _ = self.0.send(());
    }
}

impl Service for Numbers {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let dropped = TellDropped(self.dropped.clone());
        match method {
            0 => call.unary(async |request: Request<u64>| {
                let mut response = Response::new(2 * request.get_ref());
                if let Some(seen) = request.metadata().get("x-layers") {
                    response.metadata_mut().insert("x-layers", seen.clone());
                }
                Ok(response)
            }),
            1 => call.unary(async move |_: Request<()>| {
                let _dropped = dropped;
                std::future::pending::<Result<Response<()>, Status>>().await
            }),
            2 => call.server_streaming(async |request: Request<u64>| {
                let numbers = stream::iter(0..request.into_inner()).then(async |number| {
                    tokio::time::sleep(STEP).await;
                    Ok(number)
                });
                let mut response = Response::new(numbers.boxed());
                let mut trailers = Trailers::default();
                trailers.0.insert("x-end", "yes".parse().unwrap());
                response.extensions_mut().insert(trailers);
                Ok(response)
            }),
            3 => call.client_streaming(async |request: Request<Streaming<u64>>| {
                let (mut requests, mut sum) = (request.into_inner(), 0);
                while let Some(number) = requests.message().await? {
                    sum += number;
                }
                Ok(Response::new(sum))
            }),
            4 => call.streaming(async |request: Request<Streaming<u64>>| {
                let requests = request.into_inner();
                let sums = requests.scan(0, |sum, number: Result<u64, Status>| {
                    let result = number.map(|number| {
                        *sum += number;
                        *sum
                    });
                    std::future::ready(Some(result))
                });
                Ok(Response::new(sums.boxed()))
            }),
            _ => call.unimplemented(),
        }
    }
}

/// The stub.
#[derive(Debug, Clone)]
pub(crate) struct NumbersStub<C>(pub(crate) C);

impl<C: Caller> NumbersStub<C> {
    pub(crate) async fn double(&self, number: u64) -> Result<u64, Status> {
        self.double_request(Request::new(number)).await.map(Response::into_inner)
    }

    pub(crate) async fn double_request(
        &self,
        request: Request<u64>,
    ) -> Result<Response<u64>, Status> {
        unary(&self.0, &SERVICE.methods[0], request).await
    }

    pub(crate) async fn wait(&self) -> Result<(), Status> {
        unary(&self.0, &SERVICE.methods[1], Request::new(())).await.map(Response::into_inner)
    }

    pub(crate) async fn count(&self, to: u64) -> Result<Streaming<u64>, Status> {
        let response = server_streaming(&self.0, &SERVICE.methods[2], Request::new(to)).await;
        response.map(Response::into_inner)
    }

    pub(crate) async fn sum(&self, numbers: BoxStream<'static, u64>) -> Result<u64, Status> {
        let response = client_streaming(&self.0, &SERVICE.methods[3], Request::new(numbers)).await;
        response.map(Response::into_inner)
    }

    pub(crate) async fn sums(
        &self,
        numbers: BoxStream<'static, u64>,
    ) -> Result<Streaming<u64>, Status> {
        let response = streaming(&self.0, &SERVICE.methods[4], Request::new(numbers)).await;
        response.map(Response::into_inner)
    }
}

/// Numbers with a step of time before each of them.
pub(crate) fn slowly(
    numbers: impl IntoIterator<Item = u64, IntoIter: Send + 'static>,
) -> BoxStream<'static, u64> {
    let numbers = stream::iter(numbers);
    numbers
        .then(async |number| {
            tokio::time::sleep(STEP).await;
            number
        })
        .boxed()
}

/// Numbers without any time between them.
pub(crate) fn at_once(
    numbers: impl IntoIterator<Item = u64, IntoIter: Send + 'static>,
) -> BoxStream<'static, u64> {
    stream::iter(numbers).boxed()
}

/// The messages of a stream up to its end, and its status where it is not a success.
pub(crate) async fn collect<S>(mut messages: S) -> (Vec<u64>, Option<Status>)
where
    S: Stream<Item = Result<u64, Status>> + Unpin,
{
    let mut numbers = Vec::new();
    while let Some(message) = messages.next().await {
        match message {
            Ok(number) => numbers.push(number),
            Err(status) => return (numbers, Some(status)),
        }
    }
    (numbers, None)
}
