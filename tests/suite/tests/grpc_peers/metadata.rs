//! Metadata between peers of gRPC and farcall: it is delivered as it is, or refused by its key.

use bytes::Bytes;
use farcall::tonic::metadata::{MetadataMap, MetadataValue};
use farcall::{Channel, Code, Request, Status};
use farcall_suite::interop_proto::Empty;
use farcall_suite::interop_proto::test_service_rpc::TestServiceStub;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::service::{Answering, serve};
use super::within;

/// Fields of HTTP.
type Fields = &'static [(&'static str, &'static [u8])];

/// Values of `x-bin`.
type Values = &'static [&'static [u8]];

fn headers_of(fields: Fields) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let value = HeaderValue::from_bytes(value).expect("it is one");
        headers.append(HeaderName::from_static(name), value);
    }
    headers
}

/// The raw values of `x-bin`.
fn raw(metadata: &MetadataMap) -> Vec<Bytes> {
    let values = metadata.get_all_bin("x-bin").iter();
    values.map(|value| value.to_bytes().expect("the handler can read it")).collect()
}

/// Valid values of `x-bin`, and what they are.
const VALID: [(Fields, Values); 8] = [
    (&[("x-bin", b"AAE=")], &[&[0, 1]]),
    (&[("x-bin", b"AAE")], &[&[0, 1]]),
    (&[("x-bin", b"AAE=,AAI")], &[&[0, 1], &[0, 2]]),
    (&[("x-bin", b"AAE, AAI=")], &[&[0, 1], &[0, 2]]),
    (&[("x-bin", b"AAE="), ("x-bin", b"AAI,")], &[&[0, 1], &[0, 2], &[]]),
    (&[("x-bin", b"")], &[&[]]),
    (&[("x-bin", b"+/8=")], &[&[0xfb, 0xff]]),
    (&[], &[]),
];

/// Values of `-bin` keys that are no base64.
const INVALID: [Fields; 6] = [
    &[("x-bad-bin", b"!")],
    &[("x-bad-bin", b"A")],
    &[("x-bad-bin", b"AAE=AAI")],
    &[("x-bad-bin", b"AAE,!")],
    &[("x-bad-bin", b"-_8")],
    &[("x-bad-bin", b"\xff")],
];

/// Calls the port with these fields, and gives how that ends.
async fn call(authority: &str, fields: Fields) -> Status {
    within(async {
        let stream = TcpStream::connect(authority).await.expect("the server answers");
        let (mut sender, connection) =
            h2::client::handshake(stream).await.expect("the server answers");
        let _driving = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let path = format!("http://{authority}/grpc.testing.TestService/EmptyCall");
        let mut request = http::Request::post(path).body(()).expect("the server answers");
        *request.headers_mut() = headers_of(fields);
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        let (response, mut requests) =
            sender.send_request(request, false).expect("the server answers");
        requests.send_data(Bytes::from_static(&[0; 5]), true).expect("the server answers");
        let (head, mut body) = response.await.expect("the server answers").into_parts();
        while let Some(piece) = body.data().await {
            let _ = body.flow_control().release_capacity(piece.expect("the server answers").len());
        }
        let trailers = body.trailers().await.expect("the server answers");
        Status::from_header_map(trailers.as_ref().unwrap_or(&head.headers))
            .expect("the server answers")
    })
    .await
}

#[tokio::test]
async fn port_delivers_binary_values_one_by_one() {
    for (fields, expected) in VALID {
        let answering = Answering::with(move |metadata| match raw(metadata) {
            values if values == expected => Ok(MetadataMap::new()),
            values => Err(Status::data_loss(format!("{values:?}"))),
        });
        let running = serve(answering.server(), "tcp://127.0.0.1:0").await;
        let status = call(&running.authority, fields).await;
        assert_eq!(status.code(), Code::Ok, "{fields:?}: {status}");
    }
}

#[tokio::test]
async fn port_delivers_text_as_it_is() {
    const TEXTS: [Fields; 5] = [
        &[("x-text", b"a,b, c")],
        &[("x-text", b"")],
        &[("x-text", b" \ta ")],
        &[("x-text", b"\xc3\xa9\xff")],
        &[("x-text", b"AAE=,AAI"), ("x-text", b"b")],
    ];
    for fields in TEXTS {
        let answering = Answering::with(move |metadata| {
            let values = metadata.get_all("x-text").iter();
            let values: Vec<_> = values.map(|value| value.as_encoded_bytes().to_vec()).collect();
            match values.iter().eq(fields.iter().map(|(_, value)| value)) {
                true => Ok(MetadataMap::new()),
                false => Err(Status::data_loss(format!("{values:?}"))),
            }
        });
        let running = serve(answering.server(), "tcp://127.0.0.1:0").await;
        let status = call(&running.authority, fields).await;
        assert_eq!(status.code(), Code::Ok, "{fields:?}: {status}");
    }
}

#[tokio::test]
async fn port_refuses_what_it_cannot_read_by_name() {
    let answering = Answering::with(|metadata| {
        Err(Status::data_loss(format!("the handler has {:?}", metadata.keys().count())))
    });
    let running = serve(answering.server(), "tcp://127.0.0.1:0").await;
    for fields in INVALID {
        let status = call(&running.authority, fields).await;
        assert_eq!(status.code(), Code::Internal, "{fields:?}: {status}");
        assert!(status.message().contains("`x-bad-bin` is not base64"), "{status}");
    }
    const TIMEOUTS: [Fields; 4] = [
        &[("grpc-timeout", b"1")],
        &[("grpc-timeout", b"")],
        &[("grpc-timeout", b"123456789S")],
        &[("grpc-timeout", b"5S,5S")],
    ];
    for fields in TIMEOUTS {
        let status = call(&running.authority, fields).await;
        assert_eq!(status.code(), Code::Internal, "{fields:?}: {status}");
        assert!(status.message().contains("grpc-timeout"), "{status}");
    }
}

