//! A channel to many servers: a list, and servers that come and go under calls.

use std::collections::HashMap;
use std::time::Duration;

use farcall::balance::{BalanceConfig, Connectivity, HashKey, Policy};
use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::{
    CallKind, Channel, Code, Idempotency, Listener, MayHaveExecuted, MethodDescriptor, NotExecuted,
    PeerInfo, Readiness, Request, Response, Server, Service, ServiceDescriptor, Status,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Who",
    methods: &[
        method("/t.Who/Ask", Idempotency::Idempotent),
        method("/t.Who/Add", Idempotency::Unknown),
    ],
};

const fn method(path: &'static str, idempotency: Idempotency) -> MethodDescriptor {
    MethodDescriptor::new(path, CallKind::Unary, idempotency)
}

/// Answers each call with its own number.
struct Who(u64);

impl Service for Who {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let number = self.0;
        call.unary(async move |_: Request<()>| Ok(Response::new(number)))
    }
}

struct Running {
    address: String,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(number: u64, address: &str) -> Self {
        Self::serve(Who(number), address).await
    }

    async fn serve(service: impl Service, address: &str) -> Self {
        let builder = Server::builder().add_service(service);
        let listener: Listener = builder.bind(address).await.expect("a port of loopback");
        let address = listener.local_address().to_string();
        let task = tokio::spawn(async move { drop(listener.serve().await) });
        Self { address, task }
    }

    /// Kills the server like `kill -9`: its connections end without a message.
    async fn kill(self) -> String {
        self.task.abort();
        let _ = self.task.await;
        self.address
    }
}

async fn servers(count: u64) -> Vec<Running> {
    let mut servers = Vec::new();
    for number in 0..count {
        servers.push(Running::start(number, "tcp://127.0.0.1:0").await);
    }
    servers
}

fn list(servers: &[Running]) -> String {
    servers.iter().map(|server| server.address.as_str()).collect::<Vec<_>>().join(",")
}

fn channel(address: &str, policy: Policy) -> Channel {
    let builder = Channel::builder(address).expect("it is a list");
    builder.balance(BalanceConfig::default().with_policy(policy)).connect_lazy()
}

async fn ask(channel: &Channel, request: Request<()>) -> Result<u64, Status> {
    Ok(unary::<_, u64>(channel, &SERVICE.methods[0], request).await?.into_inner())
}

/// Returns the number of calls that each server has answered, of `count`.
async fn shares(channel: &Channel, count: u64) -> HashMap<u64, u64> {
    let mut shares = HashMap::new();
    for _ in 0..count {
        let number = ask(channel, Request::new(())).await.expect("a server answers");
        *shares.entry(number).or_default() += 1;
    }
    shares
}

/// Waits until all endpoints are connected.
async fn all_connected(channel: &Channel, count: usize) {
    let is_ready = |channel: &Channel| {
        let status = channel.endpoints();
        let ready = |it: &farcall::balance::EndpointStatus| {
            matches!(it.connectivity, farcall::balance::Connectivity::Ready { .. })
        };
        status.len() == count && status.iter().all(ready)
    };
    let waiting = async {
        let _ = ask(channel, Request::new(())).await;
        while !is_ready(channel) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("all are connected");
}

#[tokio::test]
async fn every_server_of_a_list_has_its_share() {
    let servers = servers(3).await;
    let channel = channel(&list(&servers), Policy::RoundRobin);
    all_connected(&channel, 3).await;
    let shares = shares(&channel, 300).await;
    assert_eq!(shares, HashMap::from([(0, 100), (1, 100), (2, 100)]));
}

#[tokio::test]
async fn calls_with_one_key_go_to_one_server() {
    let servers = servers(3).await;
    let channel = channel(&list(&servers), Policy::ConsistentHash);
    all_connected(&channel, 3).await;
    let mut used = std::collections::HashSet::new();
    for key in 0..20 {
        let mut answers = std::collections::HashSet::new();
        for _ in 0..5 {
            let mut request = Request::new(());
            request.extensions_mut().insert(HashKey(key));
            answers.insert(ask(&channel, request).await.expect("a server answers"));
        }
        assert_eq!(answers.len(), 1, "key {key}");
        used.extend(answers);
    }
    assert_eq!(used.len(), 3, "keys spread");
}

#[tokio::test]
async fn a_server_that_is_killed_fails_no_idempotent_call() {
    let mut servers = servers(3).await;
    let channel = channel(&list(&servers), Policy::LeastLoaded);
    all_connected(&channel, 3).await;
    for round in 0..3 {
        let calls: Vec<_> = (0..200)
            .map(|_| {
                let channel = channel.clone();
                tokio::spawn(async move { ask(&channel, Request::new(())).await })
            })
            .collect();
        let address = servers.remove(0).kill().await;
        for call in calls {
            let answer = call.await.expect("no call panics");
            assert!(answer.is_ok(), "round {round}: {answer:?}");
        }
        servers.push(Running::start(10 + round, &address).await);
        all_connected(&channel, 3).await;
    }
}

#[tokio::test]
async fn a_call_that_is_not_idempotent_is_made_once_or_marked() {
    let mut servers = servers(2).await;
    let channel = channel(&list(&servers), Policy::RoundRobin);
    all_connected(&channel, 2).await;
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let channel = channel.clone();
            let add = async move {
                unary::<_, u64>(&channel, &SERVICE.methods[1], Request::new(())).await
            };
            tokio::spawn(add)
        })
        .collect();
    drop(servers.remove(0).kill().await);
    for call in calls {
        if let Err(status) = call.await.expect("no call panics") {
            assert!(MayHaveExecuted::matches(&status), "{status:?}");
        }
    }
}

