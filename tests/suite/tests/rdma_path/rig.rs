//! Servers and clients over RDMA, and waits that end.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use farcall::rdma::LaneInfo;
use farcall::{
    Channel, ChannelBuilder, ConnectionInfo, Limits, Rdma, RdmaConfig, ServeError, Server,
    ServerBuilder,
};
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::proto::{EchoRequest, ParkRequest, ProduceRequest};
use farcall_suite::{Failure, Probe, Watch, payload};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::device::{Counts, Device};

/// The bound on every wait. The devices may be emulated on emulated processors.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at a condition that nothing announces.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Permits for every handler that a test may ever park.
const OPEN_GATE: usize = 1 << 20;

/// Time for the devices of earlier tests to be closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// The setting of the tests.
#[derive(Debug, Clone)]
pub(crate) struct Rig {
    /// The address that servers listen on.
    pub(crate) host: String,
    /// The device that has it.
    pub(crate) server_device: Device,
    /// The device of connections to it.
    pub(crate) client_device: Device,
}

impl Rig {
    /// Finds the devices.
    ///
    /// # Errors
    ///
    /// In words, when they are not there.
    pub(crate) fn find() -> Result<Self, String> {
        let host = std::env::var("FARCALL_RDMA_SERVER").unwrap_or_else(|_| "10.0.1.1".to_owned());
        let address: IpAddr = host.parse().map_err(|_| format!("`{host}` is not an address"))?;
        // What a client's end is called says where it is.
        let listener = std::net::TcpListener::bind((address, 0)).map_err(|e| e.to_string())?;
        let target = listener.local_addr().map_err(|e| e.to_string())?;
        let client = std::net::TcpStream::connect(target).map_err(|e| e.to_string())?;
        let client = client.local_addr().map_err(|e| e.to_string())?.ip();
        let (server_device, client_device) = (Device::of(address)?, Device::of(client)?);
        Ok(Self { host, server_device, client_device })
    }

    /// Runs a test on a runtime of its own.
    pub(crate) fn run<T>(&self, test: impl Future<Output = T>) -> T {
        let runtime = runtime();
        let result = runtime.block_on(test);
        runtime.shutdown_timeout(LIMIT);
        result
    }

    /// Starts a server in this process.
    pub(crate) async fn serve(&self, rdma: RdmaConfig) -> Result<Serving, Failure> {
        Serving::start(&format!("auto://{}:0", self.host), rdma).await
    }

    /// The counters of both devices together.
    pub(crate) fn counts(&self) -> Counts {
        match self.server_device == self.client_device {
            true => self.server_device.counts(),
            false => self.server_device.counts() + self.client_device.counts(),
        }
    }

    /// Returns the numbers of shared receive queues: of the server's device, and of the clients'.
    pub(crate) fn receive_queue_counts(&self) -> (usize, usize) {
        let client = self.client_device.shared_receive_queue_count();
        (self.server_device.shared_receive_queue_count(), client)
    }

