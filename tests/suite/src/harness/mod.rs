//! The parts that differ between transports: the address, and the patience.

pub(crate) mod either;
pub(crate) mod http_channel;
pub(crate) mod on_loopback;
pub(crate) mod one_server;
pub(crate) mod place;
pub(crate) mod running;
pub(crate) mod served;
pub(crate) mod stack;

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farcall::rdma::RkeyScope;
use farcall::sim::SimNetwork;
use farcall::{Compression, Limits, Rdma, RdmaConfig};
use rpc_transport_rdma::sim::{SimCensus, lab};

use crate::failure::{Cause, check_eq};
use crate::{Failure, SharedSettings};

/// Large enough for the largest payload that the suite sends, 64 MiB, and its fields.
const MESSAGE_LEN_MAX: u64 = 80 << 20;

/// Acknowledgement timeout of a patient harness's queue pair, as verbs number it: 4.096 us x
/// 2^this, half a second.
const PATIENT_TIMEOUT: u8 = 17;

/// Several, so that connections of one server are on different ones.
const CORES: u32 = 2;

/// Any number will do: real sockets and threads make a run what it is.
const SIMULATION_SEED: u64 = 1;

/// The path that is under test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// Inside the process.
    Inproc,
    /// TCP on loopback.
    Tcp,
    /// TCP on loopback, with every message compressed that becomes smaller by it.
    Compressed,
    /// TLS over TCP on loopback, with certificates of both sides.
    Tls,
    /// A Unix socket.
    Unix,
    /// A Unix socket, which both sides know as a byte stream of the program's.
    Stream,
    /// No transport of ours: tonic's generated clients and tonic's server, on loopback.
    Tonic,
    /// tonic's generated clients over a farcall channel, which takes the path inside.
    GrpcOver(Box<Path>),
    /// Our stubs over the path inside, and services that tonic generated behind farcall's server.
    GrpcServed(Box<Path>),
    /// tonic's generated clients over HTTP/2, at the TCP port of farcall's server.
    GrpcPort,
    /// Our stubs over HTTP/2, at the TCP port of farcall's server.
    GrpcToPort,
    /// Our stubs over HTTP/2, and tonic's server.
    GrpcToTonic,
    /// The path inside, to a server with cores.
    OnCores(Box<Path>),
    /// RDMA on a simulated device that has the loopback address.
    SimulatedRdma {
        /// Scope of the keys that peers get.
        rkey_scope: RkeyScope,
    },
    /// RDMA between this host's address and itself.
    Rdma {
        /// The address of an RDMA device.
        host: String,
    },
}

impl Path {
    /// The transport's name, as connections report it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Inproc => "inproc",
            Self::Tcp | Self::Compressed => "tcp",
            Self::Tls => "tls",
            Self::Unix => "unix",
            Self::Stream => "stream",
            Self::Tonic => "tonic",
            Self::GrpcPort | Self::GrpcToPort | Self::GrpcToTonic => "grpc",
            Self::GrpcOver(under) | Self::GrpcServed(under) | Self::OnCores(under) => under.name(),
            Self::SimulatedRdma { .. } | Self::Rdma { .. } => "rdma",
        }
    }

    /// Returns the required scope of keys, where that is a part of the path.
    pub(crate) fn rkey_scope(&self) -> Option<RkeyScope> {
        match self {
            Self::SimulatedRdma { rkey_scope } => Some(*rkey_scope),
            Self::GrpcOver(under) | Self::GrpcServed(under) | Self::OnCores(under) => {
                under.rkey_scope()
            }
            _ => None,
        }
    }

    /// An address without a listener yet; ours, also where tonic is looked at.
    fn address(&self) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let next = || COUNT.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::GrpcOver(under) | Self::GrpcServed(under) | Self::OnCores(under) => {
                under.address()
            }
            Self::Inproc => format!("inproc://suite-{}", next()),
            Self::Tcp
            | Self::Compressed
            | Self::Tls
            | Self::Tonic
            | Self::GrpcPort
            | Self::GrpcToPort
            | Self::GrpcToTonic => "tcp://127.0.0.1:0".to_owned(),
            Self::Unix | Self::Stream => {
                let name = format!("farcall-{}-{}", std::process::id(), next());
                // A name of its own in the folder for such files; the listener removes it.
                format!("unix://{}", std::env::temp_dir().join(name).display())
            }
            Self::SimulatedRdma { .. } => "rdma://127.0.0.1:0".to_owned(),
            Self::Rdma { host } => format!("rdma://{host}:0"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compressed => "compressed",
            Self::GrpcPort => "grpc-port",
            Self::GrpcToPort => "grpc-to-port",
            Self::GrpcToTonic => "grpc-to-tonic",
            Self::GrpcOver(under) => return write!(f, "grpc-over-{under}"),
            Self::GrpcServed(under) => return write!(f, "grpc-served-{under}"),
            Self::OnCores(under) => return write!(f, "{under}-on-cores"),
            Self::SimulatedRdma { rkey_scope: RkeyScope::Window } => "rdma-sim-windows",
            Self::SimulatedRdma { .. } => "rdma-sim",
            other => other.name(),
        })
    }
}

