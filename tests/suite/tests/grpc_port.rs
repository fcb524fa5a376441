//! Clients of gRPC at the port of a farcall server: they are clients like any other. And `grpc://`,
//! where no server of gRPC listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farcall::grpc::GrpcOver;
use farcall::prost::Message;
use farcall::server::ServerRequest;
use farcall::{Channel, Code, PeerInfo, Request, Response, Server, Status, Streaming, async_trait};
use farcall_suite::interop_proto::test_service_client::TestServiceClient;
use farcall_suite::interop_proto::test_service_rpc::{TestServiceService, TestServiceStub};
use farcall_suite::interop_proto::test_service_server::TestService;
use farcall_suite::interop_proto::{
    Empty, Payload, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse,
};
use futures::future::select_all;
use h2::client::ResponseFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::codec::CompressionEncoding;
use tonic::transport::Endpoint;
use tower::util::MapRequestLayer;

const LIMIT: Duration = Duration::from_secs(30);

/// Waits for something, within a bound.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// Waits until something is so; to be waited for within a bound.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

/// The most that a connection counts on which nothing happens, in bytes.
const IDLE_MAX: u64 = 26 << 10;

/// The most that a call counts beside its messages, in bytes.
const CALL_MAX: u64 = 8 << 10;

/// The handler's observation.
#[derive(Debug, PartialEq, Eq)]
enum Saw {
    Entered,
    Message,
    End,
    Broke,
    Dropped,
}

/// Waits in a unary call until it is told to go on, then answers with what is asked for, and tells
/// what it sees of requests.
#[derive(Debug, Clone)]
struct Waiting {
    go_on: Arc<Notify>,
    saw: mpsc::UnboundedSender<Saw>,
}

impl Waiting {
    fn new() -> (Self, mpsc::UnboundedReceiver<Saw>) {
        let (saw, seen) = mpsc::unbounded_channel();
        (Self { go_on: Arc::default(), saw }, seen)
    }
}

/// Tells that a handler was dropped, unless it came to its end.
struct Watched(Option<mpsc::UnboundedSender<Saw>>);

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(saw) = self.0.take() {
            let _ = saw.send(Saw::Dropped);
        }
    }
}

#[async_trait]
impl TestService for Waiting {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        let peer = PeerInfo::current().expect("it is a call");
        assert_eq!(peer.transport, "grpc");
        assert!(peer.addresses.peer.is_some_and(|it| it.ip().is_loopback()));
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let _ = self.saw.send(Saw::Entered);
        self.go_on.notified().await;
        let len = usize::try_from(request.into_inner().response_size).expect("it is a size");
        let payload = Some(Payload { body: vec![7; len].into(), ..Payload::default() });
        let payload = payload.filter(|_| len > 0);
        Ok(Response::new(SimpleResponse { payload, ..SimpleResponse::default() }))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut watched = Watched(Some(self.saw.clone()));
        let mut requests = request.into_inner();
        let end = loop {
            match requests.message().await {
                Ok(Some(_)) => {
                    let _ = self.saw.send(Saw::Message);
                }
                Ok(None) => break Saw::End,
                Err(_) => break Saw::Broke,
            }
        };
        watched.0 = None;
        let _ = self.saw.send(end);
        Ok(Response::new(StreamingInputCallResponse::default()))
    }
}

/// A server, and the way to shut it down.
struct Running {
    server: Server,
    authority: String,
    shutdown: Option<oneshot::Sender<()>>,
    serving: tokio::task::JoinHandle<()>,
}

async fn serve(builder: farcall::ServerBuilder) -> Running {
    let listener = builder.bind("tcp://127.0.0.1:0").await.expect("a port is free");
    let authority = listener.local_address().to_string().replace("tcp://", "");
    let (server, (shutdown, shut_down)) = (listener.server().clone(), oneshot::channel());
    let serving = tokio::spawn(async move {
        let served = listener.serve().with_graceful_shutdown(async { drop(shut_down.await) });
        served.await.expect("it serves");
    });
    Running { server, authority, shutdown: Some(shutdown), serving }
}

