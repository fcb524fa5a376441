//! The cost of one slow peer to the others of a device, for everything that all its connections
//! share: bytes of READs, memory that is read into, memory that is sent from. The others keep at
//! least half of their rate, and in the end everything is returned.
//!
//! The network is simulated, and the clock stands still while anything can run. So a rate follows
//! from the protocol and the network, whatever the machine does.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use farcall::sim::{SimDevice, SimNetwork};
use farcall::{Channel, RdmaConfig, Server, Status};
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{EchoRequest, ProduceRequest};
use farcall_suite::{Probe, payload};
use futures::StreamExt;
use futures::stream;
use rpc_core::client::ClientConfig;
use rpc_core::connect::{Candidate, Declined, PendingOffer, Upgrade, UpgradePolicy};
use rpc_core::inproc::{InprocConnector, InprocListener};
use rpc_core::transport::Addresses;
use rpc_transport_rdma::{LaneInfo, RdmaUpgrade};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// The bound on a test, in the simulation's time.
const LIMIT: Duration = Duration::from_secs(600);

/// Everything is a sixteenth of what it is by default, so that a run is short.
const SCALE: u32 = 16;

/// The length of a large message: the default limit, scaled.
const LEN: usize = (4 << 20) / SCALE as usize;

/// Large calls of one measurement, and how many of them at a time.
const CALLS: u64 = 96;
const AT_A_TIME: usize = 4;

/// Connections of the slow peer, and calls of each at a time.
const SLOW_CONNECTIONS: usize = 3;
const SLOW_AT_A_TIME: u64 = 32;

/// Delay of the slow peer's answers to READs: twenty round trips of a clock that counts
/// milliseconds, and less than the time after which a queue pair retransmits.
const READ_DELAY: Duration = Duration::from_millis(40);

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const HONEST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SLOW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

/// RDMA beside a byte stream inside the process, as if that were between two hosts.
#[derive(Debug)]
struct Between {
    upgrade: Arc<RdmaUpgrade>,
    local: Ipv4Addr,
    peer: Ipv4Addr,
}

impl Between {
    fn addresses(&self) -> Addresses {
        let at = |address| Some((IpAddr::V4(address), 1).into());
        Addresses { local: at(self.local), peer: at(self.peer), ..Addresses::default() }
    }
}

impl Upgrade for Between {
    fn name(&self) -> &'static str {
        self.upgrade.name()
    }

    fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
        self.upgrade.offer(&self.addresses())
    }

    fn accept(&self, _: &Addresses, o: &[u8]) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
        self.upgrade.accept(&self.addresses(), o)
    }
}

/// A server with one device, and two hosts that call it.
struct Rig {
    slow_device: SimDevice,
    server: Arc<RdmaUpgrade>,
    honest: Arc<RdmaUpgrade>,
    slow: Arc<RdmaUpgrade>,
    _serving: [AbortOnDropHandle<()>; 2],
}

fn config() -> RdmaConfig {
    let mut config = RdmaConfig::default();
    config.max_read_len /= SCALE;
    config.max_read_bytes /= SCALE;
    config.spin = Duration::ZERO;
    config
}

fn serve(name: &str, upgrade: &Arc<RdmaUpgrade>, peer: Ipv4Addr) -> AbortOnDropHandle<()> {
    let between = Between { upgrade: Arc::clone(upgrade), local: SERVER, peer };
    let builder = Server::builder().upgrade(Arc::new(between));
    let server = builder.add_service(ProbeService::new(Probe::new().0)).build();
    let listener = InprocListener::bind(name.to_owned()).unwrap();
    AbortOnDropHandle::new(tokio::spawn(
        async move { server.serve_incoming(listener).await.unwrap() },
    ))
}

impl Rig {
    /// `name` tells tests of one process apart.
    fn new(name: &str, server: RdmaConfig, slow: RdmaConfig) -> Self {
        let network = SimNetwork::new(1);
        network.panic_on_violation();
        let on = |device: &str, address: Ipv4Addr, config| {
            let device = network.add_device(device, &[address.into()]);
            let provider = Box::new(network.provider());
            (device, Arc::new(RdmaUpgrade::with_provider(provider, config)))
        };
        let (_, server) = on("server", SERVER, server);
        let (_, honest) = on("honest", HONEST, config());
        let (slow_device, slow) = on("slow", SLOW, slow);
        let names = [format!("{name}-honest"), format!("{name}-slow")];
        let _serving = [serve(&names[0], &server, HONEST), serve(&names[1], &server, SLOW)];
        Self { slow_device, server, honest, slow, _serving }
    }

    async fn connect(&self, name: &str) -> ProbeStub<Channel> {
        let (upgrade, local) = match name.ends_with("-slow") {
            true => (&self.slow, SLOW),
            false => (&self.honest, HONEST),
        };
        let between = Between { upgrade: Arc::clone(upgrade), local, peer: SERVER };
        let policy = UpgradePolicy::Require(Arc::new(between));
        let config = ClientConfig { policy, ..ClientConfig::default() };
        let channel = rpc_core::Channel::connect(InprocConnector::new(name, config)).await;
        ProbeStub::new(channel.unwrap().into())
    }