/// A server of gRPC that answers every call with these fields in its headers and its trailers.
struct Fake {
    address: String,
    _serving: AbortOnDropHandle<()>,
}

impl Fake {
    async fn with(fields: Fields, ends: Fields) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the peer works");
        let address = format!("grpc://{}", listener.local_addr().expect("the peer works"));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut connection = h2::server::handshake(stream).await.expect("the peer works");
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let mut response = http::Response::new(());
                    *response.headers_mut() = headers_of(fields);
                    let mut stream =
                        respond.send_response(response, false).expect("the peer works");
                    let mut trailers = headers_of(fields);
                    trailers.extend(headers_of(ends));
                    if ends == OK {
                        stream
                            .send_data(Bytes::from_static(&[0; 5]), false)
                            .expect("the peer works");
                    }
                    stream.send_trailers(trailers).expect("the peer works");
                    let mut requests = request.into_body();
                    tokio::spawn(async move { while requests.data().await.is_some() {} });
                }
            }
        });
        Self { address, _serving: AbortOnDropHandle::new(serving) }
    }

    async fn call(&self, metadata: MetadataMap) -> Result<MetadataMap, Status> {
        let stub = TestServiceStub::new(
            within(Channel::connect(&self.address)).await.expect("the peer works"),
        );
        let mut request = Request::new(Empty {});
        *request.metadata_mut() = metadata;
        Ok(within(stub.empty_call(request)).await?.into_parts().0)
    }
}

const OK: Fields = &[("grpc-status", b"0")];

#[tokio::test]
async fn channel_delivers_binary_values_one_by_one() {
    for (fields, expected) in VALID {
        let fake = Fake::with(fields, OK).await;
        let metadata = fake.call(MetadataMap::new()).await.unwrap();
        assert_eq!(raw(&metadata), expected, "{fields:?}");
        let fake = Fake::with(fields, &[("grpc-status", b"5")]).await;
        let status = fake.call(MetadataMap::new()).await.unwrap_err();
        assert_eq!(
            (status.code(), raw(status.metadata())),
            (Code::NotFound, expected.iter().map(|it| Bytes::from_static(it)).collect())
        );
    }
}

#[tokio::test]
async fn channel_refuses_binary_values_by_name() {
    for fields in INVALID {
        for ends in [OK, &[("grpc-status", b"5")]] {
            let fake = Fake::with(fields, ends).await;
            let status = fake.call(MetadataMap::new()).await.unwrap_err();
            assert_eq!(status.code(), Code::Internal, "{fields:?}: {status}");
            assert!(status.message().contains("`x-bad-bin` is not base64"), "{status}");
        }
        // The program's own, before it is sent.
        let fake = Fake::with(&[], OK).await;
        let metadata = MetadataMap::from_headers(headers_of(fields));
        let status = fake.call(metadata).await.unwrap_err();
        assert!(status.message().contains("`x-bad-bin` is not base64"), "{status}");
        assert!(farcall::NotExecuted::matches(&status), "{status}");
    }
}

/// gRPC: a text that cannot be decoded must not change its status.
#[tokio::test]
async fn broken_text_keeps_its_code() {
    const ENDS: [(Fields, &str); 4] = [
        (&[("grpc-status", b"5"), ("grpc-message", b"caf%C3%A9")], "café"),
        (&[("grpc-status", b"5"), ("grpc-message", b"caf%C3")], "caf\u{fffd}"),
        (&[("grpc-status", b"5"), ("grpc-message", b"100%, %zz")], "100%, %zz"),
        (&[("grpc-status", b"5"), ("grpc-message", b"\xe9t\xe9")], "\u{fffd}t\u{fffd}"),
    ];
    for (ends, expected) in ENDS {
        let status = Fake::with(&[], ends).await.call(MetadataMap::new()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::NotFound, expected));
    }
}

/// A handler's answer is held to the same rule.
#[tokio::test]
async fn invalid_metadata_of_a_handler_is_refused_by_name() {
    let answering =
        Answering::with(|_| Ok(MetadataMap::from_headers(headers_of(&[("x-bad-bin", b"!")]))));
    let running = serve(answering.server(), "tcp://127.0.0.1:0").await;
    for scheme in ["tcp", "grpc"] {
        let address = format!("{scheme}://{}", running.authority);
        let stub = TestServiceStub::new(within(Channel::connect(&address)).await.unwrap());
        let status = within(stub.empty_call(Empty {})).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status}");
        assert!(status.message().contains("`x-bad-bin` is not base64"), "{status}");
    }
    // A valid one crosses both.
    let answering = Answering::with(|_| {
        let mut metadata = MetadataMap::new();
        metadata.insert_bin("x-bin", MetadataValue::from_bytes(&[0, 1]));
        Ok(metadata)
    });
    let running = serve(answering.server(), "tcp://127.0.0.1:0").await;
    let address = format!("grpc://{}", running.authority);
    let stub = TestServiceStub::new(within(Channel::connect(&address)).await.unwrap());
    let response = within(stub.empty_call(Empty {})).await.unwrap();
    assert_eq!(raw(response.metadata()), [&[0, 1][..]]);
}
