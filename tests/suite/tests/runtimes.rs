//! A channel outlives the runtime that its connection was made on, whatever its address.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use farcall::balance::Endpoint;
use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::resolve::{Dns, DnsName, Refresh, Resolve, ResolveError, Scheme};
use farcall::sim::SimNetwork;
use farcall::{
    CallKind, Channel, Code, Idempotency, Listener, MethodDescriptor, Rdma, RdmaConfig, Request,
    Response, Server, Service, ServiceDescriptor, Status,
};
use farcall_suite::OneServer as _;
use farcall_testkit::name_server::{Zone, address};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

static SERVICE: ServiceDescriptor =
    ServiceDescriptor { name: "t.Runtimes", methods: &[method("/t.Runtimes/Ask"), method(WAIT)] };

const WAIT: &str = "/t.Runtimes/Wait";

const fn method(path: &'static str) -> MethodDescriptor {
    MethodDescriptor::new(path, CallKind::Unary, Idempotency::Unknown)
}

/// Answers `Ask`, and reports each `Wait`, which it never answers.
struct Waiting(mpsc::Sender<()>);

impl Service for Waiting {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let reached = self.0.clone();
        call.unary(async move |_: Request<()>| {
            if SERVICE.methods[method].path == WAIT {
                let _ = reached.send(());
                std::future::pending::<()>().await;
            }
            Ok(Response::new(7_u64))
        })
    }
}

/// Servers on a runtime of their own, and a channel to them.
struct Rig {
    channel: Channel,
    reached: mpsc::Receiver<()>,
    /// Ends last.
    servers: Runtime,
}

/// The addresses that a channel can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Tcp,
    Unix,
    Inproc,
    AutoOverRdma,
    AutoOverTcp,
    Rdma,
    Grpc,
    List,
    RdmaList,
    Dns,
}

const WAYS: [Way; 10] = [
    Way::Tcp,
    Way::Unix,
    Way::Inproc,
    Way::AutoOverRdma,
    Way::AutoOverTcp,
    Way::Rdma,
    Way::Grpc,
    Way::List,
    Way::RdmaList,
    Way::Dns,
];

impl Way {
    fn listens_at(self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("runtimes-{}-{number}", std::process::id());
        match self {
            Self::Tcp | Self::Grpc | Self::List | Self::Dns => "tcp://127.0.0.1:0".to_owned(),
            Self::AutoOverRdma | Self::AutoOverTcp => "auto://127.0.0.1:0".to_owned(),
            Self::Rdma | Self::RdmaList => "rdma://127.0.0.1:0".to_owned(),
            Self::Unix => format!("unix://@{name}"),
            Self::Inproc => format!("inproc://{name}"),
        }
    }

    fn server_count(self) -> usize {
        if matches!(self, Self::List | Self::RdmaList) { 2 } else { 1 }
    }

    /// Starts servers and makes a channel that has not connected yet.
    fn rig(self) -> Rig {
        let mut servers = Builder::new_multi_thread();
        let servers = servers.worker_threads(1).enable_all().build().expect("threads");
        let network = SimNetwork::new(7);
        if self != Self::AutoOverTcp {
            network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
        }
        let [server_rdma, channel_rdma] =
            [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()));
        let (report, reached) = mpsc::channel();
        let mut addresses = Vec::new();
        for _ in 0..self.server_count() {
            let service = Waiting(report.clone());
            let builder = Server::builder().rdma(&server_rdma).add_service(service);
            let listener: Listener =
                servers.block_on(builder.bind(self.listens_at())).expect("an address is free");
            addresses.push(listener.local_address().to_string());
            servers.spawn(listener.serve());
        }
        let address = addresses.join(",");
        let address = match self {
            Self::Grpc => address.replace("tcp://", "grpc://"),
            _ => address,
        };
        let builder =
            Channel::builder(address.as_str()).expect("it is an address").rdma(&channel_rdma);
        let channel = match self {
            Self::Dns => builder.connect_with_resolver(servers.block_on(dns(&address))),
            _ => builder.connect_lazy(),
        };
        Rig { channel, reached, servers }
    }
}

/// A name for the server at `address`.
async fn dns(of: &str) -> Dns {
    let port = of.rsplit(':').next().and_then(|port| port.parse().ok());
    let zone = Zone::default();
    zone.set(vec![address("shop.test.", Ipv4Addr::LOCALHOST, 60).expect("it is a record")]);
    let resolver = zone.serve().await.expect("a port is free");
    Dns::with_resolver(resolver, DnsName::new("shop.test.", port, Scheme::Tcp))
}

/// Returns a runtime like that of `#[tokio::test]`.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("threads")
}

async fn call(channel: &Channel, method: usize) -> Result<u64, Status> {
    let method = &SERVICE.methods[method];
    let called = unary::<(), u64>(channel, method, Request::new(()));
    match tokio::time::timeout(LIMIT, called).await {
        Ok(reply) => reply.map(Response::into_inner),
        Err(_) => panic!("{} hangs", method.path),
    }
}

async fn ask(channel: &Channel) -> Result<u64, Status> {
    call(channel, 0).await
}