/// The rules of one side of a connection.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Settings of its connections.
    pub settings: SharedSettings,
    /// A side's own, so that two sides share nothing that two hosts would not.
    pub rdma: Rdma,
}

/// Starts servers of the suite's service on the path under test.
#[derive(Debug)]
pub struct Harness {
    path: Path,
    /// Number of cores of its servers.
    cores: u32,
    limit: Duration,
    /// Time to wait for a late peer. `None` stands for the defaults, unless they are too short.
    patience: Option<Duration>,
    /// The network that the path needs, if it is a simulated one.
    network: Option<SimNetwork>,
    /// The address of a server of another process, in place of one of this.
    elsewhere: Option<String>,
}

impl Harness {
    /// A harness for `path`, in which nothing takes longer than `limit`.
    #[must_use]
    pub fn new(path: Path, limit: Duration) -> Self {
        let (path, cores) = match path {
            Path::OnCores(under) => (*under, CORES),
            path => (path, 0),
        };
        let network = path.rkey_scope().map(|_| {
            let network = SimNetwork::new(SIMULATION_SEED);
            network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
            network
        });
        Self { path, cores, limit, patience: None, network, elsewhere: None }
    }

    /// The same, for a machine that is busy otherwise: connections may be that late at everything
    /// before anybody gives them up.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// A harness for a server of another process at `address`. Behaviours that watch handlers fail
    /// with it.
    #[must_use]
    pub fn elsewhere(address: &str, limit: Duration) -> Self {
        Self { elsewhere: Some(address.to_owned()), ..Self::new(Path::GrpcToPort, limit) }
    }

    /// The path under test.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of cores of its servers.
    pub(crate) fn cores(&self) -> u32 {
        self.cores
    }

    /// The bound on one behaviour, and on each wait in it.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The rules of one side, unless a behaviour is about them, with RDMA devices of its own.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let settings = SharedSettings::new(|settings| {
            settings.limits = Self::limits();
            if let Some(patience) = self.patience {
                settings.handshake_timeout = patience;
            }
            if self.path == Path::Compressed {
                settings.compression = Compression::ON.with_min_len(1);
            }
        });
        // The suite checks every byte itself, on whatever kernel it runs.
        let rdma = self.patience.map(patient).unwrap_or_default().with_allow_untrusted_reads(true);
        let rdma = match &self.network {
            Some(network) => {
                let scope = self.path.rkey_scope().into_iter();
                Rdma::simulated(network, scope.fold(rdma, RdmaConfig::with_rkey_scope))
            }
            None => Rdma::new(rdma),
        };
        Rules { settings, rdma }
    }

    /// Checks that the simulated device, if there is one, was used as devices may be, and that
    /// nothing is left on it.
    ///
    /// # Errors
    ///
    /// Returns an error if it was not, or something is.
    pub fn check_device(&self) -> Result<(), Failure> {
        let Some(network) = &self.network else { return Ok(()) };
        check_eq("misuse of the device", &network.violations(), &Vec::new())?;
        // The threads of cores end by themselves, after the server that they belonged to.
        let began = Instant::now();
        let is_early = || self.cores > 0 && began.elapsed() < self.limit;
        while lab::census(network) != SimCensus::default() && is_early() {
            thread::yield_now();
        }
        check_eq("what is left on the device", &lab::census(network), &SimCensus::default())
    }

    /// The limits of both sides, unless a behaviour is about them.
    pub(crate) fn limits() -> Limits {
        Limits::default().with_max_message_len(MESSAGE_LEN_MAX)
    }

    /// Waits for something that is announced.
    ///
    /// # Errors
    ///
    /// Returns an error if it takes longer than the bound.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, it drops the future.
    pub async fn within<T>(
        &self,
        what: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let result = tokio::time::timeout(self.limit, future).await;
        let seconds = self.limit.as_secs();
        result.map_err(|_| Failure::new(Cause::TimedOut { what, seconds }))
    }
}

/// RDMA that waits for a peer that is not scheduled. A queue pair gives up after some seconds
/// instead of half of one.
fn patient(patience: Duration) -> RdmaConfig {
    let mut rdma = RdmaConfig::default();
    rdma.connect.timeout = PATIENT_TIMEOUT;
    rdma.cancel_timeout = patience;
    rdma.close_timeout = patience;
    rdma
}
