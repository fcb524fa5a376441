//! Servers with cores: where calls run, the limits, and the drain.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use farcall::client::{LayeredChannel, unary};
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::layer::{Trace, TraceLayer};
use farcall::sim::SimNetwork;
use farcall::{
    CallKind, Channel, Code, Idempotency, MethodDescriptor, Rdma, RdmaConfig, Request, Response,
    ServeError, Server, ServerBuilder, Service, ServiceDescriptor, Status,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

static SERVICE: ServiceDescriptor =
    ServiceDescriptor { name: "t.Cores", methods: &[method(PLACE), method(WAIT), method(BLOCK)] };
static BLOCKING: ServiceDescriptor = ServiceDescriptor {
    name: "t.Blocking",
    methods: &[
        method("/t.Blocking/Place"),
        method("/t.Blocking/Wait"),
        method("/t.Blocking/Block"),
    ],
};

const PLACE: &str = "/t.Cores/Place";
const WAIT: &str = "/t.Cores/Wait";
const BLOCK: &str = "/t.Cores/Block";

const fn method(path: &'static str) -> MethodDescriptor {
    MethodDescriptor::new(path, CallKind::Unary, Idempotency::Unknown)
}

/// A service whose handlers wait for the test.
#[derive(Clone)]
struct Handlers {
    descriptor: &'static ServiceDescriptor,
    /// Calls of `Wait` and `Block` that have begun.
    begun: Arc<Semaphore>,
    /// Calls of `Wait` that may answer.
    answers: Arc<Semaphore>,
    /// Ends a call of `Block`.
    release: Arc<Mutex<mpsc::Receiver<()>>>,
}

/// The name of the current thread, and of the one that a task runs on which was spawned here.
async fn place() -> String {
    let name = || thread::current().name().unwrap_or_default().to_owned();
    let (here, spawned) = (name(), tokio::spawn(async move { name() }).await);
    match spawned {
        Ok(spawned) if spawned == here => here,
        spawned => format!("{here}, and its tasks at {spawned:?}"),
    }
}

impl Service for Handlers {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        self.descriptor
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let this = self.clone();
        call.unary(async move |_: Request<()>| {
            match SERVICE.methods[method].path {
                WAIT => {
                    this.begun.add_permits(1);
                    this.answers.acquire().await.expect("it is open").forget();
                }
                BLOCK => {
                    this.begun.add_permits(1);
                    let release = this.release.lock();
                    let _ = release.recv_timeout(LIMIT);
                }
                _ => {}
            }
            Ok(Response::new(place().await))
        })
    }
}