/// Holds its calls for ever, and tells who was called.
struct Holding(u64, mpsc::UnboundedSender<u64>);

impl Service for Holding {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let (number, entered) = (self.0, self.1.clone());
        call.unary(async move |_: Request<()>| {
            let _ = entered.send(number);
            std::future::pending::<Result<Response<u64>, Status>>().await
        })
    }
}

/// Makes a call that kills each server that it enters, and gives how many those were and how the
/// call has ended.
async fn deadly(replays: bool) -> (usize, Status) {
    let (entered, mut entries) = mpsc::unbounded_channel();
    let mut servers = Vec::new();
    for number in 0..4 {
        let service = Holding(number, entered.clone());
        servers.push(Some(Running::serve(service, "tcp://127.0.0.1:0").await));
    }
    let addresses: Vec<_> = servers.iter().flatten().map(|it| it.address.clone()).collect();
    let builder = Channel::builder(addresses.join(",")).expect("it is a list");
    let balance = BalanceConfig::default().with_policy(Policy::RoundRobin);
    let channel = builder.balance(balance).replay_idempotent(replays).connect_lazy();
    let call = tokio::spawn(async move { ask(&channel, Request::new(())).await });
    let killing = async {
        let mut count = 0;
        loop {
            tokio::select! {
                number = entries.recv() => {
                    let number = usize::try_from(number.expect("a server lives")).unwrap_or(0);
                    servers[number].take().expect("it is called once").kill().await;
                    count += 1;
                }
                () = async { while !call.is_finished() { tokio::task::yield_now().await; } } => {
                    break count;
                }
            }
        }
    };
    let count = tokio::time::timeout(Duration::from_secs(30), killing).await;
    let ended = call.await.expect("no call panics").expect_err("no server lives to answer");
    (count.expect("the call ends"), ended)
}

#[tokio::test]
async fn a_deadly_call_kills_no_more_servers_than_its_budget() {
    let (count, status) = deadly(true).await;
    assert_eq!(count, 2, "it is made once more");
    assert!(MayHaveExecuted::matches(&status), "{status:?}");
    let (count, status) = deadly(false).await;
    assert_eq!(count, 1, "replays are off");
    assert!(MayHaveExecuted::matches(&status), "{status:?}");
}

#[tokio::test]
async fn without_a_server_calls_fail_with_the_reason_or_wait() {
    let servers = servers(2).await;
    let address = list(&servers);
    let mut addresses = Vec::new();
    for server in servers {
        addresses.push(server.kill().await);
    }
    let channel = channel(&address, Policy::LeastLoaded);
    let status = ask(&channel, Request::new(())).await.expect_err("no server is there");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(NotExecuted::matches(&status));
    let message = status.message();
    assert!(message.starts_with("no endpoint of tcp://127.0.0.1:"), "{message}");
    assert!(message.contains("Connection refused"), "{message}");
    let error = Channel::connect(address.as_str()).await.expect_err("no server is there");
    assert!(error.to_string().contains("Connection refused"), "{error}");
    let mut hurried = Request::new(());
    hurried.extensions_mut().insert(Readiness::WaitForReady);
    hurried.set_timeout(Duration::from_millis(50));
    let status = ask(&channel, hurried).await.expect_err("no server is there");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    let mut patient = Request::new(());
    patient.extensions_mut().insert(Readiness::WaitForReady);
    let waiting = tokio::spawn(async move { ask(&channel, patient).await });
    let _server = Running::start(7, &addresses[0]).await;
    assert_eq!(waiting.await.expect("it does not panic").expect("the server came"), 7);
}

#[tokio::test]
async fn a_list_is_no_address_to_listen_at() {
    let bound = Server::builder().bind("tcp://127.0.0.1:0,127.0.0.1:1").await;
    let error = bound.map(drop).expect_err("it names two servers").to_string();
    assert!(error.contains("names several servers"), "{error}");
}

/// Answers each call with the port of its client.
struct Port;

impl Service for Port {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(async move |_: Request<()>| {
            let client = PeerInfo::current().and_then(|peer| peer.addresses.peer);
            Ok(Response::new(client.map_or(0, |client| u64::from(client.port()))))
        })
    }
}