impl Running {
    async fn client(&self) -> TestServiceClient<tonic::transport::Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.authority));
        let channel = within(endpoint.expect("it is a URI").connect()).await;
        TestServiceClient::new(channel.expect("it listens"))
    }

    /// A client that sends the frames of HTTP/2 that it is told to, takes so many bytes of each
    /// response, and sends pings without end.
    async fn raw_client(&self, window: u32) -> RawClient {
        let stream = within(TcpStream::connect(&self.authority)).await.expect("it listens");
        stream.set_nodelay(true).expect("it is open");
        let mut builder = h2::client::Builder::new();
        let handshake = builder.initial_window_size(window).handshake(stream);
        let (sender, mut connection) = within(handshake).await.expect("it answers");
        let mut pings = connection.ping_pong().expect("nothing has taken it");
        let driving = AbortOnDropHandle::new(tokio::spawn(async move {
            let pinging = async {
                while pings.ping(h2::Ping::opaque()).await.is_ok() {
                    tokio::time::sleep(PING_INTERVAL).await;
                }
            };
            tokio::join!(connection, pinging).0.unwrap_or_default();
        }));
        RawClient { sender, authority: self.authority.clone(), _driving: driving }
    }

    /// Waits until all clients of gRPC are gone.
    async fn gone(&self) {
        within(async {
            while self.server.connections().iter().any(|it| it.transport == "grpc") {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    fn shut_down(&mut self) {
        self.shutdown.take().expect("it was not shut down").send(()).expect("it serves");
    }
}

/// A message as gRPC frames it.
fn framed(message: &impl Message) -> Bytes {
    let message = message.encode_to_vec();
    let len = u32::try_from(message.len()).expect("it is short").to_be_bytes();
    [&[0][..], &len, &message].concat().into()
}

/// Often, within a progress timeout of the tests.
const PING_INTERVAL: Duration = Duration::from_millis(20);

/// HTTP/2's default.
const WINDOW: u32 = 65_535;

struct RawClient {
    sender: h2::client::SendRequest<Bytes>,
    authority: String,
    _driving: AbortOnDropHandle<()>,
}

impl RawClient {
    /// Makes a unary call for a response of that length.
    async fn ask(&mut self, response_len: usize) -> ResponseFuture {
        let response_size = i32::try_from(response_len).expect("it is short");
        let request = SimpleRequest { response_size, ..SimpleRequest::default() };
        let (answer, mut requests) = self.call("UnaryCall").await;
        requests.send_data(framed(&request), true).expect("it is connected");
        answer
    }

    /// Sends the headers of a call.
    async fn call(&mut self, method: &str) -> (ResponseFuture, h2::SendStream<Bytes>) {
        let path = format!("http://{}/grpc.testing.TestService/{method}", self.authority);
        let request = http::Request::post(path).header("content-type", "application/grpc");
        let request = request.header("grpc-encoding", "gzip").body(()).expect("it is one");
        let mut sender = within(self.sender.clone().ready()).await.expect("it is connected");
        sender.send_request(request, false).expect("it is connected")
    }
}

#[tokio::test]
async fn layers_and_the_list_of_connections_have_clients_of_grpc() {
    let (service, _seen) = Waiting::new();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let layer = MapRequestLayer::new(move |request: ServerRequest| {
        counted.fetch_add(1, Ordering::Relaxed);
        assert_eq!(request.method().path, "/grpc.testing.TestService/EmptyCall");
        request
    });
    let service = TestServiceService::new(service);
    let running = serve(Server::builder().layer(layer).add_service(service)).await;
    let mut client = running.client().await;
    within(client.empty_call(Empty {})).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let connections = running.server.connections();
    assert_eq!(connections.len(), 1);
    assert_eq!(connections[0].transport, "grpc");
    assert!(connections[0].addresses.peer.is_some_and(|peer| peer.ip().is_loopback()));
    // farcall's own clients come to the same port.
    let channel = within(Channel::connect(format!("tcp://{}", running.authority))).await.unwrap();
    assert_eq!(channel.path().transport(), Some("tcp"));
    drop(client);
    running.gone().await;
}

#[tokio::test]
async fn a_server_that_shuts_down_answers_calls_of_grpc_and_ends() {
    let (service, mut seen) = Waiting::new();
    let go_on = Arc::clone(&service.go_on);
    let mut running = serve(Server::builder().add_service(TestServiceService::new(service))).await;
    let mut client = running.client().await;
    let call = tokio::spawn(async move { client.unary_call(SimpleRequest::default()).await });
    assert_eq!(within(seen.recv()).await, Some(Saw::Entered));
    running.shut_down();
    // The call is in flight until its handler goes on.
    tokio::task::yield_now().await;
    assert!(!call.is_finished() && !running.serving.is_finished());
    go_on.notify_one();
    within(call).await.unwrap().unwrap();
    within(running.serving).await.unwrap();
}

#[tokio::test]
async fn calls_that_outlast_the_drain_time_end_with_their_connection() {
    let (service, mut seen) = Waiting::new();
    let builder = Server::builder().drain_timeout(Duration::ZERO);
    let mut running = serve(builder.add_service(TestServiceService::new(service))).await;
    let mut client = running.client().await;
    let call = tokio::spawn(async move { client.unary_call(SimpleRequest::default()).await });
    assert_eq!(within(seen.recv()).await, Some(Saw::Entered));
    running.shut_down();
    within(running.serving).await.unwrap();
    assert!(within(call).await.unwrap().is_err());
}

#[tokio::test]
async fn calls_of_grpc_count_among_the_servers() {
    let (service, mut seen) = Waiting::new();
    let go_on = Arc::clone(&service.go_on);
    let service = TestServiceService::new(service);
    let running = serve(Server::builder().max_calls(1).add_service(service)).await;
    let (mut first, mut second) = (running.client().await, running.client().await);
    let call = tokio::spawn(async move { first.unary_call(SimpleRequest::default()).await });
    assert_eq!(within(seen.recv()).await, Some(Saw::Entered));
    let status = within(second.unary_call(SimpleRequest::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    go_on.notify_one();
    within(call).await.unwrap().unwrap();
}

/// tonic's server takes a reset stream for one that has ended.
#[tokio::test]
async fn requests_whose_client_gave_up_have_not_ended() {
    let (service, mut seen) = Waiting::new();
    let running = serve(Server::builder().add_service(TestServiceService::new(service))).await;
    let mut client = running.client().await;
    let (sender, requests) = mpsc::channel(1);
    let requests = ReceiverStream::new(requests);
    let call = tokio::spawn(async move { client.streaming_input_call(requests).await });
    within(sender.send(StreamingInputCallRequest::default())).await.unwrap();
    assert_eq!(within(seen.recv()).await, Some(Saw::Message));
    call.abort();
    let saw = within(seen.recv()).await.expect("the handler ends");
    assert!(matches!(saw, Saw::Broke | Saw::Dropped), "{saw:?}");
}

/// hyper takes a reset with NO_ERROR for an end of the requests. The handler sees that only if it
/// runs before it is dropped, so that code is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn requests_whose_stream_was_reset_have_not_ended() {
    let (service, mut seen) = Waiting::new();
    let running = serve(Server::builder().add_service(TestServiceService::new(service))).await;
    let mut raw = running.raw_client(WINDOW).await;
    let codes = 0..=u32::from(h2::Reason::HTTP_1_1_REQUIRED);
    for code in codes.chain(std::iter::repeat_n(u32::from(h2::Reason::NO_ERROR), 1000)) {
        let reason = h2::Reason::from(code);
        let (_answer, mut requests) = raw.call("StreamingInputCall").await;
        requests.send_data(framed(&StreamingInputCallRequest::default()), false).unwrap();
        assert_eq!(within(seen.recv()).await, Some(Saw::Message), "{reason:?}");
        requests.send_reset(reason);
        let saw = within(seen.recv()).await.expect("the handler ends");
        assert!(matches!(saw, Saw::Broke | Saw::Dropped), "{reason:?}: {saw:?}");
    }
    let (answer, mut requests) = raw.call("StreamingInputCall").await;
    requests.send_data(framed(&StreamingInputCallRequest::default()), true).unwrap();
    assert_eq!(within(seen.recv()).await, Some(Saw::Message));
    assert_eq!(within(seen.recv()).await, Some(Saw::End));
    within(answer).await.unwrap();
}

#[tokio::test]
async fn requests_that_are_no_calls_are_refused_in_http() {
    let (service, _seen) = Waiting::new();
    let running = serve(Server::builder().add_service(TestServiceService::new(service))).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.authority)).unwrap();
    let channel = within(endpoint.connect()).await.unwrap();
    let path = format!("http://{}/grpc.testing.TestService/EmptyCall", running.authority);
    for (method, content_type, expected) in [
        (http::Method::GET, "application/grpc", http::StatusCode::METHOD_NOT_ALLOWED),
        (http::Method::POST, "text/plain", http::StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ] {
        let request = http::Request::builder().method(method).uri(&path);
        let request = request.header("content-type", content_type);
        let request = request.body(tonic::body::Body::empty()).unwrap();
        let sent = tower::ServiceExt::oneshot(channel.clone(), request);
        assert_eq!(within(sent).await.unwrap().status(), expected);
    }
}

#[tokio::test]
async fn a_server_may_take_no_clients_of_grpc() {
    let (service, _seen) = Waiting::new();
    let builder = Server::builder().grpc_clients(false);
    let builder = builder.add_service(TestServiceService::new(service));
    let running = serve(builder).await;
    let refused = within(Channel::connect(format!("grpc://{}", running.authority))).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("closed the connection before it sent any HTTP/2"), "{text}");
}

#[tokio::test]
async fn a_client_that_begins_and_says_no_more_is_not_kept() {
    let (service, _seen) = Waiting::new();
    let builder = Server::builder().handshake_timeout(Duration::from_millis(100));
    let running = serve(builder.add_service(TestServiceService::new(service))).await;
    let mut stream = TcpStream::connect(&running.authority).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    let mut rest = Vec::new();
    // The server's own settings may come; then the end.
    within(stream.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn what_is_no_server_of_grpc_is_told_by_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("grpc://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            // Closed before all was read, it would be reset, and perhaps before it was read.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    let refused = within(Channel::connect(&address)).await.unwrap_err().to_string();
    assert!(refused.contains("does not speak HTTP/2: this is HTTP/1.1"), "{refused}");
    assert!(refused.contains(&address), "{refused}");
}

/// The channel is the same as any other: it fails at once, names the server, and connects again.
#[tokio::test]
async fn a_channel_to_grpc_connects_again() {
    let (service, _seen) = Waiting::new();
    let service = TestServiceService::new(service);
    let mut running = serve(Server::builder().add_service(service)).await;
    let address = format!("grpc://{}", running.authority);
    let channel = within(Channel::connect(&address)).await.unwrap();
    assert_eq!(channel.path().transport(), Some("grpc"));
    let stub = TestServiceStub::new(channel.clone());
    within(stub.empty_call(Empty {})).await.unwrap();
    running.shut_down();
    within(running.serving).await.unwrap();
    let status = within(stub.empty_call(Empty {})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(farcall::NotExecuted::matches(&status), "{status}");
    let (service, _seen) = Waiting::new();
    let builder = Server::builder().add_service(TestServiceService::new(service));
    let listener = builder.bind(format!("tcp://{}", running.authority)).await.unwrap();
    let _serving = AbortOnDropHandle::new(tokio::spawn(async move {
        drop(listener.serve().await);
    }));
    let mut request = Request::new(Empty {});
    request.extensions_mut().insert(farcall::Readiness::WaitForReady);
    request.set_timeout(LIMIT);
    within(stub.empty_call(request)).await.unwrap();
}

/// A request that is `inflated_len` bytes long, and a thousandth of that when it travels.
fn bomb(inflated_len: usize) -> SimpleRequest {
    let payload = Payload { body: vec![0; inflated_len].into(), ..Payload::default() };
    SimpleRequest { payload: Some(payload), ..SimpleRequest::default() }
}

#[tokio::test]
async fn a_message_is_inflated_to_no_more_than_the_longest_one() {
    const MAX_LEN: u64 = 1 << 20;
    let (service, _seen) = Waiting::new();
    service.go_on.notify_one();
    let service = TestServiceService::new(service);
    let builder = Server::builder().max_message_len(MAX_LEN).add_service(service);
    let running = serve(builder).await;
    let mut client = running.client().await.send_compressed(CompressionEncoding::Gzip);
    let status = within(client.unary_call(bomb(64 << 20))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let text = "the request's message, inflated, is over the server's limit of 1048576 bytes \
                 (limits.max_message_len)";
    assert_eq!(status.message(), text);
    within(client.unary_call(bomb(1_000_000))).await.expect("the connection goes on");
}

#[tokio::test]
async fn clients_over_a_channel_inflate_no_more_than_they_may() {
    let (service, _seen) = Waiting::new();
    service.go_on.notify_one();
    let running = serve(Server::builder().add_service(TestServiceService::new(service))).await;
    let channel = within(Channel::connect(format!("tcp://{}", running.authority))).await.unwrap();
    let over = GrpcOver::new(channel).max_message_len(100_000);
    let mut client = TestServiceClient::new(over).send_compressed(CompressionEncoding::Gzip);
    let status = within(client.unary_call(bomb(100_001))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    within(client.unary_call(bomb(90_000))).await.expect("it is not too long");
}

/// A compressed message's inflated length is known only when it has arrived, which is too late.
#[tokio::test]
async fn a_compressed_message_counts_what_it_may_become() {
    let (service, _seen) = Waiting::new();
    service.go_on.notify_one();
    let service = TestServiceService::new(service);
    // One message may be inflated by this, and not two at a time.
    let builder = Server::builder().max_memory(14 << 20).max_message_len(4 << 20);
    let running = serve(builder.add_service(service)).await;
    let mut client = running.client().await.send_compressed(CompressionEncoding::Gzip);
    within(client.unary_call(bomb(1))).await.expect("there is memory for one");
    assert!(running.server.memory_held() < 1 << 20, "{}", running.server.memory_held());
    // The prefix of a compressed message of 1 byte, on each of many streams.
    let mut raw = running.raw_client(WINDOW).await;
    let mut requests = Vec::new();
    let mut answers = Vec::new();
    for _ in 0..8 {
        let (answer, mut request) = raw.call("UnaryCall").await;
        request.send_data(Bytes::from_static(&[1, 0, 0, 0, 1]), false).unwrap();
        requests.push(request);
        answers.push(answer);
    }
    let (refused, ..) = within(select_all(answers)).await;
    let text = refused.unwrap().headers()["grpc-message"].to_str().unwrap().to_owned();
    assert!(text.contains("server.max_memory"), "{text}");
}

/// Of each length of a response and each window: those that hyper keeps, and those that h2 does.
#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_although_it_pings() {
    for (window, len) in [(0, 1), (0, 1_000_000), (1, 10), (1, 100_000)] {
        let (service, mut seen) = Waiting::new();
        let go_on = Arc::clone(&service.go_on);
        let builder = Server::builder().progress_timeout(Duration::from_millis(500));
        let running = serve(builder.add_service(TestServiceService::new(service))).await;
        let mut raw = running.raw_client(window).await;
        let _answer = raw.ask(len).await;
        assert_eq!(within(seen.recv()).await, Some(Saw::Entered));
        go_on.notify_one();
        running.gone().await;
    }
}

#[tokio::test]
async fn a_response_counts_until_its_client_takes_it() {
    const COUNT: usize = 8;
    for len in [100, 10_000, 100_000] {
        let (service, mut seen) = Waiting::new();
        let go_on = Arc::clone(&service.go_on);
        let builder = Server::builder().max_memory(64 << 20);
        let running = serve(builder.add_service(TestServiceService::new(service))).await;
        let mut raw = running.raw_client(1).await;
        let mut answers = Vec::new();
        let held = |expected: std::ops::Range<u64>| {
            let held = running.server.memory_held();
            expected.contains(&held)
        };
        within(until(|| held(1..IDLE_MAX + 1))).await;
        let idle = running.server.memory_held();
        for _ in 0..COUNT {
            answers.push(raw.ask(len).await);
            assert_eq!(within(seen.recv()).await, Some(Saw::Entered));
            go_on.notify_one();
        }
        let mut bodies = Vec::new();
        for answer in answers {
            bodies.push(within(answer).await.unwrap().into_body());
        }
        // The handlers are done.
        within(until(|| running.server.calls_running() == 0)).await;
        let counted = idle + (COUNT * len) as u64;
        within(until(|| held(counted..counted + CALL_MAX * COUNT as u64))).await;
        drop(bodies);
        within(until(|| held(idle..idle + 1))).await;
    }
}

/// Streams in numbers, opened and reset at once: CVE-2023-44487.
#[tokio::test]
async fn a_rapid_reset_client_loses_its_connection() {
    let (service, _seen) = Waiting::new();
    let running = serve(Server::builder().add_service(TestServiceService::new(service))).await;
    let stream = TcpStream::connect(&running.authority).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let flood = async {
        let mut sender = sender;
        let path = format!("http://{}/grpc.testing.TestService/UnaryCall", running.authority);
        loop {
            let request = http::Request::post(&path).header("content-type", "application/grpc");
            let request = request.body(()).unwrap();
            let Ok(ready) = sender.ready().await else { break };
            sender = ready;
            let Ok((answer, mut requests)) = sender.send_request(request, false) else { break };
            let _ = requests.send_data(Bytes::from_static(b"\0\0\0\0\0"), false);
            requests.send_reset(h2::Reason::CANCEL);
            drop(answer);
            // The connection's task writes.
            tokio::task::yield_now().await;
            if connection.is_finished() {
                break;
            }
        }
    };
    within(flood).await;
    assert_eq!(running.server.calls_running(), 0);
}