/// A server with cores.
struct Rig {
    server: Server,
    address: String,
    handlers: Handlers,
    release: mpsc::Sender<()>,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Rig {
    async fn new(cores: u32) -> Self {
        Self::at("tcp://127.0.0.1:0", |builder| builder.cores(cores)).await
    }

    async fn at(address: &str, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let [begun, answers] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        let (release, released) = mpsc::channel();
        let release_by = Arc::new(Mutex::new(released));
        let handlers = Handlers { descriptor: &SERVICE, begun, answers, release: release_by };
        let blocking = Handlers { descriptor: &BLOCKING, ..handlers.clone() };
        let builder = Server::builder().add_service(handlers.clone()).blocking(blocking);
        let listener = change(builder).bind(address).await.expect("an address is free");
        let (address, server) = (listener.local_address().to_string(), listener.server().clone());
        let (shutdown, shut_down) = oneshot::channel();
        let serving = listener.serve().with_graceful_shutdown(async { drop(shut_down.await) });
        let (shutdown, serving) = (Some(shutdown), tokio::spawn(serving));
        Self { server, address, handlers, release, shutdown, serving }
    }

    async fn connect(&self) -> Channel {
        Channel::connect(&self.address).await.expect("the server accepts")
    }

    /// Waits until one more call of `Wait` or `Block` has begun.
    async fn has_begun(&self) {
        let begun = tokio::time::timeout(LIMIT, self.handlers.begun.acquire()).await;
        begun.expect("a call begins").expect("it is open").forget();
    }

    /// Shuts down, and waits for the end.
    async fn end(mut self) -> Result<(), ServeError> {
        drop(self.shutdown.take());
        tokio::time::timeout(LIMIT, self.serving).await.expect("it ends").expect("no panic")
    }
}

/// Calls the method with that index.
async fn call(
    channel: &Channel,
    service: &'static ServiceDescriptor,
    method: usize,
) -> Result<String, Status> {
    let called = unary::<(), String>(channel, &service.methods[method], Request::new(()));
    let called = tokio::time::timeout(LIMIT, called).await.expect("it is answered");
    called.map(Response::into_inner)
}

async fn place_of(channel: &Channel) -> String {
    call(channel, &SERVICE, 0).await.expect("it answers")
}

/// A call of `Wait` or `Block`.
fn begin(
    channel: &Channel,
    service: &'static ServiceDescriptor,
    method: usize,
) -> JoinHandle<Result<String, Status>> {
    let channel = channel.clone();
    tokio::spawn(async move { call(&channel, service, method).await })
}

#[tokio::test]
async fn connections_spread_over_the_cores_and_stay_there() {
    let rig = Rig::new(3).await;
    let mut channels = Vec::new();
    for _ in 0..6 {
        channels.push(rig.connect().await);
    }
    let mut counts = HashMap::new();
    for channel in &channels {
        let place = place_of(channel).await;
        assert_eq!(place_of(channel).await, place);
        *counts.entry(place).or_insert(0) += 1;
    }
    let expected = [0, 1, 2].map(|core| (format!("farcall-core-{core}"), 2));
    assert_eq!(counts, HashMap::from(expected));
    rig.end().await.unwrap();
}

#[tokio::test]
async fn calls_of_every_protocol_run_on_cores() {
    let name = format!("{}-cores", std::process::id());
    for address in ["tcp://127.0.0.1:0", &format!("unix://@{name}"), &format!("inproc://{name}")] {
        let rig = Rig::at(address, |builder| builder.cores(1)).await;
        assert_eq!(place_of(&rig.connect().await).await, "farcall-core-0", "{address}");
        if address.starts_with("tcp://") {
            let grpc = Channel::connect(rig.address.replace("tcp://", "grpc://")).await.unwrap();
            assert_eq!(place_of(&grpc).await, "farcall-core-0");
            assert_eq!(place_of(&grpc).await, "farcall-core-0");
        }
        rig.end().await.unwrap();
    }
}

#[tokio::test]
async fn listeners_of_a_server_share_its_cores() {
    let rig = Rig::new(2).await;
    let other = rig.server.bind("tcp://127.0.0.1:0").await.unwrap();
    let address = other.local_address().to_string();
    let (shutdown, shut_down) = oneshot::channel::<()>();
    let serving = other.serve().with_graceful_shutdown(async { drop(shut_down.await) });
    let serving = tokio::spawn(serving);
    let channel = rig.connect().await;
    let neighbour = Channel::connect(&address).await.unwrap();
    assert_eq!(place_of(&channel).await, "farcall-core-0");
    assert_eq!(place_of(&neighbour).await, "farcall-core-1", "core 0 has a connection");
    // The cores stay for the other listener.
    drop(shutdown);
    serving.await.unwrap().unwrap();
    assert_eq!(place_of(&channel).await, "farcall-core-0");
    rig.end().await.unwrap();
}

#[tokio::test]
async fn handler_that_blocks_its_core_stops_no_other_core() {
    let rig = Rig::new(2).await;
    let [blocked, other] = [rig.connect().await, rig.connect().await];
    let blocking = begin(&blocked, &SERVICE, 2);
    rig.has_begun().await;
    assert_eq!(place_of(&other).await, "farcall-core-1");
    // A new connection may come to the blocked core: its handshake waits.
    rig.release.send(()).unwrap();
    assert_eq!(blocking.await.unwrap().unwrap(), "farcall-core-0");
    rig.end().await.unwrap();
}

/// The runtime of the test has one thread, which a handler may block as well: the others are on
/// their cores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_may_block_run_where_the_server_was_started() {
    let rig = Rig::new(1).await;
    let channel = rig.connect().await;
    let place = call(&channel, &BLOCKING, 0).await.unwrap();
    assert!(place.starts_with("tokio-r"), "{place}");
    let blocking = begin(&channel, &BLOCKING, 2);
    rig.has_begun().await;
    // Over the same connection, on the core.
    for _ in 0..10 {
        assert_eq!(place_of(&channel).await, "farcall-core-0");
    }
    rig.release.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    // Given up, a handler ends where it waits.
    let waiting = begin(&channel, &BLOCKING, 1);
    rig.has_begun().await;
    waiting.abort();
    let dropped = || Arc::strong_count(&rig.handlers.answers) == 3;
    tokio::time::timeout(LIMIT, async {
        while !dropped() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("its handler is dropped");
    rig.end().await.unwrap();
}

static HOPS: ServiceDescriptor =
    ServiceDescriptor { name: "t.Hops", methods: &[method("/t.Hops/Trace")] };

/// Answers with the context of the trace that its call belongs to, or with the next hop's answer.
#[derive(Clone)]
struct Hop(Option<LayeredChannel<Trace<Channel>>>);

impl Service for Hop {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &HOPS
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let next = self.0.clone();
        call.unary(async move |request: Request<()>| match next {
            Some(next) => unary(&next, &HOPS.methods[0], Request::new(())).await,
            None => {
                let context = request.metadata().get("traceparent").expect("the call is traced");
                Ok(Response::new(context.to_str().expect("it is text").to_owned()))
            }
        })
    }
}

#[tokio::test]
async fn calls_of_a_handler_that_may_block_belong_to_its_trace() {
    let last = Rig::at("tcp://127.0.0.1:0", |builder| builder.add_service(Hop(None))).await;
    let next = last.connect().await.layer(TraceLayer::new());
    let add = |builder: ServerBuilder| {
        builder.cores(1).layer(TraceLayer::new()).blocking(Hop(Some(next)))
    };
    let rig = Rig::at("tcp://127.0.0.1:0", add).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let mut request = Request::new(());
    let context = format!("00-{trace}-b7ad6b7169203331-01").parse().expect("it is ASCII");
    request.metadata_mut().insert("traceparent", context);
    let channel = rig.connect().await;
    let called = unary::<(), String>(&channel, &HOPS.methods[0], request);
    let context = tokio::time::timeout(LIMIT, called).await.expect("it is answered").unwrap();
    assert!(context.get_ref().contains(trace), "{context:?}");
    rig.end().await.unwrap();
    last.end().await.unwrap();
}

#[tokio::test]
async fn without_cores_a_service_that_may_block_is_as_others() {
    let rig = Rig::new(0).await;
    let channel = rig.connect().await;
    assert_eq!(call(&channel, &BLOCKING, 0).await.unwrap(), place_of(&channel).await);
    rig.end().await.unwrap();
}

#[tokio::test]
async fn calls_of_all_cores_count_towards_one_limit() {
    let rig =
        Rig::at("tcp://127.0.0.1:0", |builder| builder.cores(3).max_calls(2).max_calls_per_peer(2));
    let rig = rig.await;
    let channels = [rig.connect().await, rig.connect().await, rig.connect().await];
    let waiting = [begin(&channels[0], &SERVICE, 1), begin(&channels[1], &SERVICE, 1)];
    for _ in &waiting {
        rig.has_begun().await;
    }
    let refused = call(&channels[2], &SERVICE, 0).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    rig.handlers.answers.add_permits(2);
    for call in waiting {
        call.await.unwrap().unwrap();
    }
    assert_eq!(place_of(&channels[2]).await, "farcall-core-2");
    rig.end().await.unwrap();
}

#[tokio::test]
async fn connections_of_all_cores_count_towards_one_limit() {
    let rig = Rig::at("tcp://127.0.0.1:0", |builder| {
        builder.cores(3).max_connections(2).max_connections_per_peer(2)
    });
    let rig = rig.await;
    let [first, second] = [rig.connect().await, rig.connect().await];
    let address = rig.address.clone();
    let third = tokio::spawn(async move { Channel::connect(address).await });
    for _ in 0..100 {
        place_of(&first).await;
        assert!(rig.server.connections().len() <= 2 && !third.is_finished());
    }
    drop(second);
    let place = place_of(&third.await.unwrap().unwrap()).await;
    assert!(place.starts_with("farcall-core-"), "{place}");
    rig.end().await.unwrap();
}

#[tokio::test]
async fn peer_has_one_share_of_all_cores() {
    let set = |builder: ServerBuilder| builder.cores(3).max_connections_per_peer(2);
    let rig = Rig::at("tcp://127.0.0.1:0", set).await;
    let channels = [rig.connect().await, rig.connect().await];
    let refused = Channel::connect(&rig.address).await.unwrap_err();
    println!("{refused}");
    // A core lists a connection before its first call, and perhaps behind its client.
    for channel in &channels {
        place_of(channel).await;
    }
    assert_eq!(rig.server.connections().len(), 2);
    rig.end().await.unwrap();
}

#[tokio::test]
async fn drain_lets_calls_of_all_cores_finish() {
    let mut rig = Rig::new(3).await;
    let channels = [rig.connect().await, rig.connect().await, rig.connect().await];
    let waiting = [0, 1, 2].map(|core: usize| begin(&channels[core], &SERVICE, 1));
    for _ in &waiting {
        rig.has_begun().await;
    }
    drop(rig.shutdown.take());
    // Drained, a client looks for another connection, and there is none.
    for channel in &channels {
        while call(channel, &SERVICE, 0).await.is_ok() {}
    }
    rig.handlers.answers.add_permits(3);
    for (core, call) in waiting.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap(), format!("farcall-core-{core}"));
    }
    rig.end().await.unwrap();
}

