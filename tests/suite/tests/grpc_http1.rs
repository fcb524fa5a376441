//! HTTP/1 at the port of a farcall server, by hand-made requests: probes, grpc-web, leave for pages
//! of other origins, and what is none of these.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use farcall::prost::Message;
use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall::{PeerInfo, Request, Response, Server, ServerBuilder, Status, Streaming, async_trait};
use farcall_suite::interop_proto::test_service_rpc::TestServiceService;
use farcall_suite::interop_proto::test_service_server::TestService;
use farcall_suite::interop_proto::{
    EchoStatus, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse, StreamingOutputCallRequest, StreamingOutputCallResponse,
};
use farcall_testkit::certificates::{Authority, Leaf, Wanted};
use rpc_core::client::{ClientConfig, OpenStream as _};
use rpc_core::connect::Alpn;
use rpc_transport_tcp::TcpConnector;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tonic::codegen::BoxStream;
use tonic::transport::Endpoint;

const LIMIT: Duration = Duration::from_secs(30);

/// Waits for something, within a bound.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// Says over what it is called, and how a stream of requests ended.
#[derive(Debug)]
struct Web {
    ended: mpsc::UnboundedSender<bool>,
}

/// Tells how a stream of requests ended, also where its handler is dropped.
struct Telling {
    ended: mpsc::UnboundedSender<bool>,
    is_whole: bool,
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = self.ended.send(self.is_whole);
    }
}

#[async_trait]
impl TestService for Web {
    async fn unary_call(
        &self,
        request: Request<SimpleRequest>,
    ) -> Result<Response<SimpleResponse>, Status> {
        let request = request.into_inner();
        if let Some(wanted) = request.response_status {
            let details = Bytes::from(vec![7; 12 << 10]);
            return Err(Status::with_details(wanted.code.into(), wanted.message, details));
        }
        if request.response_size < 0 {
            let mut response = Response::new(SimpleResponse::default());
            response.metadata_mut().insert("x-long", "7".repeat(12 << 10).parse().unwrap());
            return Ok(response);
        }
        let transport = PeerInfo::current().unwrap().transport;
        let username = format!("{} over {transport}", request.response_size);
        Ok(Response::new(SimpleResponse { username, ..SimpleResponse::default() }))
    }

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<BoxStream<StreamingOutputCallResponse>>, Status> {
        let count = request.into_inner().response_parameters.len();
        let answers = (0..count).map(|_| Ok(StreamingOutputCallResponse::default()));
        Ok(Response::new(Box::pin(futures::stream::iter(answers))))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut requests = request.into_inner();
        let mut telling = Telling { ended: self.ended.clone(), is_whole: false };
        while requests.message().await?.is_some() {}
        telling.is_whole = true;
        Ok(Response::new(StreamingInputCallResponse::default()))
    }
}

/// A server, and the way to shut it down.
struct Running {
    authority: String,
    shutdown: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
    /// The end of each stream of requests.
    ended: mpsc::UnboundedReceiver<bool>,
}

async fn serve(builder: ServerBuilder) -> Running {
    let (sender, ended) = mpsc::unbounded_channel();
    let builder = builder.add_service(TestServiceService::new(Web { ended: sender }));
    let listener = builder.bind("tcp://127.0.0.1:0").await.unwrap();
    let authority = listener.local_address().to_string().replace("tcp://", "");
    let (shutdown, shut_down) = oneshot::channel();
    let serving = tokio::spawn(async move {
        listener.serve().with_graceful_shutdown(async { drop(shut_down.await) }).await.unwrap();
    });
    Running { authority, shutdown, serving, ended }
}

/// Returns the answer to these bytes, up to the end of the connection.
async fn ask(running: &Running, request: impl AsRef<[u8]>) -> Vec<u8> {
    let mut stream = within(TcpStream::connect(&running.authority)).await.unwrap();
    stream.write_all(request.as_ref()).await.unwrap();
    let mut answer = Vec::new();
    within(stream.read_to_end(&mut answer)).await.unwrap();
    answer
}

/// The head and the body of an answer.
fn split(answer: &[u8]) -> (String, &[u8]) {
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n").expect("it has a head");
    (String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase(), &answer[end + 4..])
}

