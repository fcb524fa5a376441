//! A server whose handlers wait until they may go on, and raw clients of its port.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use farcall::ServerBuilder;
use farcall::prost::Message;
use farcall::{Request, Response, Server, Status, Streaming, async_trait};
use farcall_suite::interop_proto::test_service_client::TestServiceClient;
use farcall_suite::interop_proto::test_service_rpc::TestServiceService;
use farcall_suite::interop_proto::test_service_server::TestService;
use farcall_suite::interop_proto::{
    Empty, Payload, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse,
};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits for something, within a bound.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// Waits until a condition holds; to be waited for within a bound.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

/// Unary calls and readers of request streams wait at a gate; `EmptyCall` does not.
#[derive(Debug, Clone)]
struct Gated(watch::Receiver<bool>);

impl Gated {
    async fn pass(&self) {
        // The gate's sender lives as long as its server.
        let _ = self.0.clone().wait_for(|is_open| *is_open).await;
    }
}

#[async_trait]
impl TestService for Gated {
    async fn empty_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(Response::new(Empty {}))
    }

    async fn unary_call(
        &self,
        _: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        self.pass().await;
        Ok(Response::new(SimpleResponse::default()))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        self.pass().await;
        let (mut requests, mut count) = (request.into_inner(), 0);
        while requests.message().await?.is_some() {
            count += 1;
        }
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size: count }))
    }
}

/// A server, which goes with this.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) authority: String,
    gate: watch::Sender<bool>,
    _serving: AbortOnDropHandle<()>,
}

pub(crate) async fn serve(builder: ServerBuilder) -> Running {
    let (gate, entry) = watch::channel(false);
    let builder = builder.add_service(TestServiceService::new(Gated(entry)));
    let listener = builder.bind("tcp://127.0.0.1:0").await.expect("a port is free");
    let authority = listener.local_address().to_string().replace("tcp://", "");
    let server = listener.server().clone();
    let _serving = AbortOnDropHandle::new(tokio::spawn(async move {
        listener.serve().await.expect("it serves");
    }));
    Running { server, authority, gate, _serving }
}

impl Running {
    pub(crate) fn open_gate(&self) {
        self.gate.send(true).expect("the service has the other end");
    }

    pub(crate) async fn client(&self) -> TestServiceClient<Channel> {
        self.client_from(Ipv4Addr::LOCALHOST).await
    }

    /// A client of that address of loopback, which is another holder of memory.
    pub(crate) async fn client_from(&self, address: Ipv4Addr) -> TestServiceClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.authority));
        let endpoint = endpoint.expect("it is a URI").local_address(Some(address.into()));
        let channel = within(endpoint.connect()).await;
        TestServiceClient::new(channel.expect("it listens"))
    }

    pub(crate) async fn raw_client(&self) -> RawClient {
        self.raw_client_from(Ipv4Addr::LOCALHOST).await
    }

    /// The same from that address of loopback.
    pub(crate) async fn raw_client_from(&self, address: Ipv4Addr) -> RawClient {
        let socket = TcpSocket::new_v4().expect("there are sockets");
        socket.bind((address, 0).into()).expect("loopback has the address");
        let server = self.authority.parse().expect("it is an address");
        let stream = within(socket.connect(server)).await.expect("it listens");
        stream.set_nodelay(true).expect("it is open");
        let mut builder = h2::client::Builder::new();
        // Answers cross the resets of calls that it has given up.
        let builder = builder.max_local_error_reset_streams(None);
        // A test reads its answers one after the other.
        let builder = builder.data_frame_budget(usize::MAX);
        let (sender, connection) = within(builder.handshake(stream)).await.expect("it answers");
        let driving = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await;
        }));
        RawClient { sender, authority: self.authority.clone(), driving }
    }

    pub(crate) fn grpc_connections(&self) -> usize {
        self.server.connections().iter().filter(|it| it.transport == "grpc").count()
    }
}

/// A message as gRPC frames it.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let message = message.encode_to_vec();
    let len = u32::try_from(message.len()).expect("it is short").to_be_bytes();
    [&[0][..], &len, &message].concat().into()
}

/// A message of a stream whose payload has that length.
pub(crate) fn input(len: usize) -> Bytes {
    let payload = Payload { body: vec![7; len].into(), ..Payload::default() };
    let payload = Some(payload).filter(|_| len > 0);
    framed(&StreamingInputCallRequest { payload, ..StreamingInputCallRequest::default() })
}

pub(crate) struct RawClient {
    pub(crate) sender: SendRequest<Bytes>,
    authority: String,
    driving: AbortOnDropHandle<()>,
}

impl RawClient {
    /// Sends the headers of a call, with more headers if `extra` is any.
    pub(crate) async fn call_with(
        &self,
        method: &str,
        extra: impl IntoIterator<Item = (String, String)>,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let path = format!("http://{}/grpc.testing.TestService/{method}", self.authority);
        let request = http::Request::post(path).header("content-type", "application/grpc");
        let request = extra.into_iter().fold(request, |it, (name, value)| it.header(name, value));
        let request = request.body(()).expect("it is one");
        let mut sender = within(self.sender.clone().ready()).await.expect("it is connected");
        sender.send_request(request, false).expect("it is connected")
    }

    pub(crate) async fn call(&self, method: &str) -> (ResponseFuture, SendStream<Bytes>) {
        self.call_with(method, []).await
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.driving.is_finished()
    }
}

/// Reads a response to its end; gives its gRPC status and the bytes of its messages.
pub(crate) async fn outcome(response: ResponseFuture) -> Result<(i32, Vec<u8>), h2::Error> {
    let response = within(response).await?;
    if let Some(status) = response.headers().get("grpc-status") {
        return Ok((number(status), Vec::new()));
    }
    let mut body: RecvStream = response.into_body();
    let mut bytes = Vec::new();
    while let Some(piece) = within(body.data()).await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    let trailers = within(body.trailers()).await?.expect("gRPC ends with trailers");
    Ok((number(&trailers["grpc-status"]), bytes))
}

fn number(status: &http::HeaderValue) -> i32 {
    status.to_str().expect("it is text").parse().expect("it is a number")
}
