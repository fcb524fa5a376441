//! tonic's ecosystem over farcall's transports: health, reflection, `Routes` under layers,
//! compression, and requests that break off.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use farcall::grpc::{GrpcOver, Served};
use farcall::{
    Address, CallKind, Caller, Channel, Code, Idempotency, Request, Response, Server,
    ServerBuilder, Service as _, Status, Streaming, async_trait,
};
use farcall_suite::interop_proto::test_service_client::TestServiceClient;
use farcall_suite::interop_proto::test_service_rpc::TestServiceService;
use farcall_suite::interop_proto::test_service_server::{TestService, TestServiceServer};
use farcall_suite::interop_proto::{
    Payload, SimpleRequest, SimpleResponse, StreamingInputCallRequest, StreamingInputCallResponse,
};
use http_body::{Body, Frame};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::HealthReporter;
use tonic_reflection::pb::v1 as reflection;
use tower::{Service, ServiceBuilder, ServiceExt};

/// farcall's stub of the health service, with tonic-health's messages.
#[allow(
    missing_docs,
    unreachable_pub,
    rustdoc::all,
    clippy::all,
    reason = "generated from others' comments, for a library"
)]
mod health {
    farcall::include_proto!("grpc.health.v1");
}

const LIMIT: Duration = Duration::from_secs(30);

const HEALTH_SET: &[u8] = tonic_health::pb::FILE_DESCRIPTOR_SET;

/// Waits for something, within a bound.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// A server, and a channel to it.
struct Running {
    channel: Channel,
    _serving: AbortOnDropHandle<()>,
}

/// Serves at `address`.
async fn serve(builder: ServerBuilder, address: &str) -> Running {
    let listener = builder.bind(address).await.expect("the address is free");
    let address: Address = listener.local_address().clone();
    let serving = tokio::spawn(async move { drop(listener.serve().await) });
    let channel = within(Channel::connect(&address)).await.expect("it listens");
    Running { channel, _serving: AbortOnDropHandle::new(serving) }
}

