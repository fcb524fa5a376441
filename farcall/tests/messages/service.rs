//! A service as it is generated from a `.proto` file, and a server of it.

use std::sync::Arc;

use farcall::client::unary;
use farcall::server::{HandlerFuture, ServerCall};
use farcall::{
    CallKind, Caller, Channel, Idempotency, Listener, MethodDescriptor, Rdma, RdmaConfig, Request,
    Response, Server, ServerBuilder, Service, ServiceDescriptor, Status, Streaming,
};
use futures::StreamExt;
use futures::stream;
use tokio::sync::Notify;

pub(crate) static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "demo.Demo",
    methods: &[
        method("/demo.Demo/Echo", CallKind::Unary),
        method("/demo.Demo/Wait", CallKind::Unary),
        method("/demo.Demo/Fail", CallKind::Unary),
        method("/demo.Demo/Panic", CallKind::Unary),
        method("/demo.Demo/Subscribe", CallKind::ServerStreaming),
        method("/demo.Demo/Upload", CallKind::ClientStreaming),
        method("/demo.Demo/Relay", CallKind::Unary),
    ],
};

/// A method that no server has.
pub(crate) static MISSING: MethodDescriptor = method("/demo.Other/Missing", CallKind::Unary);

const fn method(path: &'static str, kind: CallKind) -> MethodDescriptor {
    MethodDescriptor::new(path, kind, Idempotency::Unknown)
}

/// The method with that name.
pub(crate) fn named(name: &str) -> &'static MethodDescriptor {
    SERVICE.methods.iter().find(|method| method.name() == name).expect("the service has it")
}

/// The service.
#[derive(Debug, Default)]
pub(crate) struct Demo {
    /// Told of each `Wait` that has begun.
    pub(crate) waiting: Arc<Notify>,
    /// The server that `Relay` calls.
    pub(crate) next: Option<Channel>,
}

impl Service for Demo {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let (waiting, next) = (Arc::clone(&self.waiting), self.next.clone());
        match method {
            0 => {
                call.unary(async |request: Request<String>| Ok(Response::new(request.into_inner())))
            }
            1 => call.unary(async move |_: Request<String>| {
                waiting.notify_one();
                std::future::pending::<Result<Response<String>, Status>>().await
            }),
            2 => call.unary(async |_: Request<String>| {
                Err::<Response<String>, _>(Status::not_found("no such key"))
            }),
            3 => call.unary(async |_: Request<String>| -> Result<Response<String>, Status> {
                panic!("on purpose")
            }),
            4 => call.server_streaming(async |_: Request<String>| {
                let one = stream::iter([Ok("one".to_owned())]);
                let rest = stream::iter([Err(Status::data_loss("the log has a gap"))]);
                Ok(Response::new(one.chain(rest)))
            }),
            5 => call.client_streaming(async |request: Request<Streaming<String>>| {
                let mut requests = request.into_inner();
                while requests.message().await?.is_some() {}
                Ok(Response::new(String::new()))
            }),
            6 => call.unary(async move |request: Request<String>| {
                let next = next.ok_or_else(|| Status::internal("there is no next one"))?;
                unary::<String, String>(&next, named("Wait"), request).await
            }),
            _ => call.unimplemented(),
        }
    }
}

/// A server that listens on a port of loopback.
pub(crate) async fn listen(builder: ServerBuilder) -> Listener {
    builder.bind("tcp://127.0.0.1:0").await.expect("a port of loopback")
}

/// Serves for as long as the test lasts; its address.
pub(crate) fn serve(listener: Listener) -> String {
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address
}

/// A server of the service; its address, and what tells of each `Wait` that has begun.
pub(crate) async fn demo(builder: ServerBuilder) -> (String, Arc<Notify>) {
    let demo = Demo::default();
    let waiting = Arc::clone(&demo.waiting);
    (serve(listen(builder.add_service(demo)).await), waiting)
}

/// The status of a unary call that fails.
pub(crate) async fn failure(channel: &impl Caller, name: &str, text: &str) -> Status {
    failure_of(channel, name, Request::new(text.to_owned())).await
}

/// The status of a unary call that fails.
pub(crate) async fn failure_of(
    channel: &impl Caller,
    name: &str,
    request: Request<String>,
) -> Status {
    let answer = unary::<String, String>(channel, named(name), request).await;
    answer.expect_err("the call fails")
}

/// A host whose only RDMA device has `addresses`.
pub(crate) fn with_device(addresses: &[std::net::IpAddr]) -> Rdma {
    with_device_under(RdmaConfig::default(), addresses)
}

/// A host whose only RDMA device has `addresses`, and how it is used.
pub(crate) fn with_device_under(config: RdmaConfig, addresses: &[std::net::IpAddr]) -> Rdma {
    let network = farcall::sim::SimNetwork::new(1);
    network.add_device("sim0", addresses);
    Rdma::simulated(&network, config)
}

/// A host that has no RDMA device.
pub(crate) fn without_device() -> Rdma {
    Rdma::simulated(&farcall::sim::SimNetwork::new(1), RdmaConfig::default())
}

/// A server without settings of its own, on that host.
pub(crate) fn on(host: &Rdma) -> ServerBuilder {
    Server::builder().rdma(host)
}