/// Runs the test for each way in a thread of its own, and names those that fail.
fn for_each(test: fn(Rig)) {
    let running = WAYS.map(|way| (way, thread::spawn(move || test(way.rig()))));
    let ended = running.map(|(way, thread)| (way, thread.join().is_ok()));
    let failed: Vec<_> = ended.iter().filter(|(_, is_ok)| !is_ok).map(|(way, _)| way).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn each_of_many_runtimes_reconnects() {
    for_each(|rig| {
        // More than the young connections that are replaced without a pause.
        for number in 0..15 {
            let answer = runtime().block_on(ask(&rig.channel));
            assert_eq!(answer.ok(), Some(7), "runtime {number}");
        }
    });
}

#[test]
fn calls_in_flight_end_with_their_connections_runtime() {
    for_each(|rig| {
        let (first, second) = (runtime(), runtime());
        let (channel, leaves) = (rig.channel.clone(), Arc::new(Notify::new()));
        let (connected, is_connected) = mpsc::channel();
        let leave = Arc::clone(&leaves);
        let connecting = thread::spawn(move || {
            first.block_on(async {
                ask(&channel).await.unwrap();
                connected.send(()).unwrap();
                leave.notified().await;
            });
        });
        is_connected.recv_timeout(LIMIT).unwrap();
        let (channel, reached) = (rig.channel.clone(), rig.reached);
        let calling = thread::spawn(move || {
            let status = second.block_on(call(&channel, 1)).unwrap_err();
            println!("{status:?}");
            (status, second.block_on(ask(&channel)))
        });
        reached.recv_timeout(LIMIT).unwrap();
        leaves.notify_one();
        connecting.join().unwrap();
        let (status, next) = calling.join().unwrap();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(farcall::MayHaveExecuted::matches(&status), "{status}");
        assert_eq!(next.ok(), Some(7));
    });
}

#[test]
fn threads_with_runtimes_of_their_own_share_a_channel() {
    for_each(|rig| {
        let calling = [5, 10, 15, 20].map(|count| {
            let channel = rig.channel.clone();
            thread::spawn(move || {
                // Each thread leaves at another time, and takes what it connected with it.
                let (runtime, mut answered) = (runtime(), 0);
                while answered < count {
                    match runtime.block_on(ask(&channel)) {
                        Ok(_) => answered += 1,
                        Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
                    }
                }
            })
        });
        assert!(calling.into_iter().all(|thread| thread.join().is_ok()));
        assert_eq!(runtime().block_on(ask(&rig.channel)).ok(), Some(7));
    });
}

/// A server that accepts connections and says nothing.
struct Mute {
    listener: std::net::TcpListener,
}

impl Mute {
    fn new() -> (Self, String) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("tcp://{}", listener.local_addr().expect("it is bound"));
        (Self { listener }, address)
    }
}

#[test]
fn a_runtime_that_ends_while_connecting_hands_over() {
    for is_list in [false, true] {
        let (mute, address) = Mute::new();
        let addresses = if is_list { format!("{address},{address}") } else { address.clone() };
        let builder = Channel::builder(addresses.as_str()).unwrap();
        let channel = builder.connect_lazy();
        let (first, second) = (runtime(), runtime());
        let leaves = Arc::new(Notify::new());
        let (leave, first_channel) = (Arc::clone(&leaves), channel.clone());
        let connecting = thread::spawn(move || {
            first.block_on(async {
                tokio::select! {
                    answer = ask(&first_channel) => panic!("{answer:?}"),
                    () = leave.notified() => {}
                }
            });
        });
        let half_open = mute.listener.accept().unwrap();
        let calling = thread::spawn(move || second.block_on(ask(&channel)));
        leaves.notify_one();
        connecting.join().unwrap();
        // The second runtime makes an attempt of its own, which is refused.
        let second_attempt = mute.listener.accept().unwrap();
        drop((half_open, second_attempt, mute));
        let status = calling.join().unwrap().unwrap_err();
        println!("{status:?}");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
}

/// A resolver whose first lookup never ends.
struct Slow {
    address: String,
    lookups: Arc<Mutex<u32>>,
    is_asked: Arc<Notify>,
}

impl Resolve for Slow {
    fn name(&self) -> String {
        "slow".to_owned()
    }

    fn next<'a>(
        &'a mut self,
        _: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        let number = {
            let mut lookups = self.lookups.lock();
            *lookups += 1;
            *lookups
        };
        self.is_asked.notify_one();
        async move {
            if number != 2 {
                std::future::pending::<()>().await;
            }
            Ok(vec![Endpoint::new(self.address.as_str())])
        }
        .boxed()
    }
}

#[test]
fn a_runtime_that_ends_while_resolving_hands_over() {
    let rig = Way::Tcp.rig();
    let first = runtime();
    first.block_on(ask(&rig.channel)).unwrap();
    let address = first.block_on(async { rig.channel.info().unwrap().addresses.peer.unwrap() });
    let is_asked = Arc::new(Notify::new());
    let resolver = Slow {
        address: format!("tcp://{address}"),
        lookups: Arc::default(),
        is_asked: Arc::clone(&is_asked),
    };
    let builder = Channel::builder("tcp://127.0.0.1:1").unwrap();
    let channel = builder.connect_with_resolver(resolver);
    first.block_on(async {
        tokio::select! {
            answer = ask(&channel) => panic!("{answer:?}"),
            () = is_asked.notified() => {}
        }
    });
    drop(first);
    assert_eq!(runtime().block_on(ask(&channel)).ok(), Some(7));
}

/// A channel of the whole program, and the runtime of its server.
static SHARED: OnceLock<(Runtime, Channel)> = OnceLock::new();

fn shared() -> Channel {
    let (_, channel) = SHARED.get_or_init(|| {
        // In a thread without a runtime.
        let rig = thread::spawn(|| Way::Tcp.rig()).join().expect("it starts");
        (rig.servers, rig.channel)
    });
    channel.clone()
}

#[tokio::test]
async fn one_test_uses_a_static_channel() {
    assert_eq!(ask(&shared()).await.ok(), Some(7));
}

#[tokio::test]
async fn another_test_uses_the_same_static_channel() {
    assert_eq!(ask(&shared()).await.ok(), Some(7));
}