/// An address on each transport.
fn addresses() -> [String; 3] {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("grpc-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    [format!("inproc://{name}"), "tcp://127.0.0.1:0".to_owned(), format!("unix://@{name}")]
}

async fn set_serving(reporter: &HealthReporter, status: ServingStatus) {
    reporter.set_service_status("shop.Store", status).await;
}

/// A status as the service's messages have it.
fn wire(status: ServingStatus) -> i32 {
    tonic_health::pb::health_check_response::ServingStatus::from(status).into()
}

fn check_request() -> HealthCheckRequest {
    HealthCheckRequest { service: "shop.Store".into() }
}

/// Health and reflection, with a line each.
async fn with_health_and_reflection() -> (HealthReporter, ServerBuilder) {
    let (reporter, health) = tonic_health::server::health_reporter();
    set_serving(&reporter, ServingStatus::Serving).await;
    let described = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(HEALTH_SET)
        .build_v1()
        .expect("the set is whole");
    let builder = Server::builder()
        .add_grpc_service(health, HEALTH_SET)
        .add_grpc_service(described, reflection::FILE_DESCRIPTOR_SET);
    (reporter, builder)
}

#[tokio::test]
async fn health_is_served_to_both_clients_over_every_transport() {
    for address in addresses() {
        let (reporter, builder) = with_health_and_reflection().await;
        let server = serve(builder, &address).await;
        let stub = health::health_rpc::HealthStub::new(server.channel.clone());
        let mut client = HealthClient::new(GrpcOver::new(server.channel.clone()));
        let by_stub = within(stub.check(check_request())).await.unwrap().into_inner();
        let by_client = within(client.check(check_request())).await.unwrap().into_inner();
        let serving = tonic_health::pb::health_check_response::ServingStatus::Serving;
        assert_eq!((by_stub.status(), by_client.status()), (serving, serving), "{address}");
        let unknown = HealthCheckRequest { service: "no.Such".into() };
        let by_stub = within(stub.check(unknown.clone())).await.unwrap_err();
        let by_client = within(client.check(unknown)).await.unwrap_err();
        assert_eq!((by_stub.code(), by_client.code()), (Code::NotFound, Code::NotFound));
        // A stream that goes on: each watches the same state change.
        let mut watched = within(stub.watch(check_request())).await.unwrap().into_inner();
        let mut seen = within(client.watch(check_request())).await.unwrap().into_inner();
        for status in [ServingStatus::Serving, ServingStatus::NotServing] {
            set_serving(&reporter, status).await;
            for stream in [&mut watched, &mut seen] {
                let update = within(stream.message()).await.unwrap().expect("it goes on");
                assert_eq!(update.status, wire(status), "{address}");
            }
        }
    }
}

/// A watcher is told first, and has its answer before its connection ends. Its watch is a call in
/// flight, which ends when the reporter forgets the service.
#[tokio::test]
async fn a_health_watcher_hears_of_a_drain_over_every_transport() {
    for address in addresses() {
        let (mut reporter, builder) = with_health_and_reflection().await;
        let builder = builder.on_drain(async move {
            set_serving(&reporter, ServingStatus::NotServing).await;
            reporter.clear_service_status("shop.Store").await;
        });
        let listener = builder.bind(&*address).await.unwrap();
        let at = listener.local_address().clone();
        let (shutdown, shut_down) = oneshot::channel::<()>();
        let shutdown_asked = async { drop(shut_down.await) };
        let serving = tokio::spawn(listener.serve().with_graceful_shutdown(shutdown_asked));
        let mut channels = vec![at.to_string()];
        channels.extend(address.starts_with("tcp").then(|| at.to_string().replace("tcp", "grpc")));
        let mut watched = Vec::new();
        for at in channels {
            let channel = within(Channel::connect(at)).await.unwrap();
            let stub = health::health_rpc::HealthStub::new(channel);
            let mut updates = within(stub.watch(check_request())).await.unwrap().into_inner();
            let update = within(updates.message()).await.unwrap().unwrap();
            assert_eq!(update.status, wire(ServingStatus::Serving));
            watched.push(updates);
        }
        shutdown.send(()).unwrap();
        for mut updates in watched {
            let update = within(updates.message()).await.unwrap().expect("before its end");
            assert_eq!(update.status, wire(ServingStatus::NotServing), "{address}");
            assert!(within(updates.message()).await.unwrap().is_none());
        }
        within(serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn reflection_is_served_over_every_transport() {
    use reflection::server_reflection_client::ServerReflectionClient;
    use reflection::server_reflection_request::MessageRequest;
    use reflection::server_reflection_response::MessageResponse;
    for address in addresses() {
        let (_reporter, builder) = with_health_and_reflection().await;
        let server = serve(builder, &address).await;
        let mut client = ServerReflectionClient::new(GrpcOver::new(server.channel.clone()));
        let ask = reflection::ServerReflectionRequest {
            message_request: Some(MessageRequest::ListServices(String::new())),
            ..Default::default()
        };
        let asking = client.server_reflection_info(futures::stream::iter([ask]));
        let mut answers = within(asking).await.unwrap().into_inner();
        let answer = within(answers.message()).await.unwrap().expect("an answer");
        let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
            panic!("it lists services: {answer:?}");
        };
        let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");
        assert_eq!(within(answers.message()).await.unwrap(), None, "the stream ends with ours");
    }
}

#[tokio::test]
async fn routes_and_layers_for_http_are_served() {
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    let (_reporter, health) = tonic_health::server::health_reporter();
    let routes = ServiceBuilder::new()
        .map_request(move |mut request: http::Request<tonic::body::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            assert!(request.uri().path().starts_with("/grpc.health.v1.Health/"));
            request.extensions_mut().insert(7_u64);
            request
        })
        .service(Routes::new(health));
    for address in addresses() {
        let sets = [HEALTH_SET, reflection::FILE_DESCRIPTOR_SET];
        let server = serve(Server::builder().add_grpc_routes(&routes, sets), &address).await;
        let stub = health::health_rpc::HealthStub::new(server.channel.clone());
        let before = seen.load(Ordering::Relaxed);
        within(stub.check(HealthCheckRequest::default())).await.unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), before + 1);
    }
}

