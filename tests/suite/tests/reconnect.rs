//! The frequency of a channel's attempts to reach a server that is gone or of no use, on a clock
//! that the test owns; and that a server which returns is found.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use farcall::{Code, NotExecuted, Readiness, Request, ServeError, Server, Status};
use farcall_suite::Probe;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use futures::future::BoxFuture;
use rpc_core::client::{ClientConfig, Connect, Established};
use rpc_core::connect::{ConnectError, Wanted};
use rpc_core::inproc::{InprocConnector, InprocListener};
use rpc_core::memory::MemoryShare;
use rpc_core::server::{self, Listen, ServerHandshake};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Between two calls of an eager caller.
const CALL_INTERVAL: Duration = Duration::from_millis(1);

/// Attempts in a minute, when chance makes each delay a fifth shorter: five take 12.6 s, and eight
/// more 6.7 s each; two more because a first loss is made good at once, and the first one.
const ATTEMPTS_A_MINUTE: usize = 16;

/// Counts attempts to connect.
#[derive(Debug)]
struct Counting {
    connector: InprocConnector,
    attempts: Arc<AtomicUsize>,
}

impl Connect for Counting {
    fn config(&self) -> &ClientConfig {
        self.connector.config()
    }

    fn address(&self) -> Arc<str> {
        self.connector.address()
    }

    fn connect(&self, wanted: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.connector.connect(wanted)
    }
}

struct Client {
    stub: ProbeStub,
    attempts: Arc<AtomicUsize>,
}

