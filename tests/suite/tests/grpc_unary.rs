//! Unary calls of gRPC's clients at a server's port, most of which are made and answered in one go:
//! those whose message comes late, not at all or in parts, and those whose handler blocks.

use std::sync::mpsc as blocking;
use std::time::Duration;

use bytes::Bytes;
use farcall::prost::Message;
use farcall::{Code, Request, Response, Server, Status, async_trait};
use farcall_suite::interop_proto::test_service_rpc::TestServiceService;
use farcall_suite::interop_proto::test_service_server::TestService;
use farcall_suite::interop_proto::{Empty, Payload, SimpleRequest, SimpleResponse};
use h2::client::ResponseFuture;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

const LIMIT: Duration = Duration::from_secs(30);

/// Waits for something, within a bound.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// Answers a unary call with its payload, and tells that it has begun. One that asks for a response
/// of `BLOCKS` bytes blocks its thread until an empty call is made.
struct Serves {
    begun: mpsc::UnboundedSender<()>,
    unblock: blocking::Sender<()>,
    unblocked: Mutex<blocking::Receiver<()>>,
}

const BLOCKS: i32 = 1;

impl Serves {
    fn new() -> (Self, mpsc::UnboundedReceiver<()>) {
        let ((begun, calls), (unblock, unblocked)) =
            (mpsc::unbounded_channel(), blocking::channel());
        (Self { begun, unblock, unblocked: Mutex::new(unblocked) }, calls)
    }
}

#[async_trait]
impl TestService for Serves {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.unblock.send(()).expect("the service is there");
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        self.begun.send(()).expect("the test waits");
        let request = request.into_inner();
        if request.response_size == BLOCKS {
            let unblocked = self.unblocked.lock();
            unblocked.recv_timeout(LIMIT).map_err(|_| Status::aborted("it was not unblocked"))?;
        }
        Ok(Response::new(SimpleResponse { payload: request.payload, ..SimpleResponse::default() }))
    }
}

