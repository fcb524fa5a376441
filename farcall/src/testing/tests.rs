//! Each fault as clients and servers see it, most of them with the clock paused.

use std::time::Duration;

use rpc_core::codegen::{HandlerFuture, ServerCall};
use tokio::time::{Instant, timeout};

use super::{Direction, Link, TestServer};
use crate::balance::Connectivity;
use crate::client::unary;
use crate::{
    CallKind, Channel, Code, Idempotency, Keepalive, MethodDescriptor, Request, Response, Server,
    Service, ServiceDescriptor, Status,
};

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Echo",
    methods: &[MethodDescriptor::new("/t.Echo/Echo", CallKind::Unary, Idempotency::Unknown)],
};

struct Echo;

impl Service for Echo {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(|request: Request<Vec<u8>>| async { Ok(Response::new(request.into_inner())) })
    }
}

fn server() -> TestServer {
    TestServer::start(Server::builder().add_service(Echo))
}

async fn echo(channel: &Channel, message: Vec<u8>) -> Result<Vec<u8>, Status> {
    let call = unary(channel, &SERVICE.methods[0], Request::new(message));
    // The clock is paused: an hour passes at once when nothing else is left to do.
    match timeout(Duration::from_secs(3600), call).await {
        Ok(reply) => reply.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("the test's own hour is over")),
    }
}

