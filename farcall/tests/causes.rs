//! A report with causes (`anyhow`'s `{:#}`) says nothing twice: no error's text has that of its
//! source in it. And what a `main` that returns an error prints, its `Debug`, is that report.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

#[path = "messages/service.rs"]
#[allow(dead_code, reason = "the test of the messages uses all of it")]
mod service;

use std::error::Error;
use std::io;

use farcall::{Address, BindError, Channel, Code, ConnectError, Limits, Server, Settings};

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
        assert!(!text.contains(&cause), "{text:?} has its cause {cause:?}");
        error = source;
    }
}

fn io_error() -> io::Error {
    io::Error::other("the system's reason")
}

#[tokio::test]
async fn errors_of_connecting_say_nothing_twice() {
    let address = || "rdma://a:1".to_owned();
    for error in [
        ConnectError::Unreachable { address: address(), reason: io_error() },
        ConnectError::Handshake { address: address(), reason: io_error() },
        farcall_protocol_error().await,
        Channel::connect("http://a:1").await.unwrap_err(),
        Channel::connect("tcp://127.0.0.1:1").await.unwrap_err(),
    ] {
        assert_says_nothing_twice(&error);
    }
    let channel = Channel::builder("rdma://127.0.0.1:1").unwrap().rdma(&without_device());
    let status = failure(&channel.connect_lazy(), "Echo", "").await;
    assert!(ConnectError::of(&status).is_some(), "{status:?}");
    assert!(farcall::NotExecuted::is_said_by(&status));
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
    assert!(matches!(error, ConnectError::Protocol { .. }), "{error}");
    error
}

#[tokio::test]
async fn errors_of_serving_say_nothing_twice() {
    let address: Address = "rdma://127.0.0.1:0".parse().unwrap();
    let refused = BindError::Refused { address: address.clone(), reason: io_error() };
    assert_says_nothing_twice(&refused);
    assert_says_nothing_twice(&farcall::ServeError::from(refused));
    assert_says_nothing_twice(&BindError::Listener { reason: io_error() });
    assert_says_nothing_twice(&farcall::ServeError::Incoming { reason: io_error() });
    assert_says_nothing_twice(&farcall::ServeError::Accept { address, reason: io_error() });
    assert_says_nothing_twice(&Server::builder().bind("http://a:1").await.unwrap_err());
    let server = Server::builder().rdma(&without_device());
    let no_rdma = server.bind("rdma://127.0.0.1:0").await.unwrap_err();
    assert!(matches!(no_rdma, BindError::NoRdma { .. }), "{no_rdma}");
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
    assert_says_nothing_twice(&"none".parse::<farcall::RkeyScope>().unwrap_err());
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