/// A server and a client of it that sends the frames of HTTP/2 that it is told to.
struct Rig {
    sender: h2::client::SendRequest<Bytes>,
    pings: h2::PingPong,
    authority: String,
    calls: mpsc::UnboundedReceiver<()>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Rig {
    async fn new() -> Self {
        let (service, calls) = Serves::new();
        let server = Server::builder().add_service(TestServiceService::new(service));
        let listener = server.bind("tcp://127.0.0.1:0").await.expect("a port is free");
        let authority = listener.local_address().to_string().replace("tcp://", "");
        let serving = tokio::spawn(async { listener.serve().await.expect("it serves") });
        let stream = within(TcpStream::connect(&authority)).await.expect("it listens");
        let (sender, mut connection) = within(h2::client::handshake(stream)).await.expect("HTTP/2");
        let pings = connection.ping_pong().expect("nothing has taken it");
        let driving = tokio::spawn(async { connection.await.unwrap_or_default() });
        let tasks = [serving, driving].map(AbortOnDropHandle::new);
        Self { sender, pings, authority, calls, _tasks: tasks }
    }

    /// Sends the headers of a call, which the server has when this returns.
    async fn begin(
        &mut self,
        method: &str,
        headers: &[(&str, &str)],
    ) -> (ResponseFuture, h2::SendStream<Bytes>) {
        let path = format!("http://{}/grpc.testing.TestService/{method}", self.authority);
        let request = http::Request::post(path).header("content-type", "application/grpc");
        let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
        let mut sender = within(self.sender.clone().ready()).await.expect("it is connected");
        let begun = sender.send_request(request.body(()).expect("it is one"), false);
        self.ping().await;
        begun.expect("it is connected")
    }

    /// Waits until the server has read all that was sent.
    async fn ping(&mut self) {
        within(self.pings.ping(h2::Ping::opaque())).await.expect("it is connected");
    }
}

fn request(response_size: i32, len: usize) -> SimpleRequest {
    let payload = Some(Payload { body: vec![7; len].into(), ..Payload::default() });
    SimpleRequest { response_size, payload, ..SimpleRequest::default() }
}

/// A message as gRPC frames it.
fn framed(message: &impl Message) -> Bytes {
    let message = message.encode_to_vec();
    let len = u32::try_from(message.len()).expect("it is short").to_be_bytes();
    [&[0][..], &len, &message].concat().into()
}

/// The message of a response, and its status.
async fn answer(response: ResponseFuture) -> (Bytes, Code) {
    let (head, mut body) = within(response).await.expect("it is answered").into_parts();
    let mut message = Vec::new();
    while let Some(part) = within(body.data()).await {
        let part = part.expect("it is not reset");
        body.flow_control().release_capacity(part.len()).expect("it was received");
        message.extend_from_slice(&part);
    }
    let trailers = within(body.trailers()).await.expect("it is not reset");
    let headers = trailers.unwrap_or(head.headers);
    let code = Code::from_bytes(headers["grpc-status"].as_bytes());
    (message.into(), code)
}

#[tokio::test]
async fn a_message_may_come_after_its_headers_and_in_parts() {
    let mut rig = Rig::new().await;
    let message = framed(&request(0, 1000));
    let expected =
        framed(&SimpleResponse { payload: request(0, 1000).payload, ..SimpleResponse::default() });
    for cuts in [&[][..], &[3], &[5], &[100, 1000], &[message.len()]] {
        let (response, mut body) = rig.begin("UnaryCall", &[]).await;
        let mut at = 0;
        for cut in cuts.iter().copied() {
            body.send_data(message.slice(at..cut), false).expect("it is connected");
            rig.ping().await;
            at = cut;
        }
        assert!(rig.calls.try_recv().is_err(), "the request has not ended");
        body.send_data(message.slice(at..), true).expect("it is connected");
        assert_eq!(answer(response).await, (expected.clone(), Code::Ok), "{cuts:?}");
        assert!(within(rig.calls.recv()).await.is_some());
    }
}

#[tokio::test]
async fn the_deadline_counts_while_the_message_is_waited_for() {
    let mut rig = Rig::new().await;
    // Nothing, a part of the message, and the message without an end.
    let message = framed(&request(0, 10));
    for len in [0, 7, message.len()] {
        let (response, mut body) = rig.begin("UnaryCall", &[("grpc-timeout", "50m")]).await;
        if len > 0 {
            body.send_data(message.slice(..len), false).expect("it is connected");
        }
        assert_eq!(answer(response).await, (Bytes::new(), Code::DeadlineExceeded), "{len} bytes");
    }
    assert!(rig.calls.try_recv().is_err(), "no handler has run");
}

#[tokio::test]
async fn a_request_that_breaks_off_runs_no_handler() {
    let mut rig = Rig::new().await;
    let message = framed(&request(0, 10));
    for len in [0, 7, message.len()] {
        let (response, mut body) = rig.begin("UnaryCall", &[]).await;
        if len > 0 {
            body.send_data(message.slice(..len), false).expect("it is connected");
            rig.ping().await;
        }
        // With which hyper's body ends as if that were its end.
        body.send_reset(h2::Reason::NO_ERROR);
        rig.ping().await;
        drop(response);
    }
    // A call behind them: the server has handled the resets before it.
    let (response, mut body) = rig.begin("UnaryCall", &[]).await;
    body.send_data(message, true).expect("it is connected");
    assert_eq!(answer(response).await.1, Code::Ok);
    assert!(within(rig.calls.recv()).await.is_some());
    assert!(rig.calls.try_recv().is_err(), "one handler has run");
}

/// To read such a message wakes the task of the connection, which would lie in the LIFO slot of the
/// blocked thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_blocking_handler_delays_no_other_call() {
    let mut rig = Rig::new().await;
    for len in [10, 60 << 10].repeat(20) {
        let (blocked, mut body) = rig.begin("UnaryCall", &[]).await;
        body.send_data(framed(&request(BLOCKS, len)), true).expect("it is connected");
        assert!(within(rig.calls.recv()).await.is_some());
        let path = format!("http://{}/grpc.testing.TestService/EmptyCall", rig.authority);
        let head = http::Request::post(path).header("content-type", "application/grpc");
        let mut sender = within(rig.sender.clone().ready()).await.expect("it is connected");
        let begun = sender.send_request(head.body(()).expect("it is one"), false);
        let (response, mut body) = begun.expect("it is connected");
        body.send_data(framed(&Empty {}), true).expect("it is connected");
        assert_eq!(answer(response).await.1, Code::Ok, "{len} bytes");
        assert_eq!(answer(blocked).await.1, Code::Ok, "{len} bytes");
    }
}