/// The code of what is answered to a request without a body, and the words.
async fn code_of(running: &Running, line: &str, headers: &str) -> (u16, String) {
    let request = format!("{line} HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
    let answer = ask(running, request).await;
    let (head, body) = split(&answer);
    let code = head.strip_prefix("http/1.1 ").and_then(|rest| rest.get(..3)).unwrap();
    (code.parse().unwrap(), String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_probe_is_told_whether_the_server_serves_or_drains() {
    let go_on = Arc::new(Notify::new());
    let drained = Arc::clone(&go_on);
    let (draining, begun) = oneshot::channel();
    let builder = Server::builder().on_drain(async move {
        let _ = draining.send(());
        drained.notified().await;
    });
    let running = serve(builder).await;
    for path in ["/health", "/healthz", "/readyz", "/livez"] {
        let expected = (200, "serving\n".to_owned());
        assert_eq!(code_of(&running, &format!("GET {path}"), "").await, expected);
    }
    assert_eq!(code_of(&running, "HEAD /healthz", "").await, (200, String::new()));
    // As probes over TLS have it that agree on HTTP/2.
    let endpoint = Endpoint::from_shared(format!("http://{}", running.authority)).unwrap();
    let channel = within(endpoint.connect()).await.unwrap();
    let uri = format!("http://{}/healthz", running.authority);
    let request = http::Request::get(uri).body(tonic::body::Body::empty()).unwrap();
    let answer = within(tower::ServiceExt::oneshot(channel, request)).await.unwrap();
    assert_eq!(answer.status(), 200);
    drop(answer);

    let Running { authority, shutdown, serving, ended } = running;
    shutdown.send(()).unwrap();
    within(begun).await.unwrap();
    let (shutdown, _) = oneshot::channel();
    let running = Running { authority, shutdown, serving, ended };
    let expected = (503, "draining\n".to_owned());
    assert_eq!(code_of(&running, "GET /healthz", "").await, expected);
    assert_eq!(code_of(&running, "GET /livez", "").await, (200, "draining\n".to_owned()));
    go_on.notify_one();
    within(running.serving).await.unwrap();
}

#[tokio::test]
async fn what_is_neither_a_probe_nor_grpc_web_is_answered_by_name() {
    let running = serve(Server::builder()).await;
    for (line, headers, code) in [
        ("GET /", "", 404),
        ("OPTIONS /", "", 405),
        ("POST /", "content-type: text/plain\r\ncontent-length: 0\r\n", 415),
        ("POST /", "content-type: application/grpc\r\ncontent-length: 0\r\n", 505),
    ] {
        let (answered, message) = code_of(&running, line, headers).await;
        assert_eq!(answered, code, "{line}");
        assert!(
            message.starts_with("This is the port of a farcall server. It accepts gRPC"),
            "{message}"
        );
    }
    // hyper's own answers: what is not HTTP, and a head that is too long.
    let answer = ask(&running, "GET / nonsense\r\n\r\n").await;
    let (head, _) = split(&answer);
    assert!(head.starts_with("http/1.1 400"), "{head}");
    let long = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "b".repeat(100_000));
    let mut stream = within(TcpStream::connect(&running.authority)).await.unwrap();
    // It may be cut before all was taken.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = within(stream.read_to_end(&mut answer)).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{answer:?}");
}

/// A message as gRPC frames it.
fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let len = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &len, &message].concat()
}

/// A call by grpc-web.
fn web(method: &str, body: &[u8], len: usize) -> Vec<u8> {
    let head = format!(
        "POST /grpc.testing.TestService/{method} HTTP/1.1\r\nhost: a\r\n\
         content-type: application/grpc-web+proto\r\ncontent-length: {len}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

/// The bytes of a body in chunks.
fn joined(mut chunks: &[u8]) -> Bytes {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|it| it == b"\r\n").expect("it has a length");
        let len = std::str::from_utf8(&chunks[..end]).unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        if len == 0 {
            return body.into();
        }
        body.extend_from_slice(&chunks[end + 2..][..len]);
        chunks = &chunks[end + 2 + len + 2..];
    }
}

