//! A channel on `auto://` recovers from every passing reason for TCP, on simulated devices.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::layer::TraceLayer;
use farcall::rdma::{AsyncEventKind, CompletionError, DeviceEvent, WorkStatus};
use farcall::sim::{SimDevice, SimFaults, SimNetwork};
use farcall::{
    Backoff, CallKind, Channel, CloseReason, Idempotency, MayHaveExecuted, MethodDescriptor, Path,
    Rdma, RdmaConfig, Request, Response, Server, Service, ServiceDescriptor, Status,
};
use farcall_suite::OneServer as _;
use parking_lot::Mutex;
use rpc_transport_rdma::sim::SimDeviceConfig;
use tokio::task::JoinHandle;
use tracing_subscriber::fmt::format::FmtSpan;

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Recovery",
    methods: &[MethodDescriptor::new("/t.Recovery/Ask", CallKind::Unary, Idempotency::Unknown)],
};

struct Answering;

impl Service for Answering {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(async move |_: Request<()>| Ok(Response::new(7_u64)))
    }
}

async fn ask(channel: &Channel) -> Result<u64, Status> {
    let called = unary::<(), u64>(channel, &SERVICE.methods[0], Request::new(()));
    tokio::time::timeout(LIMIT, called).await.expect("no call hangs").map(Response::into_inner)
}

/// A network whose device serves both ends, each through a handle of its own.
struct Rig {
    network: SimNetwork,
    server_rdma: Rdma,
    client_rdma: Rdma,
}

impl Rig {
    fn new() -> (Self, SimDevice) {
        let network = SimNetwork::new(11);
        let device = network.add_device("sim0", &[HERE]);
        (Self::with(network, RdmaConfig::default(), RdmaConfig::default()), device)
    }

    fn with(network: SimNetwork, server: RdmaConfig, client: RdmaConfig) -> Self {
        let server_rdma = Rdma::simulated(&network, server);
        let client_rdma = Rdma::simulated(&network, client);
        Self { network, server_rdma, client_rdma }
    }

    async fn serve(&self, address: &str) -> (String, JoinHandle<()>) {
        let builder = Server::builder().rdma(&self.server_rdma).add_service(Answering);
        let listener = builder.bind(address).await.expect("a port of loopback");
        let address = listener.local_address().to_string();
        (address, tokio::spawn(async move { drop(listener.serve().await) }))
    }

    /// Sets one fault of the network, and no other.
    fn fault(&self, set: impl FnOnce(&mut SimFaults)) {
        let mut faults = SimFaults::default();
        set(&mut faults);
        self.network.set_faults(faults);
    }

    fn channel(&self, address: &str) -> Channel {
        let backoff = Backoff::PATH.with_initial_delay(Duration::from_millis(10));
        let builder = Channel::builder(address).expect("it is an address").rdma(&self.client_rdma);
        builder.path_backoff(backoff.with_max_delay(Duration::from_millis(100))).connect_lazy()
    }
}

/// Waits until calls take RDMA.
async fn recovers(channel: &Channel) {
    let recovering = async {
        while !channel.path().is_upgraded() {
            ask(channel).await.expect("calls go on meanwhile");
            tokio::task::yield_now().await;
        }
    };
    let recovered = tokio::time::timeout(LIMIT, recovering).await;
    assert!(recovered.is_ok(), "still {:?}", channel.path());
    assert_eq!(ask(channel).await.ok(), Some(7));
    let info = channel.info().expect("it is connected");
    assert_eq!((info.transport, info.wanted_upgrade, info.fallback), ("rdma", true, None));
}

/// Connects a channel, which falls back for a reason that has these words, and is to try again.
async fn falls_back(channel: &Channel, text: &str) {
    assert_eq!(ask(channel).await.ok(), Some(7));
    let Path::Fallback { transport: "tcp", reason, retry_in: Some(_) } = channel.path() else {
        panic!("{:?}", channel.path())
    };
    println!("{reason}");
    assert!(reason.contains(text), "{reason}");
    let info = channel.info().expect("it is connected");
    assert!(info.wanted_upgrade && info.fallback_can_pass, "{info:?}");
    assert!(info.fallback.is_some_and(|reason| reason.contains(text)));
}

/// A reason with these words that a step removes.
async fn passes<F: Future<Output = ()>>(rig: &Rig, text: &str, mend: impl FnOnce() -> F) {
    let (address, serving) = rig.serve("auto://127.0.0.1:0").await;
    let channel = rig.channel(&address);
    falls_back(&channel, text).await;
    mend().await;
    recovers(&channel).await;
    assert_eq!(rig.network.violations(), []);
    serving.abort();
}

#[tokio::test]
async fn a_port_that_comes_up_is_used() {
    let (rig, device) = Rig::new();
    device.link_down();
    passes(&rig, "not active", || async { device.link_up() }).await;
}

#[tokio::test]
async fn a_device_that_comes_is_used() {
    let network = SimNetwork::new(11);
    let rig = Rig::with(network, RdmaConfig::default(), RdmaConfig::default());
    let mend = || async { drop(rig.network.add_device("sim0", &[HERE])) };
    passes(&rig, "there is no RDMA device", mend).await;
}