#[tokio::test]
async fn a_layer_that_refuses_in_http_is_a_status() {
    let refuses = tower::service_fn(|_: http::Request<tonic::body::Body>| async {
        let mut response = http::Response::new(tonic::body::Body::empty());
        *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        Ok::<_, Infallible>(response)
    });
    let builder = Server::builder().add_grpc_routes(&refuses, [HEALTH_SET]);
    let server = serve(builder, &addresses()[0]).await;
    let stub = health::health_rpc::HealthStub::new(server.channel.clone());
    let status = within(stub.check(HealthCheckRequest::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[test]
fn the_descriptor_set_says_what_methods_are() {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let served = Served::new(health, HEALTH_SET).unwrap();
    let described = served.descriptor();
    assert_eq!(described.name, "grpc.health.v1.Health");
    let kinds: Vec<_> = described.methods.iter().map(|m| (m.name(), m.kind)).collect();
    assert!(kinds.contains(&("Check", CallKind::Unary)), "{kinds:?}");
    assert!(kinds.contains(&("Watch", CallKind::ServerStreaming)), "{kinds:?}");
    assert_eq!(described.methods[0].idempotency, Idempotency::Unknown);
}

/// The observation of a handler of requests.
#[derive(Debug, PartialEq, Eq)]
enum Saw {
    Message(usize),
    /// The requests ended in good order.
    End,
    /// They broke off, with that code.
    Broke(Code),
    /// The handler was dropped where it waited.
    Dropped,
}

/// Tells what it sees of requests, and refuses a call to which headers of HTTP have crossed.
#[derive(Debug, Clone)]
struct Telling(mpsc::UnboundedSender<Saw>);

/// Sends back what it gets.
#[derive(Debug, Clone)]
struct Echo;

#[async_trait]
impl TestService for Echo {
    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let payload = request.into_inner().payload;
        Ok(Response::new(SimpleResponse { payload, ..SimpleResponse::default() }))
    }
}

/// Tells that it is dropped, unless it was told that the handler has ended.
struct Watched(Option<mpsc::UnboundedSender<Saw>>);

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(Saw::Dropped);
        }
    }
}

#[async_trait]
impl TestService for Telling {
    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut watched = Watched(Some(self.0.clone()));
        let mut requests = request.into_inner();
        let ended = loop {
            match requests.message().await {
                Ok(Some(request)) => {
                    let len = request.payload.unwrap_or_default().body.len();
                    let _ = self.0.send(Saw::Message(len));
                }
                Ok(None) => break Saw::End,
                Err(status) => break Saw::Broke(status.code()),
            }
        };
        watched.0 = None;
        let _ = self.0.send(ended);
        Ok(Response::new(StreamingInputCallResponse::default()))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let metadata = request.metadata().clone();
        for key in ["grpc-encoding", "grpc-accept-encoding"] {
            if metadata.get(key).is_some() {
                return Err(Status::failed_precondition(format!("{key} has crossed")));
            }
        }
        let payload = request.into_inner().payload;
        Ok(Response::new(SimpleResponse { payload, ..SimpleResponse::default() }))
    }
}