impl Client {
    fn new(name: &str) -> Self {
        let attempts = Arc::default();
        let connector = InprocConnector::new(name, ClientConfig::default());
        let counting = Counting { connector, attempts: Arc::clone(&attempts) };
        Self { stub: ProbeStub::new(rpc_core::Channel::new(counting).into()), attempts }
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    async fn echo(&self) -> Result<(), Status> {
        self.stub.echo(EchoRequest::default()).await.map(drop)
    }

    /// Waits for a connection, for at most so long.
    async fn echo_within(&self, timeout: Duration) -> Result<(), Status> {
        let mut request = Request::new(EchoRequest::default());
        request.set_timeout(timeout);
        request.extensions_mut().insert(Readiness::WaitForReady);
        self.stub.echo(request).await.map(drop)
    }

    /// Calls eagerly for a minute; gives the attempts to connect, and the last status.
    async fn storm(&self) -> (usize, Status) {
        let (start, before) = (Instant::now(), self.attempts());
        let mut last = None;
        while start.elapsed() < Duration::from_secs(60) {
            let status = self.echo().await.expect_err("no call can be answered");
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            last = Some(status);
            sleep(CALL_INTERVAL).await;
        }
        (self.attempts() - before, last.expect("there were calls"))
    }
}

fn serve(name: &str) -> JoinHandle<Result<(), ServeError>> {
    let listener = InprocListener::bind(name).expect("the name is free");
    let server = Server::builder().add_service(ProbeService::new(Probe::new().0)).build();
    tokio::spawn(server.serve_incoming(listener))
}

async fn kill(serving: JoinHandle<Result<(), ServeError>>) {
    serving.abort();
    assert!(serving.await.is_err_and(|error| error.is_cancelled()), "it was still serving");
}

#[tokio::test(start_paused = true)]
async fn a_dead_port_is_tried_a_few_times_a_minute() {
    let client = Client::new("reconnect-dead");
    let first = client.echo().await.expect_err("no server listens");
    let (reason, due) = first.message().split_once("; ").expect("it has the next attempt");
    assert!(due.starts_with("the channel tries again in "), "{first}");
    let (attempts, last) = client.storm().await;
    println!("dead port: {attempts} attempts in 60 s; the last call: {last}");
    assert!(attempts <= ATTEMPTS_A_MINUTE, "{attempts} attempts");
    let text = last.message();
    assert!(text.contains(reason) && text.contains("tries again in"), "{last}");
    assert!(NotExecuted::matches(&last), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_closes_counts_as_dead() {
    let mut listener = InprocListener::bind("reconnect-closing").expect("the name is free");
    let serving = tokio::spawn(async move {
        while let Ok(Some(bootstrap)) = listener.accept().await {
            drop(bootstrap);
        }
    });
    let (attempts, last) = Client::new("reconnect-closing").storm().await;
    println!("accepts and closes: {attempts} attempts in 60 s; the last call: {last}");
    assert!(attempts <= ATTEMPTS_A_MINUTE, "{attempts} attempts");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_hello_and_closes_counts_as_dead() {
    let mut listener = InprocListener::bind("reconnect-hello").expect("the name is free");
    let serving = tokio::spawn(async move {
        let (limits, upgrades) = (farcall::Limits::default(), Vec::new());
        let (methods, method_kinds) = (Vec::new(), Vec::new().into());
        let server = ServerHandshake {
            limits,
            compression: farcall::Compression::OFF,
            methods,
            method_kinds,
            access: server::MethodAccess::default(),
            upgrades,
            protocols: Vec::new(),
        };
        while let Ok(Some(bootstrap)) = listener.accept().await {
            drop(
                server::accept(bootstrap, &server, &MemoryShare::default())
                    .await
                    .expect("a good client"),
            );
        }
    });
    let client = Client::new("reconnect-hello");
    // A method that this server has not: the call fails, and the connection is of no use.
    let (start, mut calls) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(60) {
        client.echo().await.expect_err("no call can be answered");
        calls += 1;
        sleep(CALL_INTERVAL).await;
    }
    let attempts = client.attempts();
    println!("says Hello and closes: {attempts} attempts for {calls} calls in 60 s");
    assert!(attempts <= ATTEMPTS_A_MINUTE, "{attempts} attempts");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_every_client_away_counts_as_dead() {
    let listener = InprocListener::bind("reconnect-goaway").expect("the name is free");
    let builder =
        Server::builder().max_connection_age(Duration::ZERO).drain_timeout(Duration::ZERO);
    let server = builder.add_service(ProbeService::new(Probe::new().0)).build();
    let serving = tokio::spawn(server.serve_incoming(listener));
    let client = Client::new("reconnect-goaway");
    let (start, mut answered, mut calls) = (Instant::now(), 0, 0);
    while start.elapsed() < Duration::from_secs(60) {
        answered += usize::from(client.echo().await.is_ok());
        calls += 1;
        sleep(CALL_INTERVAL).await;
    }
    let attempts = client.attempts();
    println!("sends away: {attempts} attempts, {answered} of {calls} calls answered in 60 s");
    assert!(attempts <= ATTEMPTS_A_MINUTE, "{attempts} attempts");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_after_each_answer_counts_as_dead() {
    let client = Client::new("reconnect-answering");
    let (start, mut answered, mut calls) = (Instant::now(), 0, 0);
    while start.elapsed() < Duration::from_secs(60) {
        let serving = serve("reconnect-answering");
        answered += usize::from(client.echo().await.is_ok());
        calls += 1;
        kill(serving).await;
        sleep(CALL_INTERVAL).await;
    }
    let attempts = client.attempts();
    println!("dies after each answer: {attempts} attempts, {answered} of {calls} calls in 60 s");
    assert!(answered > 2, "{answered} answers");
    assert!(attempts <= ATTEMPTS_A_MINUTE + 10, "{attempts} attempts");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_of_use_is_replaced_at_once() {
    let client = Client::new("reconnect-useful");
    for _ in 0..10 {
        let serving = serve("reconnect-useful");
        let start = Instant::now();
        client.echo().await.expect("the server is there");
        assert_eq!(start.elapsed(), Duration::ZERO);
        // As long as the first delay: a connection that dies sooner counts as a failed attempt.
        sleep(Duration::from_secs(1)).await;
        kill(serving).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_may_wait_for_a_server_that_comes() {
    let client = Client::new("reconnect-waiting");
    let start = Instant::now();
    let late = client.echo_within(Duration::from_secs(5)).await.expect_err("no server listens");
    assert_eq!((late.code(), start.elapsed()), (Code::DeadlineExceeded, Duration::from_secs(5)));
    let text = late.message();
    assert!(
        text.contains("had no connection within 5s (") && text.contains("cannot connect to"),
        "{late}"
    );
    assert!(NotExecuted::matches(&late), "{late:?}");
    let waiting = client.echo_within(Duration::from_secs(60));
    let mut serving = None;
    let coming = async {
        sleep(Duration::from_secs(10)).await;
        serving = Some(serve("reconnect-waiting"));
    };
    let (answered, ()) = tokio::join!(waiting, coming);
    answered.expect("the server has come");
    // Three fifths of the time for which it was away, and a fifth of that more.
    let (took, away) = (start.elapsed(), Duration::from_secs(15));
    println!("found {:?} after it came, in {} attempts", took - away, client.attempts());
    assert!(took < 2 * away, "{took:?}");
    kill(serving.expect("it was started")).await;
}