#[tokio::test]
async fn a_lane_that_gets_room_is_used() {
    /// The most lanes of a device.
    const LANES: usize = 64;
    for is_server_full in [true, false] {
        let network = SimNetwork::new(11);
        drop(network.add_device("sim0", &[HERE]));
        let (full, other) = (
            RdmaConfig::default().with_max_connections(1).with_receive_slots(16),
            RdmaConfig::default(),
        );
        let rig = match is_server_full {
            true => Rig::with(network, full, other),
            false => Rig::with(network, other, full),
        };
        let (address, serving) = rig.serve("auto://127.0.0.1:0").await;
        let mut channels: Vec<_> = (0..LANES).map(|_| rig.channel(&address)).collect();
        for channel in &channels {
            recovers(channel).await;
        }
        let rdma = if is_server_full { &rig.server_rdma } else { &rig.client_rdma };
        assert_eq!(rdma.lanes().len(), LANES);
        let one_more = rig.channel(&address);
        falls_back(&one_more, "lane is full").await;
        channels.truncate(LANES / 2);
        recovers(&one_more).await;
        serving.abort();
    }
}

#[tokio::test]
async fn a_pool_that_gets_memory_is_used() {
    let (rig, _device) = Rig::new();
    // Without a limit on locked memory it is the machine that has none for now.
    rig.fault(|faults| faults.refused_registration = 1.0);
    let mend = || async { rig.network.set_faults(SimFaults::default()) };
    passes(&rig, "memory", mend).await;
}

#[tokio::test]
async fn a_device_that_is_no_longer_busy_is_used() {
    let (rig, _device) = Rig::new();
    rig.fault(|faults| faults.busy_device = 1.0);
    let mend = || async { rig.network.set_faults(SimFaults::default()) };
    passes(&rig, "busy", mend).await;
}

#[tokio::test]
async fn a_limit_on_locked_memory_is_not_tried_again() {
    let (rig, _device) = Rig::new();
    rig.fault(|faults| faults.memory_lock_bytes = Some(1 << 12));
    let (address, serving) = rig.serve("auto://127.0.0.1:0").await;
    let channel = rig.channel(&address);
    assert_eq!(ask(&channel).await.ok(), Some(7));
    let path = channel.path();
    assert!(path.reason().is_some_and(|it| it.ends_with("not tried again on this connection")));
    assert_eq!(path.retry_in(), None, "{path:?}");
    serving.abort();
}

#[tokio::test]
async fn a_device_that_has_queue_pairs_again_is_used() {
    let mut config = SimDeviceConfig::new("sim0", &[HERE]);
    // Both ends of one connection, with a queue for READs each.
    config.attributes.queue_pairs_max = 4;
    let network = SimNetwork::new(11);
    drop(network.add_device_with(config));
    let client = RdmaConfig::default().with_read_queue_pairs(1);
    let rig = Rig::with(network, client.clone(), client);
    let (address, serving) = rig.serve("auto://127.0.0.1:0").await;
    let first = rig.channel(&address);
    recovers(&first).await;
    let second = rig.channel(&address);
    falls_back(&second, "queue pair").await;
    drop(first);
    recovers(&second).await;
    serving.abort();
}

#[tokio::test]
async fn a_server_restarted_before_its_link_was_up_is_used_by_rdma() {
    let (rig, device) = Rig::new();
    let (address, serving) = rig.serve("auto://127.0.0.1:0").await;
    let channel = rig.channel(&address);
    recovers(&channel).await;
    serving.abort();
    let _ = serving.await;
    device.link_down();
    let (_, serving) = rig.serve(&address).await;
    let served = async {
        while ask(&channel).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, served).await.expect("calls take TCP");
    assert_eq!(channel.path().transport(), Some("tcp"));
    let info = channel.info().expect("it is connected");
    assert!(info.wanted_upgrade && info.fallback.is_some(), "{info:?}");
    device.link_up();
    recovers(&channel).await;
    serving.abort();
}

#[tokio::test]
async fn a_server_without_rdma_is_not_asked_again() {
    let (rig, _device) = Rig::new();
    let (address, serving) = rig.serve("tcp://127.0.0.1:0").await;
    let channel = rig.channel(&address.replacen("tcp://", "auto://", 1));
    assert_eq!(ask(&channel).await.ok(), Some(7));
    let expected = "rdma: the server: not offered at the address where it listens; \
                    not tried again on this connection";
    let path = channel.path();
    assert_eq!((path.reason(), path.retry_in()), (Some(expected), None), "{path:?}");
    let info = channel.info().expect("it is connected");
    assert!(info.wanted_upgrade && !info.fallback_can_pass, "{info:?}");
    serving.abort();
}