/// A request's body that comes in these pieces; then it breaks, or ends.
struct Pieces(mpsc::UnboundedReceiver<Result<Bytes, Status>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// A message of the input call with a payload of 3 bytes, as gRPC frames it.
fn framed() -> Bytes {
    use farcall::prost::Message as _;
    let payload = Some(Payload { body: Bytes::from_static(b"abc"), ..Payload::default() });
    let message = StreamingInputCallRequest { payload, ..Default::default() }.encode_to_vec();
    let len = u32::try_from(message.len()).expect("it succeeds").to_be_bytes();
    [&[0][..], &len, &message].concat().into()
}

/// Returns the handler's view of such a body, and the end of the call.
async fn input_call(
    over: &mut GrpcOver<Channel>,
    seen: &mut mpsc::UnboundedReceiver<Saw>,
    last: Option<Result<Bytes, Status>>,
) -> (Saw, Option<String>) {
    let (pieces, body) = mpsc::unbounded_channel();
    let request = http::Request::post("/grpc.testing.TestService/StreamingInputCall")
        .body(Pieces(body))
        .expect("it succeeds");
    let call = tokio::spawn(over.call(request));
    pieces.send(Ok(framed())).expect("it succeeds");
    assert_eq!(within(seen.recv()).await, Some(Saw::Message(3)), "the handler has begun");
    if let Some(last) = last {
        pieces.send(last).expect("it succeeds");
    }
    drop(pieces);
    let end = within(seen.recv()).await.expect("the handler lives");
    let response = within(call).await.expect("it succeeds").expect("it answers");
    let status = response.headers().get("grpc-status");
    (end, status.map(|status| status.to_str().expect("it succeeds").to_owned()))
}

/// Over a service of farcall's, and one of tonic's behind the same server.
#[tokio::test]
async fn a_request_stream_that_broke_never_looks_like_one_that_ended() {
    let set = farcall_suite::INTEROP_DESCRIPTOR_SET;
    for is_tonics in [false, true] {
        for address in addresses() {
            let (sender, mut seen) = mpsc::unbounded_channel();
            let telling = Telling(sender);
            let builder = match is_tonics {
                false => Server::builder().add_service(TestServiceService::new(telling)),
                true => Server::builder().add_grpc_service(TestServiceServer::new(telling), set),
            };
            let server = serve(builder, &address).await;
            let mut over = GrpcOver::new(server.channel.clone());
            let ended = input_call(&mut over, &mut seen, None).await;
            assert_eq!(ended, (Saw::End, None), "{address}, tonic's: {is_tonics}");
            let breaks = [
                // What becomes of a body whose client gives up, which tonic takes for an end.
                Err(Status::cancelled("reset")),
                Err(Status::unavailable("the connection is gone")),
                // Cut short inside a message, and right behind the prefix of one.
                Ok(framed().slice(..7)),
                Ok(framed().slice(..5)),
            ];
            for broken in breaks {
                let what = format!("{address}, tonic's: {is_tonics}, {broken:?}");
                let (saw, status) = input_call(&mut over, &mut seen, Some(broken)).await;
                let is_broken = matches!(saw, Saw::Broke(_) | Saw::Dropped);
                assert!(is_broken, "{what}: {saw:?}");
                assert!(status.is_some_and(|status| status != "0"), "{what}");
            }
        }
    }
}

/// A call of `client` whose payload is well compressed.
async fn compressible<C>(client: C, len: usize)
where
    C: tonic::client::GrpcService<tonic::body::Body> + Clone,
    C::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <C::ResponseBody as Body>::Error: Into<tower::BoxError> + Send,
{
    let mut client = TestServiceClient::new(client)
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let payload = Some(Payload { body: vec![7; len].into(), ..Payload::default() });
    let request = SimpleRequest { payload: payload.clone(), ..SimpleRequest::default() };
    let reply = within(client.unary_call(request)).await.expect("it succeeds");
    assert_eq!(reply.into_inner().payload, payload);
}

#[tokio::test]
async fn messages_are_compressed_between_a_client_and_the_adapter() {
    let (sender, _seen) = mpsc::unbounded_channel();
    let service = TestServiceService::new(Telling(sender));
    let server = serve(Server::builder().add_service(service), &addresses()[1]).await;
    let lens = Arc::new(AtomicU64::new(0));
    let over = GrpcOver::new(server.channel.clone()).send_compressed(CompressionEncoding::Gzip);
    let counted = Arc::clone(&lens);
    let over = over
        .map_request(|request: http::Request<tonic::body::Body>| {
            assert_eq!(request.headers()["grpc-encoding"], "gzip");
            request
        })
        .map_response(move |response: http::Response<tonic::body::Body>| {
            assert_eq!(response.headers()["grpc-encoding"], "gzip");
            response.map(|body| tonic::body::Body::new(Counted { body, count: counted }))
        });
    compressible(over, 100_000).await;
    let len = lens.load(Ordering::Relaxed);
    assert!((1..10_000).contains(&len), "{len} bytes of 100,000 that are all the same");
}

#[tokio::test]
async fn services_of_tonics_may_compress_what_they_send() {
    let service = TestServiceServer::new(Echo).send_compressed(CompressionEncoding::Gzip);
    let set = farcall_suite::INTEROP_DESCRIPTOR_SET;
    let builder = Server::builder().add_grpc_service(service, set);
    let server = serve(builder, &addresses()[1]).await;
    compressible(GrpcOver::new(server.channel.clone()), 100_000).await;
}

/// Counts the bytes of a response.
struct Counted {
    body: tonic::body::Body,
    count: Arc<AtomicU64>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let len = frame.data_ref().map_or(0, Bytes::len);
            self.count.fetch_add(len as u64, Ordering::Relaxed);
        }
        polled
    }
}

