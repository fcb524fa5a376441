//! A report with causes (`anyhow`'s `{:#}`) says nothing twice: no error's text has that of its
//! source in it, except for errors of connecting. And the `Debug` of an error, which a `main` that
//! returns it prints, is that report.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

#[path = "messages/service.rs"]
#[allow(dead_code, reason = "the test of the messages uses all of it")]
mod service;

use std::error::Error;
use std::io;

use farcall::{
    Address, Channel, Code, ConnectError, ConnectErrorKind, Limits, ServeErrorKind, Server,
    Settings,
};

use self::service::{Demo, failure, listen, serve, without_device};

/// Walks from an error to its sources. Its `Debug` is to have its text and theirs; a status is
/// tonic's, with a `Debug` of its own.
fn assert_says_nothing_twice(error: &(dyn Error + 'static)) {
    let printed = format!("{error:?}");
    if !error.is::<farcall::Status>() {
        assert!(printed.starts_with(&error.to_string()), "{printed}");
        assert_eq!(printed.contains("Caused by:"), error.source().is_some(), "{printed}");
    }
    let mut error = error;
    while let Some(source) = error.source() {
        let (text, cause) = (error.to_string(), source.to_string());
        // The text of an error of connecting is whole, and its source is for programs.
        let is_whole = error.is::<ConnectError>();
        assert!(is_whole || !text.contains(&cause), "{text:?} has its cause {cause:?}");
        error = source;
    }
}

#[tokio::test]
async fn errors_of_connecting_say_nothing_twice() {
    use ConnectErrorKind as Kind;

    for (error, kind, cause) in [
        (farcall_protocol_error().await, Kind::Handshake, true),
        (Channel::connect("http://a:1").await.unwrap_err(), Kind::Address, false),
        (Channel::connect("tcp://127.0.0.1:1").await.unwrap_err(), Kind::Unreachable, true),
    ] {
        // Its source is for programs: what `main` prints is the text alone.
        assert_eq!((error.kind(), error.source().is_some()), (kind, cause), "{error}");
        assert_eq!(format!("{error:?}"), error.to_string());
        let is_io = error.source().is_some_and(<dyn Error>::is::<io::Error>);
        assert_eq!((is_io, error.io_error().is_some()), (kind == Kind::Unreachable, is_io));
    }
    let channel = Channel::builder("rdma://127.0.0.1:1").unwrap().rdma(&without_device());
    let status = failure(&channel.connect_lazy(), "Echo", "").await;
    assert!(ConnectError::of(&status).is_some(), "{status:?}");
    assert!(farcall::NotExecuted::matches(&status));
    assert_eq!(status.to_string().matches("Connection refused").count(), 1, "{status}");
    assert_says_nothing_twice(&status);
}

/// The error of a server that speaks something else.
async fn farcall_protocol_error() -> ConnectError {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let (connected, ()) = tokio::join!(Channel::connect(address), serving);
    let error = connected.unwrap_err();
    assert!(error.kind() == ConnectErrorKind::Handshake, "{error}");
    error
}

#[tokio::test]
async fn errors_of_serving_say_nothing_twice() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("tcp://{}", listener.local_addr().unwrap());
    let refused = Server::builder().bind(&taken).await.unwrap_err();
    assert_eq!(refused.kind(), ServeErrorKind::Refused, "{refused}");
    assert_says_nothing_twice(&refused);
    assert_says_nothing_twice(&Server::builder().bind("http://a:1").await.unwrap_err());
    let server = Server::builder().rdma(&without_device());
    let no_rdma = server.bind("rdma://127.0.0.1:0").await.unwrap_err();
    assert_eq!(no_rdma.kind(), ServeErrorKind::RdmaRequired, "{no_rdma}");
    assert_says_nothing_twice(&no_rdma);
}

#[test]
fn errors_of_settings_say_nothing_twice() {
    for text in ["[", "[targts]", "[servers.a]\naddress = \"http://a:1\"", "[rdma]\nlanes = 0"] {
        assert_says_nothing_twice(&Settings::parse("farcall.toml", text).unwrap_err());
    }
    assert_says_nothing_twice(&Settings::load("/no/such/file").unwrap_err());
    assert_says_nothing_twice(&"http://a:1".parse::<Address>().unwrap_err());
    let limits = Limits::default().with_max_calls(0);
    assert_says_nothing_twice(&limits.check().unwrap_err());
    let unknown = farcall::layer::for_methods(
        &service::SERVICE,
        ["Ech"],
        tower::layer::util::Identity::new(),
    );
    assert_says_nothing_twice(&unknown.map(drop).unwrap_err());
}

#[derive(Debug, thiserror::Error)]
#[error("a layer's reason")]
struct OfLayer;

#[tokio::test]
async fn statuses_say_nothing_twice() {
    let server = Server::builder().max_calls(1).add_service(Demo::default());
    let address = serve(listen(server).await);
    let channel = Channel::connect(&address).await.unwrap();
    let timeout = std::time::Duration::from_millis(1);
    let impatient = Channel::builder(&address).unwrap().timeout(timeout).connect().await.unwrap();
    for status in [
        failure(&channel, "Panic", "").await,
        failure(&channel, "Fail", "").await,
        failure(&impatient, "Wait", "").await,
        farcall::layer::into_status(OfLayer),
    ] {
        assert_ne!(status.code(), Code::Ok);
        assert_says_nothing_twice(&status);
    }
    let report = format!("{:#}", anyhow::Error::from(farcall::layer::into_status(OfLayer)));
    assert_eq!(report.matches("a layer's reason").count(), 1, "{report}");
}