#[tokio::test]
async fn reads_that_are_not_trusted_are_not_tried_again() {
    let network = SimNetwork::new(11);
    let mut config = SimDeviceConfig::new("sim0", &[HERE]);
    config.read_defect = Some("they end short".to_owned());
    drop(network.add_device_with(config));
    let rig = Rig::with(network, RdmaConfig::default(), RdmaConfig::default());
    let (address, serving) = rig.serve("auto://127.0.0.1:0").await;
    let channel = rig.channel(&address);
    assert_eq!(ask(&channel).await.ok(), Some(7));
    let path = channel.path();
    assert!(path.reason().is_some_and(|it| it.ends_with("not tried again on this connection")));
    assert_eq!(path.retry_in(), None);
    serving.abort();
}

#[tokio::test]
async fn a_server_knows_why_a_client_is_on_tcp() {
    let (rig, device) = Rig::new();
    let network = SimNetwork::new(12);
    let without = Rdma::simulated(&network, RdmaConfig::default());
    let builder = Server::builder().rdma(&rig.server_rdma).add_service(Answering);
    let listener = builder.bind("auto://127.0.0.1:0").await.expect("loopback has it");
    let (address, server) = (listener.local_address().to_string(), listener.server().clone());
    let serving = tokio::spawn(async move { drop(listener.serve().await) });
    let channel = Channel::builder(address.as_str()).expect("an address").rdma(&without);
    let channel = channel.connect_lazy();
    assert_eq!(ask(&channel).await.ok(), Some(7));
    let infos = server.connections();
    let [info] = &infos[..] else { panic!("{infos:?}") };
    let expected = "the client says: rdma: there is no RDMA device";
    assert_eq!((info.wanted_upgrade, info.fallback.as_deref()), (true, Some(expected)));
    let direct = Channel::builder(address.replacen("auto", "tcp", 1).as_str()).expect("valid");
    let direct = direct.connect_lazy();
    assert_eq!(ask(&direct).await.ok(), Some(7));
    let wanted: Vec<_> = server.connections().iter().map(|it| it.wanted_upgrade).collect();
    assert_eq!(wanted.iter().filter(|it| **it).count(), 1, "{wanted:?}");
    drop(device);
    serving.abort();
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn spans_and_lines_of_calls_have_the_transport() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let (rig, _device) = Rig::new();
    let builder = Server::builder().rdma(&rig.server_rdma).access_log(true);
    let builder = builder.layer(TraceLayer::new()).add_service(Answering);
    let listener = builder.bind("auto://127.0.0.1:0").await.expect("loopback has it");
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(async move { drop(listener.serve().await) });
    for scheme in ["auto", "tcp"] {
        let channel = rig.channel(&address.replacen("auto", scheme, 1));
        let layered = channel.layer(TraceLayer::new());
        let method = &SERVICE.methods[0];
        let called = unary::<(), u64>(&layered, method, Request::new(()));
        tokio::time::timeout(LIMIT, called).await.expect("in time").expect("an answer");
    }
    let text = String::from_utf8(lines.0.lock().clone()).expect("it is text");
    for transport in ["rdma", "tcp"] {
        let field = format!("transport={transport}");
        let count = |what: &str| {
            text.lines().filter(|line| line.contains(what) && line.contains(&field)).count()
        };
        // A span on either side, and the server's line.
        assert_eq!((count("close"), count("farcall::access")), (2, 1), "{text}");
    }
    serving.abort();
}

#[tokio::test]
async fn the_status_of_an_endpoint_has_its_path() {
    let (rig, _device) = Rig::new();
    let (one, serving) = rig.serve("auto://127.0.0.1:0").await;
    let (other, serving_other) = rig.serve("auto://127.0.0.1:0").await;
    let dead = "auto://127.0.0.1:1";
    let channel = rig.channel(&format!("{one},{other},{dead}"));
    assert_eq!(ask(&channel).await.ok(), Some(7));
    let described = async {
        loop {
            let paths: Vec<_> = channel.endpoints().into_iter().map(|it| it.path).collect();
            let is_dead = matches!(&paths[2], Path::Disconnected { reason: Some(_), .. });
            if paths[0].is_upgraded() && paths[1].is_upgraded() && is_dead {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, described).await.expect("each has its path");
    serving.abort();
    serving_other.abort();
}

/// An error and all its sources.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[tokio::test]
async fn status_of_a_dead_link_has_the_device_error() {
    let (rig, device) = Rig::new();
    let (address, serving) = rig.serve("rdma://127.0.0.1:0").await;
    let channel = rig.channel(&address);
    assert_eq!(ask(&channel).await.ok(), Some(7));
    device.link_down();
    let status = ask(&channel).await.expect_err("the link is down");
    assert!(MayHaveExecuted::matches(&status), "{status:?}");
    let reason = CloseReason::of(&status).expect("the connection has ended");
    assert!(reason.is_failure(), "{reason}");
    // The event of the port comes first, unless the device has given up the request before.
    let is_of_device = |error: &(dyn Error + 'static)| {
        let (event, failed) = (error.downcast_ref(), error.downcast_ref());
        event.is_some_and(|event: &DeviceEvent| event.kind == AsyncEventKind::PortError)
            || failed.is_some_and(|it: &CompletionError| it.status == WorkStatus::RetryExceeded)
    };
    assert!(chain(&status).any(is_of_device), "{status:?}");
    serving.abort();
}