#[tokio::test]
async fn a_method_that_the_server_does_not_have_is_unimplemented() {
    let (_reporter, builder) = with_health_and_reflection().await;
    let server = serve(builder, &addresses()[0]).await;
    let mut client = TestServiceClient::new(GrpcOver::new(server.channel.clone()));
    let status = within(client.unary_call(SimpleRequest::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("/grpc.testing.TestService/UnaryCall"), "{status}");
}

/// The code of a call by that path.
async fn code_at<C: Caller + Clone + 'static>(over: &mut GrpcOver<C>, path: &str) -> Code {
    let request = http::Request::post(path).body(tonic::body::Body::empty()).expect("it is one");
    let response = within(over.call(request)).await.expect("it answers");
    Code::from_bytes(response.headers()["grpc-status"].as_bytes())
}

/// A listener's clients may call any path, as often as they like.
#[tokio::test]
async fn unknown_paths_take_nothing_from_other_calls() {
    let (_reporter, builder) = with_health_and_reflection().await;
    let server = serve(builder, &addresses()[0]).await;
    let mut over = GrpcOver::new(server.channel.clone());
    for number in 0..10_000 {
        let code = code_at(&mut over, &format!("/flood.Flood/M{number}")).await;
        assert_eq!(code, Code::Unimplemented, "path {number}");
    }
    check_caller(over.caller().clone()).await;
}

#[tokio::test]
async fn a_call_by_path_ends_with_its_deadline() {
    let channel = Channel::builder("inproc://grpc-no-server").unwrap();
    let channel = channel.wait_for_ready(true).connect_lazy();
    let mut client = TestServiceClient::new(GrpcOver::new(channel));
    let mut request = Request::new(SimpleRequest::default());
    request.set_timeout(Duration::from_millis(50));
    let status = within(client.unary_call(request)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

/// Layers and callers of any type carry such calls, too.
#[tokio::test]
async fn calls_by_path_pass_layers_and_boxed_callers() {
    let (_reporter, builder) = with_health_and_reflection().await;
    let server = serve(builder, &addresses()[0]).await;
    let layered = server.channel.clone().layer(tower::util::MapRequestLayer::new(
        |call: farcall::client::ClientCall| {
            assert_eq!(call.method().path(), "/grpc.health.v1.Health/Check");
            call
        },
    ));
    let caller = farcall::DynCaller::new(layered);
    check_caller(caller).await;
}

async fn check_caller(caller: impl Caller + Clone + 'static) {
    let mut client = HealthClient::new(GrpcOver::new(caller));
    within(client.check(HealthCheckRequest::default())).await.expect("it succeeds");
}