/// The messages and the trailers of an answer by grpc-web.
fn parsed(answer: &[u8]) -> (Vec<Bytes>, String) {
    let (head, body) = split(answer);
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(head.contains("content-type: application/grpc-web+proto"), "{head}");
    assert!(head.contains("connection: close"), "{head}");
    parts(joined(body))
}

/// The messages and the trailers of a body of grpc-web.
fn parts(mut body: Bytes) -> (Vec<Bytes>, String) {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let prefix = body.split_to(5);
        let len = u32::from_be_bytes(prefix[1..].try_into().unwrap());
        let part = body.split_to(usize::try_from(len).unwrap());
        if prefix[0] & 0x80 != 0 {
            assert!(body.is_empty(), "the trailers are the last");
            return (messages, String::from_utf8(part.to_vec()).unwrap());
        }
        messages.push(part);
    }
    panic!("it has no trailers");
}

#[tokio::test]
async fn grpc_web_calls_unary_and_server_streaming_methods() {
    let running = serve(Server::builder()).await;
    let request = framed(&SimpleRequest { response_size: 7, ..SimpleRequest::default() });
    let answer = ask(&running, web("UnaryCall", &request, request.len())).await;
    let (messages, trailers) = parsed(&answer);
    assert_eq!(messages.len(), 1);
    let answer = SimpleResponse::decode(messages[0].clone()).unwrap();
    assert_eq!(answer.username, "7 over grpc-web");
    assert!(trailers.contains("grpc-status:0"), "{trailers}");

    let response_parameters = vec![Default::default(); 3];
    let request = StreamingOutputCallRequest { response_parameters, ..Default::default() };
    let request = framed(&request);
    let answer = ask(&running, web("StreamingOutputCall", &request, request.len())).await;
    let (messages, trailers) = parsed(&answer);
    assert_eq!(messages.len(), 3);
    assert!(trailers.contains("grpc-status:0"), "{trailers}");

    let answer = ask(&running, web("NoSuchMethod", &request, request.len())).await;
    assert!(split(&answer).0.contains("grpc-status: 12"), "{}", String::from_utf8_lossy(&answer));
}

/// Decodes base64 that may be padded in the middle, where its parts were encoded separately.
fn decoded(text: &[u8]) -> Bytes {
    let groups = text.chunks(4).map(|group| BASE64.decode(group).unwrap());
    groups.flatten().collect()
}

#[tokio::test]
async fn grpc_web_may_come_and_go_in_base64() {
    let running = serve(Server::builder()).await;
    let response_parameters = vec![Default::default(); 3];
    let three = StreamingOutputCallRequest { response_parameters, ..Default::default() };
    let one = SimpleRequest { response_size: 7, ..SimpleRequest::default() };
    let calls = [("UnaryCall", framed(&one), 1), ("StreamingOutputCall", framed(&three), 3)];
    for kind in ["application/grpc-web-text", "application/grpc-web-text+proto"] {
        for (method, request, count) in &calls {
            let request = BASE64.encode(request);
            let request = format!(
                "POST /grpc.testing.TestService/{method} HTTP/1.1\r\nhost: a\r\n\
                 content-type: {kind}\r\naccept: {kind}\r\ncontent-length: {}\r\n\r\n{request}",
                request.len()
            );
            let answer = ask(&running, request).await;
            let (head, body) = split(&answer);
            assert!(head.starts_with("http/1.1 200"), "{head}");
            assert!(head.contains("content-type: application/grpc-web-text"), "{head}");
            let (messages, trailers) = parts(decoded(&joined(body)));
            assert_eq!(messages.len(), *count);
            assert!(trailers.contains("grpc-status:0"), "{trailers}");
            if *method == "UnaryCall" {
                let answer = SimpleResponse::decode(messages[0].clone()).unwrap();
                assert_eq!(answer.username, "7 over grpc-web");
            }
        }
    }
    // What is no base64 is an error of the call, and no end of its requests.
    let request = "POST /grpc.testing.TestService/UnaryCall HTTP/1.1\r\nhost: a\r\n\
                   content-type: application/grpc-web-text\r\ncontent-length: 8\r\n\r\n????????";
    let answer = ask(&running, request).await;
    let (head, _) = split(&answer);
    assert!(head.contains("grpc-status: 13"), "{}", String::from_utf8_lossy(&answer));
}