#[tokio::test]
async fn calls_that_outlast_the_drain_end_on_all_cores() {
    let set = |builder: ServerBuilder| builder.cores(2).drain_timeout(Duration::ZERO);
    let rig = Rig::at("tcp://127.0.0.1:0", set).await;
    let channels = [rig.connect().await, rig.connect().await];
    let waiting = [0, 1].map(|core: usize| begin(&channels[core], &SERVICE, 1));
    for _ in &waiting {
        rig.has_begun().await;
    }
    rig.end().await.unwrap();
    for call in waiting {
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Unavailable);
    }
}

#[tokio::test]
async fn server_ends_although_a_handler_blocks_its_core() {
    let set = |builder: ServerBuilder| builder.cores(2).drain_timeout(Duration::ZERO);
    let rig = Rig::at("tcp://127.0.0.1:0", set).await;
    let channels = [rig.connect().await, rig.connect().await];
    let blocking = begin(&channels[0], &SERVICE, 2);
    rig.has_begun().await;
    let release = rig.release.clone();
    rig.end().await.unwrap();
    // The other core has ended its connection in time.
    let status = call(&channels[1], &SERVICE, 0).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    release.send(()).unwrap();
    // Its connection is still there, so that it may have an answer.
    println!("{:?}", blocking.await.unwrap());
}