#[tokio::test(start_paused = true)]
async fn without_faults_calls_pass_in_no_time_and_are_counted() {
    let server = server();
    let channel = server.channel();
    let began = Instant::now();
    let long = vec![7; 300_000];
    assert_eq!(echo(&channel, long.clone()).await.unwrap(), long);
    assert_eq!(began.elapsed(), Duration::ZERO);
    let link = server.link();
    assert_eq!(link.connection_count(), 1);
    for direction in [Direction::ToServer, Direction::ToClient] {
        assert!(link.passed_bytes(direction) > 300_000, "{direction:?}");
    }
    drop(channel);
    let link = link.clone();
    server.shutdown().await.unwrap();
    assert_eq!(link.connection_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn latency_is_paid_once_each_way_however_long_the_message_is() {
    let server = server();
    let channel = server.channel();
    echo(&channel, vec![]).await.unwrap();
    server.link().set_latency(Duration::from_millis(40));
    server.link().set_latency_of(Direction::ToClient, Duration::from_millis(2));
    for len in [0, 100_000] {
        let began = Instant::now();
        echo(&channel, vec![7; len]).await.unwrap();
        assert_eq!(began.elapsed().as_millis(), 42, "{len} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_held_back_comes_when_it_is_let_go() {
    let server = server();
    let channel = server.channel();
    echo(&channel, vec![]).await.unwrap();
    for direction in [Direction::ToServer, Direction::ToClient] {
        server.link().pause(direction);
        let call = echo(&channel, vec![1]);
        tokio::pin!(call);
        let waited = timeout(Duration::from_secs(1), &mut call).await;
        assert!(waited.is_err(), "{direction:?}: {waited:?}");
        server.link().resume(direction);
        assert_eq!(call.await.unwrap(), [1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_ends_calls_in_flight_and_the_next_one_connects() {
    let server = server();
    let channel = server.channel();
    echo(&channel, vec![]).await.unwrap();
    server.link().pause(Direction::ToClient);
    let in_flight = tokio::spawn({
        let channel = channel.clone();
        async move { echo(&channel, vec![1]).await }
    });
    let sent = server.link().passed_bytes(Direction::ToServer);
    while server.link().passed_bytes(Direction::ToServer) == sent {
        tokio::task::yield_now().await;
    }
    server.link().cut();
    let status = in_flight.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    server.link().resume(Direction::ToClient);
    assert_eq!(echo(&channel, vec![2]).await.unwrap(), [2]);
    assert_eq!(server.link().connection_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_peer_whose_bytes_are_lost_is_given_up_by_keepalive() {
    let server = server();
    let keepalive = Keepalive::new(Duration::from_secs(10), Duration::from_secs(5));
    let builder = Channel::builder("tcp://lossy:1").unwrap().keepalive(keepalive);
    let channel = builder.connect_with_connector(server.link().connector());
    echo(&channel, vec![]).await.unwrap();
    server.link().lose(Direction::ToClient);
    let status = echo(&channel, vec![1]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("tcp://lossy:1"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn corrupt_bytes_arrive_changed() {
    let server = server();
    let channel = server.channel();
    let message = vec![7; 10_000];
    echo(&channel, message.clone()).await.unwrap();
    // In the middle of the message, which TCP's own checksum would have caught.
    server.link().corrupt(Direction::ToServer, 5_000);
    let reply = echo(&channel, message.clone()).await.unwrap();
    let changed = reply.iter().zip(&message).filter(|(one, other)| one != other).count();
    assert_eq!((reply.len(), changed), (message.len(), 1));
    assert_eq!(echo(&channel, message.clone()).await.unwrap(), message);
}

#[tokio::test(start_paused = true)]
async fn connections_are_refused_or_ignored_until_they_are_accepted() {
    let server = server();
    server.link().refuse_connections();
    let channel = server.channel();
    let status = echo(&channel, vec![]).await.unwrap_err();
    assert!(status.message().to_lowercase().contains("refused"), "{status}");
    server.link().ignore_connections();
    let ignored = server.channel();
    let status = echo(&ignored, vec![]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    server.link().accept_connections();
    assert_eq!(echo(&server.channel(), vec![3]).await.unwrap(), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_channel_tells_what_becomes_of_its_connection() {
    use Connectivity::{Idle, Ready, TransientFailure};

    let server = server();
    let channel = server.channel();
    assert_eq!(channel.connectivity(), Idle);
    let mut state = Idle;
    while state != (Ready { is_upgraded: false }) {
        state = channel.connectivity_changed(state).await;
    }
    assert_eq!(echo(&channel, vec![1]).await.unwrap(), [1]);
    server.link().refuse_connections();
    server.link().cut();
    assert_eq!(channel.connectivity_changed(state).await, Idle);
    state = Idle;
    while state != TransientFailure {
        state = channel.connectivity_changed(state).await;
    }
    server.link().accept_connections();
    while state != (Ready { is_upgraded: false }) {
        state = channel.connectivity_changed(state).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_is_restarted_behind_its_clients() {
    let link = Link::new();
    let first = TestServer::start_behind(&link, Server::builder().add_service(Echo));
    let channel = first.channel();
    assert_eq!(echo(&channel, vec![1]).await.unwrap(), [1]);
    first.shutdown().await.unwrap();
    let status = echo(&channel, vec![2]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let second = TestServer::start_behind(&link, Server::builder().add_service(Echo));
    // Past the time that the channel backs off after an attempt that failed.
    tokio::time::advance(Duration::from_secs(300)).await;
    assert_eq!(echo(&channel, vec![3]).await.unwrap(), [3]);
    drop(second);
}

#[tokio::test]
async fn a_server_that_listens_elsewhere_has_the_same_faults() {
    let builder = Server::builder().add_service(Echo);
    let listener = builder.bind("tcp://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let link = Link::new();
    let connector = link.connector_to(address.strip_prefix("tcp://").unwrap());
    let builder = Channel::builder(address.as_str()).unwrap();
    let channel = builder.connect_with_connector(connector);
    assert_eq!(echo(&channel, vec![1]).await.unwrap(), [1]);
    link.cut();
    link.refuse_connections();
    let status = echo(&channel, vec![2]).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    serving.abort();
}

/// The end of the test is that it ends.
#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_connections_whose_link_is_gone() {
    let server = server();
    let channel = server.channel();
    echo(&channel, vec![]).await.unwrap();
    // The end of the stream is lost as well, so that neither side learns of the other's.
    server.link().lose(Direction::ToServer);
    server.link().lose(Direction::ToClient);
    let kept = server.link().kept_by_connections();
    drop((channel, server));
    while kept.strong_count() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