#[tokio::test]
async fn a_server_has_as_many_connections_as_the_settings_say() {
    let listener = Server::builder().add_service(Port).bind("tcp://127.0.0.1:0").await;
    let listener = listener.expect("a port of loopback");
    let (server, address) = (listener.server().clone(), listener.local_address().to_string());
    tokio::spawn(listener.serve());
    let config = BalanceConfig::default().with_policy(Policy::RoundRobin).with_connections(3);
    let builder = Channel::builder(address.as_str()).expect("it is an address").balance(config);
    let channel = builder.connect().await.expect("it is there");
    all_connected(&channel, 3).await;
    let shares = shares(&channel, 30).await;
    assert_eq!(shares.into_values().collect::<Vec<_>>(), [10, 10, 10]);
    assert_eq!(server.connections().len(), 3);
    let connections: Vec<_> = channel.endpoints().iter().map(|it| it.connection).collect();
    assert_eq!(connections, [0, 1, 2]);
}

static HEALTH: ServiceDescriptor = ServiceDescriptor {
    name: "grpc.health.v1.Health",
    methods: &[MethodDescriptor::new(
        "/grpc.health.v1.Health/Watch",
        CallKind::ServerStreaming,
        Idempotency::Unknown,
    )],
};

/// A server's answer about its health: 1 means serving.
#[derive(Clone, PartialEq, farcall::prost::Message)]
#[prost(prost_path = "farcall::prost")]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

struct Health(watch::Receiver<i32>);

impl Service for Health {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &HEALTH
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let mut health = self.0.clone();
        health.mark_changed();
        call.server_streaming(async move |_: Request<()>| {
            Ok(Response::new(futures::stream::unfold(health, |mut health| async move {
                health.changed().await.ok()?;
                let status = *health.borrow_and_update();
                Some((Ok(HealthCheckResponse { status }), health))
            })))
        })
    }
}

#[tokio::test]
async fn a_server_that_says_that_it_does_not_serve_gets_no_calls() {
    let (said, health) = watch::channel(1);
    let checked = Server::builder().add_service(Who(0)).add_service(Health(health));
    let mut addresses = Vec::new();
    // The other has no health service, which is taken for serving.
    for builder in [checked, Server::builder().add_service(Who(1))] {
        let listener = builder.bind("tcp://127.0.0.1:0").await.expect("a port of loopback");
        addresses.push(listener.local_address().to_string());
        tokio::spawn(async move { drop(listener.serve().await) });
    }
    let config = BalanceConfig::default().with_policy(Policy::RoundRobin);
    let config = config.with_health_check("t.Who".to_owned());
    let connect = |address: &str| {
        let builder = Channel::builder(address).expect("it is a list");
        builder.balance(config.clone()).connect_lazy()
    };
    let channel = connect(&addresses.join(","));
    all_connected(&channel, 2).await;
    assert_eq!(shares(&channel, 20).await, HashMap::from([(0, 10), (1, 10)]));

    let becomes = async |expected: Connectivity| {
        while channel.endpoints()[0].connectivity != expected {
            tokio::task::yield_now().await;
        }
    };
    said.send_replace(2);
    let limit = Duration::from_secs(30);
    let failing = becomes(Connectivity::TransientFailure);
    tokio::time::timeout(limit, failing).await.expect("it is left out");
    assert_eq!(shares(&channel, 20).await, HashMap::from([(1, 20)]));
    said.send_replace(1);
    all_connected(&channel, 2).await;
    assert_eq!(shares(&channel, 20).await, HashMap::from([(0, 10), (1, 10)]));

    // Where there is no other, a call fails, and says why.
    said.send_replace(2);
    let alone = connect(&format!("{0},{0}", addresses[0]));
    let status = ask(&alone, Request::new(())).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("the server reports that it is not serving"), "{status}");
}

/// An endpoint that accepts in the kernel and says nothing, before a live one.
#[tokio::test]
async fn silent_endpoint_of_a_list_does_not_hide_a_live_one() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port of loopback");
    let silent = format!("tcp://{}", silent.local_addr().expect("it is bound"));
    let live = Running::start(7, "tcp://127.0.0.1:0").await;
    let policies =
        [Policy::LeastLoaded, Policy::RoundRobin, Policy::PickFirst, Policy::ConsistentHash];
    for policy in policies {
        let builder = Channel::builder(format!("{silent},{}", live.address)).expect("a list");
        let builder = builder.balance(BalanceConfig::default().with_policy(policy));
        let channel = builder.handshake_timeout(Duration::from_secs(3600)).connect_lazy();
        for key in 0..20 {
            let mut request = Request::new(());
            request.extensions_mut().insert(HashKey(key));
            let call = unary::<(), u64>(&channel, &SERVICE.methods[0], request);
            let answer = tokio::time::timeout(Duration::from_secs(60), call).await;
            let answer = answer.unwrap_or_else(|_| panic!("{policy:?} waits for the silent one"));
            assert_eq!(answer.expect("the live one answers").into_inner(), 7);
        }
    }
}