    /// The same before a test. The queues of tests before it go first: devices are closed in the
    /// background. On a host, other programs may have some that stay.
    pub(crate) fn receive_queue_counts_before(&self) -> (usize, usize) {
        let deadline = Instant::now() + CLOSE_LIMIT;
        loop {
            let counts = self.receive_queue_counts();
            if counts == (0, 0) || Instant::now() >= deadline {
                return counts;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Returns the numbers of reliable connections: of the server's device, and of the clients'.
    pub(crate) fn queue_pair_counts(&self) -> (usize, usize) {
        (self.server_device.queue_pair_count(), self.client_device.queue_pair_count())
    }
}

/// A runtime of two threads.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("the system has threads")
}

/// A server in this process.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Its host and port.
    pub(crate) authority: String,
    pub(crate) server: Server,
    _watch: Watch,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Serving {
    pub(crate) async fn start(address: &str, rdma: RdmaConfig) -> Result<Self, Failure> {
        Self::start_with(address, Server::builder().rdma(&devices(rdma))).await
    }

    pub(crate) async fn start_with(address: &str, builder: ServerBuilder) -> Result<Self, Failure> {
        let (probe, watch) = Probe::new();
        watch.open(OPEN_GATE);
        let builder = builder.limits(limits()).add_service(ProbeService::new(probe));
        let server = builder.build();
        let listener = server.bind(address).await?;
        let address = listener.local_address().to_string();
        let (_, authority) = address.split_once("://").expect("an address has a scheme");
        let authority = authority.to_owned();
        let serving = tokio::spawn(listener.serve());
        Ok(Self { authority, server, _watch: watch, serving })
    }

    /// Returns the state of its only lane.
    pub(crate) fn lane(&self) -> LaneInfo {
        lane(self.server.rdma())
    }

    /// Returns the server's view of its only connection.
    pub(crate) fn connection(&self) -> ConnectionInfo {
        let mut connections = self.server.connections();
        assert_eq!(connections.len(), 1, "{connections:?}");
        connections.remove(0)
    }

    /// Waits until the server is done with everything that its clients left behind.
    pub(crate) async fn forgets_its_clients(&self) {
        until("the end of the server's connections", || {
            let lanes = self.server.rdma().lanes();
            self.server.connections().is_empty() && lanes.iter().all(|lane| is_idle(lane, 0))
        })
        .await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The limits of servers and clients, with room for the largest payload.
fn limits() -> Limits {
    Limits::default().with_max_message_len(80 << 20)
}

/// Devices of one side's own.
pub(crate) fn devices(rdma: RdmaConfig) -> Rdma {
    // Tests check every byte themselves, on whatever kernel they run.
    Rdma::new(rdma.with_allow_untrusted_reads(true))
}

/// RDMA that reads in small steps, one at a time, so that a payload takes its time.
pub(crate) fn slow() -> RdmaConfig {
    let mut rdma = RdmaConfig::default();
    rdma.max_reads = 1;
    rdma.max_read_len = 64 << 10;
    rdma
}

/// Returns a client's builder over these devices.
pub(crate) fn client(
    scheme: &str,
    authority: &str,
    rdma: &Rdma,
) -> Result<ChannelBuilder, Failure> {
    Ok(Channel::builder(format!("{scheme}://{authority}"))?.limits(limits()).rdma(rdma))
}

/// A connection that is sure to run over RDMA.
pub(crate) async fn connect(authority: &str, rdma: &Rdma) -> Result<Channel, Failure> {
    let channel = client("rdma", authority, rdma)?.connect().await?;
    assert_eq!(channel.info().map(|info| info.transport), Some("rdma"));
    Ok(channel)
}

/// Returns the state of the only lane of these devices.
pub(crate) fn lane(rdma: &Rdma) -> LaneInfo {
    let mut lanes = rdma.lanes();
    assert_eq!(lanes.len(), 1, "{lanes:?}");
    lanes.remove(0)
}

/// Returns true if a lane has that many connections and nothing in use.
pub(crate) fn is_idle(lane: &LaneInfo, connection_count: usize) -> bool {
    lane.connection_count == connection_count
        && (connection_count > 0 || lane.promised_slots == 0)
        && lane.send_slots_in_use == 0
        && lane.source_bytes_in_use == 0
        && lane.sink_bytes_in_use == 0
}

/// Returns the number of repetitions: the environment's, or `usual`.
pub(crate) fn repeats(variable: &str, usual: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")),
        Err(_) => usual,
    }
}

/// Makes a call that carries `len` bytes each way, and checks them.
pub(crate) async fn echo(stub: &ProbeStub, seed: u64, len: usize) -> Result<(), Failure> {
    let sent = payload(seed, len);
    let request = EchoRequest { payload: sent.clone(), ..Default::default() };
    let reply = stub.echo(request).await?.into_inner();
    assert!(reply.payload == sent, "the payload of {len} bytes and seed {seed} came back changed");
    Ok(())
}

/// Sends `len` bytes; the answer is empty.
pub(crate) async fn upload(stub: &ProbeStub, len: usize) -> Result<(), Failure> {
    let request = ParkRequest { payload: Bytes::from(vec![0; len]), ..Default::default() };
    stub.park(request).await?;
    Ok(())
}

/// Asks for `len` bytes, and gives them unchecked.
pub(crate) async fn download(stub: &ProbeStub, seed: u64, len: usize) -> Result<Bytes, Failure> {
    let request = ProduceRequest { seed, len: len as u64 };
    Ok(stub.produce(request).await?.into_inner().payload)
}

/// Waits for a condition that nothing announces; gives how long it took.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what} did not happen within {LIMIT:?}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    started.elapsed()
}

/// Waits for something that is announced.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    within_limit(LIMIT, what, future).await
}

/// Waits for something that takes its time.
pub(crate) async fn within_limit<T>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = T>,
) -> T {
    let result = tokio::time::timeout(limit, future).await;
    result.unwrap_or_else(|_| panic!("{what} did not happen within {limit:?}"))
}
