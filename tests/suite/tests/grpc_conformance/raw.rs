//! HTTP/2 as it is told: a server that answers everything alike, and a client of one request.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use farcall::Code;
use farcall::prost::Message;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// The bound on every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Header fields, several with one name among them.
pub(crate) type Fields = &'static [(&'static str, &'static str)];

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it happens in time")
}

/// A message with gRPC's prefix.
pub(crate) fn framed(flags: u8, message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flags);
    bytes.put_u32(message.encoded_len().try_into().unwrap());
    message.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn map(fields: Fields) -> HeaderMap {
    let named = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter().map(named) {
        map.append(name, value);
    }
    map
}

/// A response.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Fields,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<Fields>,
}

/// A server that gives every request the same answer. It ends with this value.
pub(crate) struct Answering {
    pub(crate) authority: String,
    _serving: AbortOnDropHandle<()>,
}

impl Answering {
    pub(crate) async fn with(answer: HttpAnswer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(respond_with(answer.clone(), request.into_body(), respond));
                }
            }
        });
        Self { authority, _serving: AbortOnDropHandle::new(serving) }
    }
}

async fn respond_with(
    answer: HttpAnswer,
    requests: RecvStream,
    mut respond: h2::server::SendResponse<Bytes>,
) {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap();
    *response.headers_mut() = map(answer.headers);
    let ends = answer.body.is_empty() && answer.trailers.is_none();
    let mut stream = respond.send_response(response, ends).unwrap();
    if !answer.body.is_empty() {
        stream.send_data(answer.body, answer.trailers.is_none()).unwrap();
    }
    if let Some(trailers) = answer.trailers {
        stream.send_trailers(map(trailers)).unwrap();
    }
    // A stream whose requests are dropped is reset.
    drain(requests).await;
}

async fn drain(mut body: RecvStream) -> Bytes {
    let mut all = BytesMut::new();
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
        all.extend(piece);
    }
    all.freeze()
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    pub(crate) verb: &'static str,
    pub(crate) path: &'static str,
    pub(crate) headers: Fields,
    pub(crate) body: Bytes,
}

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// With a status of gRPC's.
    Status(Code),
    /// With a status of HTTP's alone.
    Http(u16),
}

/// Sends a request to a server, and gives how it is answered.
pub(crate) async fn ask(authority: &str, asking: Asking) -> Answered {
    within(async {
        let stream = TcpStream::connect(authority).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        let _driving = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let uri = format!("http://{authority}{}", asking.path);
        let mut request = Request::builder().method(asking.verb).uri(uri).body(()).unwrap();
        *request.headers_mut() = map(asking.headers);
        let ends = asking.body.is_empty();
        let (response, mut stream): (_, SendStream<Bytes>) =
            client.send_request(request, ends).unwrap();
        if !ends {
            stream.send_data(asking.body, true).unwrap();
        }
        let (head, mut body) = response.await.unwrap().into_parts();
        while let Some(Ok(piece)) = body.data().await {
            let _ = body.flow_control().release_capacity(piece.len());
        }
        let trailers = body.trailers().await.unwrap().unwrap_or_default();
        let status = trailers.get("grpc-status").or_else(|| head.headers.get("grpc-status"));
        match status {
            Some(status) => Answered::Status(Code::from_bytes(status.as_bytes())),
            None => Answered::Http(head.status.as_u16()),
        }
    })
    .await
}
