//! Promises of the documentation of `Serve`.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

#[path = "reload/service.rs"]
mod service;

use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::{Channel, Code, MethodCompression, ServeErrorKind, Server, ServerBuilder};
use futures::FutureExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;

use crate::service::{Named, name, serve, wait};

const ADDRESS: &str = "tcp://127.0.0.1:0";

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(30);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap()
}

fn builder(service: &Named) -> ServerBuilder {
    Server::builder().add_service(service.clone())
}

/// Calls until the server rejects calls.
async fn until_rejected(channel: &Channel) {
    let rejected = async {
        while let Ok(name) = name(channel).await {
            assert_eq!(name, "s");
        }
    };
    within(rejected).await;
}

#[tokio::test]
async fn dropped_serve_ends_connections_and_frees_the_port() {
    let service = Named::new("s");
    let listener = builder(&service).bind(ADDRESS).await.unwrap();
    let (address, server) = (listener.local_address().clone(), listener.server().clone());
    let mut serving = listener.serve();
    let calling = async {
        let channel = Channel::connect(address.clone()).await.unwrap();
        let calling = tokio::spawn({
            let channel = channel.clone();
            async move { wait(&channel).await }
        });
        service.has_begun().await;
        (channel, calling)
    };
    let (channel, call) = tokio::select! {
        ended = &mut serving => panic!("it ended: {ended:?}"),
        calling = within(calling) => calling,
    };
    drop(serving);
    assert_eq!(within(call).await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert_eq!(name(&channel).await.unwrap_err().code(), Code::Unavailable);
    let again = server.bind(address.clone()).await.unwrap();
    tokio::spawn(again.serve());
    assert_eq!(name(&Channel::connect(address).await.unwrap()).await.unwrap(), "s");
}

#[tokio::test]
async fn serve_does_nothing_until_it_is_polled() {
    let address = "inproc://serve-unpolled";
    let unpolled = builder(&Named::new("s")).serve(address);
    let listener = builder(&Named::new("s")).bind(address).await.unwrap();
    drop(listener);
    within(unpolled.with_graceful_shutdown(ready(()))).await.unwrap();
}

#[tokio::test]
async fn signal_before_the_start_accepts_no_connection() {
    let drains = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&drains);
    let builder = builder(&Named::new("s")).on_drain(async move {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let listener = builder.bind(ADDRESS).await.unwrap();
    let authority = listener.local_address().to_string().replace("tcp://", "");
    let mut waiting = tokio::net::TcpStream::connect(authority).await.unwrap();
    within(listener.serve().with_graceful_shutdown(ready(()))).await.unwrap();
    assert_eq!(drains.load(Ordering::Relaxed), 1);
    // The operating system closes or resets a connection that waits in the backlog.
    let read = within(waiting.read(&mut [0])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn signal_before_the_start_hides_no_error() {
    let address = format!("tcp://127.0.0.1:{}", serve(Named::new("s")).await);
    let serving = Server::builder().serve(&address).with_graceful_shutdown(ready(()));
    let error = within(serving).await.unwrap_err();
    assert_eq!(error.kind(), ServeErrorKind::Refused, "{error}");
    assert_eq!(error.address().map(ToString::to_string), Some(address));
}

#[tokio::test]
async fn listeners_of_one_server_drain_together() {
    let (service, drains) = (Named::new("s"), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&drains);
    let server = builder(&service).on_drain(async move {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let server = server.build();
    let (stop, signal) = oneshot::channel::<()>();
    let signal = signal.map(drop).shared();
    let (mut serving, mut channels, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let listener = server.bind(ADDRESS).await.unwrap();
        let address = listener.local_address().clone();
        serving.push(tokio::spawn(listener.serve().with_graceful_shutdown(signal.clone())));
        let channel = Channel::connect(address).await.unwrap();
        channels.push(channel.clone());
        calls.push(tokio::spawn(async move { wait(&channel).await }));
        service.has_begun().await;
    }
    assert_eq!(server.connections().len(), 2);
    stop.send(()).unwrap();
    for channel in &channels {
        until_rejected(channel).await;
    }
    assert!(serving.iter().all(|serving| !serving.is_finished()), "calls are in flight");
    service.answers.add_permits(2);
    for call in calls {
        assert_eq!(within(call).await.unwrap().unwrap(), "s");
    }
    for serving in serving {
        within(serving).await.unwrap().unwrap();
    }
    assert_eq!(drains.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn listener_drains_alone_by_its_own_signal() {
    let server = builder(&Named::new("s")).build();
    let [first, second] = [server.bind(ADDRESS).await, server.bind(ADDRESS).await];
    let (first, second) = (first.unwrap(), second.unwrap());
    let addresses = [&first, &second].map(|listener| listener.local_address().clone());
    let (stop, signal) = oneshot::channel::<()>();
    let first = tokio::spawn(first.serve().with_graceful_shutdown(signal.map(drop)));
    tokio::spawn(second.serve());
    let [one, other] = addresses.map(Channel::connect);
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    stop.send(()).unwrap();
    within(first).await.unwrap().unwrap();
    assert_eq!(name(&one).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(name(&other).await.unwrap(), "s");
}

#[tokio::test]
async fn first_of_several_signals_counts() {
    for earlier in [true, false] {
        let listener = builder(&Named::new("s")).bind(ADDRESS).await.unwrap();
        let serving = listener.serve();
        let serving = match earlier {
            true => serving.with_graceful_shutdown(ready(())).with_graceful_shutdown(pending()),
            false => serving.with_graceful_shutdown(pending()).with_graceful_shutdown(ready(())),
        };
        within(serving).await.unwrap();
    }
}

#[tokio::test]
async fn signal_may_come_after_the_start() {
    let listener = builder(&Named::new("s")).bind(ADDRESS).await.unwrap();
    let address = listener.local_address().clone();
    let mut serving = listener.serve();
    tokio::select! {
        ended = &mut serving => panic!("it ended: {ended:?}"),
        channel = Channel::connect(address) => drop(channel.unwrap()),
    }
    within(serving.with_graceful_shutdown(ready(()))).await.unwrap();
}

#[tokio::test]
async fn setting_of_an_unknown_method_is_an_error() {
    let by_method = MethodCompression::default().with_len("/t.Named/None", u32::MAX);
    let server = builder(&Named::new("s")).method_compression(by_method).build();
    let socket = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let errors = [
        server.bind(ADDRESS).await.unwrap_err(),
        server.bind_listener(socket()).unwrap_err(),
        within(server.serve_incoming(socket())).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ServeErrorKind::UnknownMethod, "{error}");
        assert!(error.to_string().contains("/t.Named/None"), "{error}");
    }
}