/// Over HTTP/2, too, a status keeps its code, and metadata is refused as a whole.
#[tokio::test]
async fn grpc_web_headers_beyond_the_limit_are_cut_or_refused() {
    let running = serve(Server::builder()).await;
    let status = EchoStatus { code: 5, message: "é".repeat(6 << 10) };
    let failing = SimpleRequest { response_status: Some(status), ..SimpleRequest::default() };
    let verbose = SimpleRequest { response_size: -1, ..SimpleRequest::default() };
    for (request, code) in [(failing, "5"), (verbose, "8")] {
        let body = framed(&request);
        let answer = ask(&running, web("UnaryCall", &body, body.len())).await;
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        assert!(text.starts_with("http/1.1 200 "), "{text}");
        assert!(answer.len() <= (8 << 10) + 512, "{} bytes", answer.len());
        let fields = [format!("grpc-status: {code}"), format!("grpc-status:{code}")];
        assert!(fields.iter().any(|field| text.contains(field)), "{text}");
    }
}

/// A browser's question before a call of a page.
fn question(origin: &str) -> String {
    format!(
        "OPTIONS /grpc.testing.TestService/UnaryCall HTTP/1.1\r\nhost: a\r\norigin: {origin}\r\n\
         access-control-request-method: POST\r\naccess-control-request-headers: \
         authorization,content-type,grpc-timeout,x-grpc-web,x-mine-bin\r\n\r\n"
    )
}

/// The call, as the browser sends it.
fn call_of_page(origin: &str, method: &str) -> Vec<u8> {
    let request = framed(&SimpleRequest { response_size: 7, ..SimpleRequest::default() });
    let call = web(method, &request, request.len());
    let (head, rest) = call.split_at(call.windows(2).position(|it| it == b"\r\n").unwrap());
    [head, format!("\r\norigin: {origin}").as_bytes(), rest].concat()
}

const APP: &str = "https://app.example";

#[tokio::test]
async fn pages_of_listed_origins_have_leave_to_call() {
    let running = serve(Server::builder().grpc_web_origins([APP, "http://localhost:3000"])).await;
    for origin in [APP, "http://localhost:3000"] {
        let answer = ask(&running, question(origin)).await;
        let (head, body) = split(&answer);
        assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
        for line in [
            &*format!("access-control-allow-origin: {origin}"),
            "access-control-allow-methods: post",
            "access-control-allow-headers: \
             authorization,content-type,grpc-timeout,x-grpc-web,x-mine-bin",
            "access-control-max-age: 7200",
        ] {
            assert!(head.lines().any(|it| it == line), "{line}: {head}");
        }
        assert!(!head.contains("credentials"), "{head}");
        // A success, and a status in the head of the answer.
        for (method, status) in [("UnaryCall", None), ("NoSuchMethod", Some("grpc-status: 12"))] {
            let answer = ask(&running, call_of_page(origin, method)).await;
            let (head, _) = split(&answer);
            for line in [
                &*format!("access-control-allow-origin: {origin}"),
                "access-control-expose-headers: *",
            ] {
                assert!(head.lines().any(|it| it == line), "{line}: {head}");
            }
            assert!(status.is_none_or(|line| head.contains(line)), "{head}");
        }
    }
    // Probes and what is no call are as without it.
    let origin = format!("origin: {APP}\r\n");
    assert_eq!(code_of(&running, "GET /healthz", &origin).await, (200, "serving\n".to_owned()));
    assert_eq!(code_of(&running, "OPTIONS /", &origin).await.0, 405);
    let every = serve(Server::builder().grpc_web_origins(["*"])).await;
    let answer = ask(&every, question("https://any.example")).await;
    assert!(split(&answer).0.contains("access-control-allow-origin: *"));
}