#[tokio::test]
async fn server_that_is_dropped_closes_the_connections_of_its_cores() {
    let rig = Rig::new(2).await;
    let channels = [rig.connect().await, rig.connect().await];
    let waiting = [0, 1].map(|core: usize| begin(&channels[core], &SERVICE, 1));
    for _ in &waiting {
        rig.has_begun().await;
    }
    rig.serving.abort();
    for call in waiting {
        assert_eq!(call.await.unwrap().unwrap_err().code(), Code::Unavailable);
    }
}

/// A simulated device at the loopback address, for a server and for its clients.
fn devices() -> [Rdma; 2] {
    let network = SimNetwork::new(7);
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()))
}

async fn connect_rdma(rig: &Rig, rdma: &Rdma) -> Channel {
    let builder = Channel::builder(rig.address.as_str()).expect("an address");
    let channel = builder.rdma(rdma).connect().await.expect("the server accepts");
    let info = channel.endpoints().remove(0).info.expect("it is connected");
    assert_eq!((info.transport, info.is_upgraded), ("rdma", true));
    channel
}

/// The connections of each lane.
fn lane_counts(rdma: &Rdma) -> Vec<usize> {
    rdma.lanes().iter().map(|lane| lane.connection_count).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rdma_connections_are_on_a_lane_of_their_core() {
    let [server_rdma, client_rdma] = devices();
    let rig = Rig::at("auto://127.0.0.1:0", |builder| builder.cores(2).rdma(&server_rdma)).await;
    let (mut channels, mut counts) = (Vec::new(), HashMap::new());
    for _ in 0..4 {
        let channel = connect_rdma(&rig, &client_rdma).await;
        let place = place_of(&channel).await;
        assert_eq!(place_of(&channel).await, place);
        *counts.entry(place).or_insert(0) += 1;
        channels.push(channel);
    }
    let expected = [0, 1].map(|core| (format!("farcall-core-{core}"), 2));
    assert_eq!(counts, HashMap::from(expected));
    assert_eq!(lane_counts(&server_rdma), [2, 2]);
    assert_eq!(lane_counts(&client_rdma), [4], "the client has no cores");
    let place = call(&channels[0], &BLOCKING, 0).await.unwrap();
    assert!(place.starts_with("tokio-r"), "{place}");
    drop(channels);
    rig.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_that_blocks_stops_no_rdma_connection_of_another_core() {
    let [server_rdma, client_rdma] = devices();
    let rig = Rig::at("auto://127.0.0.1:0", |builder| builder.cores(2).rdma(&server_rdma)).await;
    let [blocked, other] =
        [connect_rdma(&rig, &client_rdma).await, connect_rdma(&rig, &client_rdma).await];
    let blocking = begin(&blocked, &SERVICE, 2);
    rig.has_begun().await;
    place_of(&other).await;
    rig.release.send(()).unwrap();
    blocking.await.unwrap().unwrap();
    rig.end().await.unwrap();
}

/// The device is open for as long as any server or channel uses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rdma_connections_outlive_the_cores_of_another_server() {
    let [server_rdma, client_rdma] = devices();
    let with_cores = |builder: ServerBuilder| builder.cores(2).rdma(&server_rdma);
    // The first connection opens the device and makes the first lane.
    let first = Rig::at("auto://127.0.0.1:0", with_cores).await;
    let ended = connect_rdma(&first, &client_rdma).await;
    place_of(&ended).await;
    let [second, third] = [
        Rig::at("auto://127.0.0.1:0", with_cores).await,
        Rig::at("auto://127.0.0.1:0", |builder| builder.rdma(&server_rdma)).await,
    ];
    let channels =
        [connect_rdma(&second, &client_rdma).await, connect_rdma(&third, &client_rdma).await];
    assert_eq!(lane_counts(&server_rdma), [1, 1, 1]);
    first.end().await.unwrap();
    for channel in &channels {
        place_of(channel).await;
        let info = channel.endpoints().remove(0).info.unwrap();
        assert_eq!((info.transport, info.is_upgraded), ("rdma", true));
        assert_eq!(channel.endpoints()[0].failovers, 0, "it is the same connection");
    }
    // The next one finds the lane of the core that is gone, and takes another.
    let next = connect_rdma(&second, &client_rdma).await;
    place_of(&next).await;
    drop((channels, next, ended));
    second.end().await.unwrap();
    third.end().await.unwrap();
}

#[test]
#[should_panic(expected = "cores is 1025: at most 1024, since each is a thread")]
fn cores_have_a_greatest_number() {
    let _ = Server::builder().cores(1025);
}