    fn lane(&self) -> LaneInfo {
        self.server.lanes().remove(0)
    }

    /// Waits until no device has anything of any connection.
    async fn until_initial(&self) {
        let is_initial = |lane: &LaneInfo| {
            lane.connection_count == 0
                && lane.promised_slots == 0
                && lane.claimed_entries == lane.receive_slots
                && lane.send_slots_in_use == 0
                && lane.read_bytes_in_use == 0
                && lane.source_bytes_in_use == 0
                && lane.sink_bytes_in_use == 0
                && lane.leases_held == 0
        };
        let all = [&self.server, &self.honest, &self.slow];
        while !all.iter().all(|upgrade| upgrade.lanes().iter().all(is_initial)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A large call of either direction.
type Call = fn(ProbeStub<Channel>) -> futures::future::BoxFuture<'static, Result<(), Status>>;

fn upload(stub: ProbeStub<Channel>) -> futures::future::BoxFuture<'static, Result<(), Status>> {
    let request = EchoRequest { payload: payload(1, LEN), ..Default::default() };
    Box::pin(async move { stub.digest(request).await.map(drop) })
}

fn download(stub: ProbeStub<Channel>) -> futures::future::BoxFuture<'static, Result<(), Status>> {
    let request = ProduceRequest { seed: 1, len: LEN as u64 };
    Box::pin(async move { stub.produce(request).await.map(drop) })
}

/// Returns the time that the calls take together.
async fn measure(stub: &ProbeStub<Channel>, call: Call) -> Duration {
    let before = Instant::now();
    let calls = stream::iter((0..CALLS).map(|_| call(stub.clone())));
    calls.buffer_unordered(AT_A_TIME).for_each(async |result| result.unwrap()).await;
    before.elapsed()
}

/// Measures the honest peer's calls alone, and beside what `burden` has the slow peer do.
async fn compare<T>(
    (name, rig): (&str, Rig),
    call: Call,
    burden: impl AsyncFnOnce(&Rig, Vec<ProbeStub<Channel>>) -> T,
) {
    let honest = rig.connect(&format!("{name}-honest")).await;
    // Memory is registered for the first time.
    measure(&honest, call).await;
    let alone = measure(&honest, call).await;
    let mut slow = Vec::new();
    for _ in 0..SLOW_CONNECTIONS {
        slow.push(rig.connect(&format!("{name}-slow")).await);
    }
    let burden = burden(&rig, slow).await;
    let before = rig.lane();
    let beside = measure(&honest, call).await;
    println!(
        "{name}: {CALLS} calls alone {alone:?}, beside a slow peer {beside:?}; held by it before: \
         {} bytes of READs, {} of sinks, {} of sources",
        before.read_bytes_in_use, before.sink_bytes_in_use, before.source_bytes_in_use,
    );
    assert!(beside <= 2 * alone, "{name}: {beside:?} beside a slow peer, {alone:?} alone");
    drop((burden, honest));
    rig.slow_device.delay_reads(Duration::ZERO);
    rig.until_initial().await;
}

/// Runs calls on all connections of the slow peer, and others in the place of those that end.
fn occupy(stubs: Vec<ProbeStub<Channel>>, call: Call) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for stub in stubs {
        for _ in 0..SLOW_AT_A_TIME {
            let stub = stub.clone();
            tasks.spawn(async move { while call(stub.clone()).await.is_ok() {} });
        }
    }
    tasks
}

/// Long enough for everything that the slow peer can get hold of.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

async fn bounded(test: impl Future<Output = ()>) {
    tokio::time::timeout(LIMIT, test).await.expect("the test ends in time");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_leaves_read_bytes_to_others() {
    let rig = Rig::new("reads", config(), config());
    let test = compare(("reads", rig), upload, async |rig, stubs| {
        rig.slow_device.delay_reads(READ_DELAY);
        let calls = occupy(stubs, upload);
        tokio::time::sleep(SETTLED_AFTER).await;
        calls
    });
    bounded(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_leaves_read_memory_to_others() {
    let mut server = config();
    // Memory is short, and bytes of READs are not.
    server.max_sink_bytes = 8 << 20;
    server.max_read_bytes = 64 << 20;
    let rig = Rig::new("sinks", server, config());
    let test = compare(("sinks", rig), upload, async |rig, stubs| {
        rig.slow_device.delay_reads(READ_DELAY);
        let calls = occupy(stubs, upload);
        tokio::time::sleep(SETTLED_AFTER).await;
        calls
    });
    bounded(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_releases_leaves_send_memory_to_others() {
    let mut server = config();
    server.max_source_bytes = 8 << 20;
    // It keeps what it was given, so that it has no memory for what it is offered after that.
    let mut slow = config();
    slow.max_sink_bytes = 1 << 19;
    let rig = Rig::new("sources", server, slow);
    let test = compare(("sources", rig), download, async |_, stubs| {
        let request = ProduceRequest { seed: 1, len: LEN as u64 };
        let kept = stubs[0].produce(request).await.unwrap();
        let calls = occupy(stubs, download);
        tokio::time::sleep(SETTLED_AFTER).await;
        (calls, kept)
    });
    bounded(test).await;
}
