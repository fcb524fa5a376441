//! A service that says who calls, and echoes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use farcall::client::{server_streaming, unary};
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::{
    CallKind, Caller, Channel, ChannelBuilder, Idempotency, Listener, MethodDescriptor, PeerInfo,
    Request, Response, Server, ServerBuilder, Service, ServiceDescriptor, Status,
};

pub(crate) static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Tls",
    methods: &[
        method("/t.Tls/Who", CallKind::Unary),
        method("/t.Tls/Echo", CallKind::Unary),
        method("/t.Tls/Repeat", CallKind::ServerStreaming),
        method("/t.Tls/Token", CallKind::Unary),
    ],
};

const fn method(path: &'static str, kind: CallKind) -> MethodDescriptor {
    MethodDescriptor::new(path, kind, Idempotency::Unknown)
}

/// The service, which counts the calls that reach it.
#[derive(Default)]
pub(crate) struct Tls {
    pub(crate) calls: Arc<AtomicU64>,
}

/// The caller of the handler that asks.
fn caller() -> String {
    let peer = PeerInfo::current().unwrap();
    peer.addresses.identity().map_or_else(|| "anonymous".to_owned(), ToString::to_string)
}

impl Service for Tls {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match method {
            0 => call.unary(async |_: Request<()>| Ok(Response::new(caller()))),
            1 => {
                call.unary(async |request: Request<Bytes>| Ok(Response::new(request.into_inner())))
            }
            2 => call.server_streaming(async |request: Request<u64>| {
                let numbers = (0..request.into_inner()).map(Ok::<_, Status>);
                Ok(Response::new(futures::stream::iter(numbers)))
            }),
            _ => call.unary(async |request: Request<()>| {
                let token = request.metadata().get("authorization");
                let token = token.and_then(|token| token.to_str().ok()).unwrap_or("none");
                Ok(Response::new(token.to_owned()))
            }),
        }
    }
}

/// A server that runs until the test ends.
pub(crate) struct Running {
    pub(crate) address: String,
    pub(crate) server: Server,
}

/// Serves at `address`.
pub(crate) async fn serve_at(builder: ServerBuilder, address: &str) -> Running {
    let listener: Listener = builder.add_service(Tls::default()).bind(address).await.unwrap();
    let address = listener.local_address().to_string();
    let server = listener.server().clone();
    tokio::spawn(listener.serve());
    Running { address, server }
}

/// Serves at a port of loopback over TCP.
pub(crate) async fn serve(builder: ServerBuilder) -> Running {
    serve_at(builder, "tcp://127.0.0.1:0").await
}

pub(crate) fn builder(address: &str) -> ChannelBuilder {
    Channel::builder(address).unwrap()
}

/// Returns the name that the server has for the caller.
pub(crate) async fn who(channel: &impl Caller) -> Result<String, Status> {
    Ok(unary::<_, String>(channel, &SERVICE.methods[0], Request::new(())).await?.into_inner())
}

pub(crate) async fn echo(channel: &impl Caller, payload: Bytes) -> Result<Bytes, Status> {
    Ok(unary::<_, Bytes>(channel, &SERVICE.methods[1], Request::new(payload)).await?.into_inner())
}

/// The sum of a stream of numbers below `count`.
pub(crate) async fn sum(channel: &impl Caller, count: u64) -> Result<u64, Status> {
    let request = Request::new(count);
    let stream = server_streaming::<_, u64>(channel, &SERVICE.methods[2], request).await?;
    let (mut stream, mut sum) = (stream.into_inner(), 0);
    while let Some(number) = stream.message().await? {
        sum += number;
    }
    Ok(sum)
}