#[tokio::test]
async fn pages_of_other_origins_have_no_leave() {
    let listed = serve(Server::builder().grpc_web_origins([APP])).await;
    let none = serve(Server::builder()).await;
    let others = ["http://app.example", "https://app.example.evil", "null", "https://app.exampl"];
    let questions = others.map(|origin| (&listed, origin)).into_iter().chain([(&none, APP)]);
    for (running, origin) in questions {
        let answer = ask(running, question(origin)).await;
        let (head, _) = split(&answer);
        assert!(head.starts_with("http/1.1 405") && !head.contains("access-control"), "{head}");
        // A client that is no browser may call: its origin says nothing.
        let answer = ask(running, call_of_page(origin, "UnaryCall")).await;
        let (head, _) = split(&answer);
        assert!(head.starts_with("http/1.1 200") && !head.contains("access-control"), "{head}");
        assert_eq!(parsed(&answer).0.len(), 1);
    }
}

#[tokio::test]
async fn leave_is_given_over_http2_too() {
    let running = serve(Server::builder().grpc_web_origins([APP])).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", running.authority)).unwrap();
    let channel = within(endpoint.connect()).await.unwrap();
    let uri = format!("http://{}/grpc.testing.TestService/UnaryCall", running.authority);
    for (origin, leave) in [(APP, Some(APP)), ("https://other.example", None)] {
        let request = http::Request::options(&uri)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .body(tonic::body::Body::empty());
        let asking = tower::ServiceExt::oneshot(channel.clone(), request.unwrap());
        let answer = within(asking).await.unwrap();
        assert_eq!(answer.status().is_success(), leave.is_some());
        let allowed = answer.headers().get("access-control-allow-origin");
        assert_eq!(allowed.map(|it| it.to_str().unwrap()), leave);
    }
}

#[tokio::test]
async fn requests_of_grpc_web_that_break_off_have_not_ended() {
    let mut running = serve(Server::builder().handshake_timeout(Duration::from_millis(500))).await;
    let message = framed(&StreamingInputCallRequest::default());
    let answer = ask(&running, web("StreamingInputCall", &message, message.len())).await;
    assert!(parsed(&answer).1.contains("grpc-status:0"));
    assert_eq!(within(running.ended.recv()).await, Some(true));
    // In chunks, which hyper does not count.
    let head = web("StreamingInputCall", &[], 0);
    let head = String::from_utf8(head).unwrap();
    let head = head.replace("content-length: 0", "transfer-encoding: chunked");
    let chunk = format!("{:x}\r\n", message.len());
    let request = [head.as_bytes(), chunk.as_bytes(), &message, b"\r\n0\r\n\r\n"];
    let answer = ask(&running, request.concat()).await;
    assert!(parsed(&answer).1.contains("grpc-status:0"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(within(running.ended.recv()).await, Some(true));
    // One that stops between two messages, and stays.
    let request = web("StreamingInputCall", &message, 2 * message.len());
    let mut stream = within(TcpStream::connect(&running.authority)).await.unwrap();
    stream.write_all(&request).await.unwrap();
    assert_eq!(within(running.ended.recv()).await, Some(false));
    within(stream.read_to_end(&mut Vec::new())).await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_end_the_head_of_its_request_is_closed() {
    let running = serve(Server::builder().handshake_timeout(Duration::from_millis(100))).await;
    let mut stream = within(TcpStream::connect(&running.authority)).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await.unwrap();
    let mut answer = Vec::new();
    within(stream.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
}

#[tokio::test]
async fn a_probe_may_come_over_tls() {
    let authority = Authority::new("the test's authority").unwrap();
    let Leaf { cert, key } = authority.issue(Wanted::named("127.0.0.1")).unwrap();
    let config = ServerTlsConfig::new(Pem::bytes(cert), Pem::bytes(key));
    let running = serve(Server::builder().tls(&ServerTls::new(config).unwrap())).await;
    let config = ClientTlsConfig::default().with_ca(Pem::bytes(authority.pem()));
    let tls = ClientTls::new(config).unwrap();
    let connector = TcpConnector::new(&*running.authority, ClientConfig::default());
    let connector = connector.with_tls(tls, None).with_protocol(Alpn::HTTP1);
    let mut stream = within(connector.open_stream()).await.unwrap();
    within(stream.open()).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("serving\n"), "{answer}");
}
