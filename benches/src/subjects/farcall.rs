//! farcall, over any of its transports.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;
use std::{future, io, thread};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use farcall::tls::{ClientTls, ClientTlsConfig, ServerTls, ServerTlsConfig};
use farcall::{Channel, ConnectionInfo, Limits, Rdma, RdmaConfig, Server};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::certificates::Certificates;
use super::state;
use crate::proto::bench_rpc::{BenchService, BenchStub};
use crate::proto::{Payload, Wanted};
use crate::service::Service;
use crate::vectors;
use crate::vectors::bench_rpc::{BenchService as VectorService, BenchStub as VectorStub};
use crate::worker::{Caller, Client, Counts, Quota, Subject, Tally};

/// Options of farcall for a measurement.
#[derive(Debug, Clone, Default, Args)]
pub struct FarcallOptions {
    /// Time to poll before sleeping, in microseconds (RDMA only).
    #[arg(long)]
    pub spin_us: Option<u64>,
    /// Scope of the keys that peers get: auto, window or region (RDMA only).
    #[arg(long)]
    pub rkey_scope: Option<farcall::rdma::RkeyScope>,
    /// Queue pairs of a connection for READs alone (RDMA only).
    #[arg(long)]
    pub read_queue_pairs: Option<u8>,
    /// Bytes of READs outstanding on all connections together (RDMA only).
    #[arg(long)]
    pub read_bytes_max: Option<u32>,
    /// Connections over RDMA that a process takes at most (RDMA only).
    #[arg(long)]
    pub rdma_connections: Option<u32>,
    /// Traffic class of packets (RDMA only).
    #[arg(long)]
    pub traffic_class: Option<u8>,
    /// Time for an acknowledgement: 4.096 us, doubled so many times (RDMA only).
    #[arg(long)]
    pub ack_timeout: Option<u8>,
    /// Wait for a peer four times as long as by default, and for 60 s in handshakes: for emulated
    /// devices, whose hosts may stand still for seconds.
    #[arg(long)]
    pub patient: bool,
    /// Take large payloads from memory that farcall lends, instead of the application's own.
    #[arg(long)]
    pub lent: bool,
    /// Memory of uploads: shared by all, copied for each, or copied into a vector.
    #[arg(long, value_enum, default_value_t)]
    pub payload: PayloadKind,
    /// A folder with `ca.pem`, `server.pem` and `server.key`: TLS on TCP.
    #[arg(long)]
    pub tls: Option<PathBuf>,
    /// Runtimes of one thread each that a server's connections, or a client's callers and their
    /// connections, are shared out to; 0 for the runtime of the process alone.
    #[arg(long, default_value_t = 0)]
    pub cores: u32,
}

/// The memory of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum PayloadKind {
    /// One `Bytes` for all uploads.
    #[default]
    Shared,
    /// A `Bytes` of its own for each.
    Copied,
    /// A `Vec<u8>` for each, which the server gets as one.
    Vector,
}

impl FarcallOptions {
    /// RDMA as farcall has it by default, and what was chosen.
    #[must_use]
    pub fn rdma(&self) -> Rdma {
        let mut rdma = RdmaConfig::default();
        // The peers measured beside it take whatever the device gives, too.
        rdma.allow_untrusted_reads = true;
        rdma.rkey_scope = self.rkey_scope.unwrap_or(rdma.rkey_scope);
        rdma.read_queue_pairs = self.read_queue_pairs.unwrap_or(rdma.read_queue_pairs);
        rdma.max_read_bytes = self.read_bytes_max.unwrap_or(rdma.max_read_bytes);
        rdma.max_connections = self.rdma_connections.unwrap_or(rdma.max_connections);
        rdma.connect.traffic_class = self.traffic_class.or(rdma.connect.traffic_class);
        let patient = self.patient.then_some(PATIENT_ACK_TIMEOUT);
        rdma.connect.timeout = self.ack_timeout.or(patient).unwrap_or(rdma.connect.timeout);
        rdma.spin = self.spin_us.map_or(rdma.spin, Duration::from_micros);
        Rdma::new(rdma)
    }
}

/// Time for an acknowledgement of an emulated peer: 0.5 s, seven times.
const PATIENT_ACK_TIMEOUT: u8 = 17;

/// Time of a handshake with such a peer.
const PATIENT_HANDSHAKE: Duration = Duration::from_secs(60);

/// Room for the largest messages.
fn limits() -> Limits {
    Limits::default().with_max_message_len(65 << 20).with_max_receiving_bytes(1 << 30)
}

/// farcall as a subject.
#[derive(Debug)]
pub struct Farcall {
    rdma: Rdma,
    lent: bool,
    patient: bool,
    payload: PayloadKind,
    certificates: Option<Certificates>,
    cores: u32,
    server: OnceLock<Server>,
}

impl Farcall {
    /// farcall as these options say.
    #[must_use]
    pub fn new(options: &FarcallOptions) -> Self {
        let certificates = options.tls.as_deref().map(Certificates::at);
        let FarcallOptions { lent, patient, payload, cores, .. } = *options;
        let server = OnceLock::new();
        Self { rdma: options.rdma(), lent, patient, payload, certificates, cores, server }
    }

    /// Returns the TLS settings of its clients.
    fn client_tls(&self) -> Result<Option<ClientTls>> {
        let Some(files) = &self.certificates else { return Ok(None) };
        Ok(Some(ClientTls::new(ClientTlsConfig::default().with_ca(&files.ca))?))
    }

    /// Returns the TLS settings of its server.
    fn server_tls(&self) -> Result<Option<ServerTls>> {
        let Some(files) = &self.certificates else { return Ok(None) };
        Ok(Some(ServerTls::new(ServerTlsConfig::new(&files.cert, &files.key))?))
    }

    /// Returns what is known of all connections: those served, and those of a client.
    fn paths(&self, connections: &[FarcallClient]) -> Vec<ConnectionInfo> {
        let served = self.server.get().map(Server::connections).unwrap_or_default();
        served.into_iter().chain(connections.iter().filter_map(FarcallClient::info)).collect()
    }

    /// Returns the state and the counters of its lanes.
    fn lane_counts(&self) -> Counts {
        // Receive slots that a connection can be promised, control messages among them.
        let rules = RdmaConfig::default();
        let window = u64::from(rules.max_credits + 2) * u64::from(rules.slot_len);
        let mut counts = Counts::from([("window_bytes".to_owned(), window)]);
        for lane in self.rdma.lanes() {
            let mut add = |name: &str, count| *counts.entry(name.to_owned()).or_default() += count;
            add("receive_bytes", lane.receive_bytes as u64);
            add("wakeups", lane.activity.wakeups);
            add("posts", lane.activity.posts);
            add("completions", lane.activity.completions);
            add("rdma_connections", lane.connection_count as u64);
        }
        counts
    }
}

impl Subject for Farcall {
    type Connection = FarcallClient;

    async fn serve(&self, address: &str) -> Result<String> {
        let service = Service::default().with_lent_memory(self.lent);
        let mut builder = Server::builder().limits(limits()).rdma(&self.rdma).cores(self.cores);
        if let Some(tls) = self.server_tls()? {
            builder = builder.tls(&tls);
        }
        if self.patient {
            builder = builder.handshake_timeout(PATIENT_HANDSHAKE);
        }
        let builder = match self.payload {
            PayloadKind::Shared | PayloadKind::Copied => {
                builder.add_service(BenchService::new(service))
            }
            PayloadKind::Vector => builder.add_service(VectorService::new(service)),
        };
        let server = builder.build();
        let listener = server.bind(address).await?;
        let address = listener.local_address().to_string();
        // The first one tells what it has counted; a worker serves once.
        let _ = self.server.set(server.clone());
        tokio::spawn(async move {
            if let Err(error) = listener.serve().await {
                eprintln!("the server ended: {error}");
            }
        });
        Ok(address)
    }

    async fn connect(&self, address: &str) -> Result<FarcallClient> {
        let mut builder = Channel::builder(address)?.limits(limits()).rdma(&self.rdma);
        builder = builder.per_runtime(self.cores > 0);
        if let Some(tls) = self.client_tls()? {
            builder = builder.tls(&tls);
        }
        if self.patient {
            builder = builder.handshake_timeout(PATIENT_HANDSHAKE);
        }
        let channel =
            builder.connect().await.with_context(|| format!("connecting to {address}"))?;
        let stub = BenchStub::new(channel.clone());
        let cores = (self.cores > 0).then(|| Cores::start(self.cores)).transpose()?;
        Ok(FarcallClient { stub, channel, lent: self.lent, payload: self.payload, cores })
    }

    fn counts(&self, connections: &[FarcallClient]) -> Counts {
        let mut counts = self.lane_counts();
        for stats in self.paths(connections).into_iter().map(|connection| connection.stats) {
            let mut add = |name: &str, count| *counts.entry(name.to_owned()).or_default() += count;
            add("copied_bytes", stats.copied_bytes);
            add("written_bytes", stats.written_bytes);
        }
        for info in connections.iter().filter_map(FarcallClient::info) {
            *counts.entry(format!("over {}", info.transport)).or_default() += 1;
            let declined = info.fallback.map(|reason| format!("declined: {reason}"));
            declined.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
        }
        counts
    }

    fn state(&self, connections: &[FarcallClient]) -> String {
        state::describe(&self.rdma, &self.paths(connections))
    }
}

/// One channel.
#[derive(Debug, Clone)]
pub struct FarcallClient {
    channel: Channel,
    stub: BenchStub<Channel>,
    lent: bool,
    payload: PayloadKind,
    /// The runtimes of its callers, where they are not the one of the process.
    cores: Option<Arc<Cores>>,
}

/// Runtimes of one thread each, until the process ends.
#[derive(Debug)]
struct Cores {
    runtimes: Vec<Handle>,
    next: AtomicUsize,
}

impl Cores {
    fn start(count: u32) -> Result<Arc<Self>> {
        let count = count as usize;
        let (handles, started) = mpsc::channel();
        thread::spawn(move || {
            farcall::per_core(count, |_| {
                let sent = handles.send(Handle::current());
                async move {
                    sent.map_err(io::Error::other)?;
                    future::pending::<io::Result<()>>().await
                }
            })
        });
        let runtimes: Vec<_> = started.into_iter().take(count).collect();
        ensure!(runtimes.len() == count, "{} of {count} runtimes start", runtimes.len());
        Ok(Arc::new(Self { runtimes, next: AtomicUsize::new(0) }))
    }

    /// Returns the runtimes one after another.
    fn next(&self) -> &Handle {
        &self.runtimes[self.next.fetch_add(1, Ordering::Relaxed) % self.runtimes.len()]
    }
}

impl FarcallClient {
    /// The channel.
    #[must_use]
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// The connection that it has now.
    #[must_use]
    pub fn info(&self) -> Option<ConnectionInfo> {
        self.channel.endpoints().into_iter().find_map(|it| it.info)
    }
}

impl Client for FarcallClient {
    async fn echo(&self, data: Bytes) -> Result<usize> {
        Ok(self.stub.echo(Payload { data }).await?.into_inner().data.len())
    }

    async fn upload(&self, data: Bytes) -> Result<()> {
        // What the application writes into it is no part of the call.
        let data = match self.lent {
            true => self.channel.buffer(data.len()).await.freeze(),
            false => data,
        };
        match self.payload {
            PayloadKind::Shared => self.stub.upload(Payload { data }).await?,
            PayloadKind::Copied => self.stub.upload(Payload { data: data.to_vec().into() }).await?,
            PayloadKind::Vector => {
                let stub = VectorStub::new(self.channel.clone());
                stub.upload(vectors::Payload { data: data.to_vec() }).await?;
                return Ok(());
            }
        };
        Ok(())
    }

    async fn download(&self, len: usize) -> Result<usize> {
        Ok(self.stub.download(Wanted { len: len as u64 }).await?.into_inner().data.len())
    }

    async fn feed(&self, len: usize, quota: &mut Quota) -> Result<()> {
        let mut messages = self.stub.feed(Wanted { len: len as u64 }).await?.into_inner();
        while quota.wants_message() {
            let message = messages.message().await?.context("the stream ended")?;
            ensure!(message.data.len() == len, "a message of another length");
            quota.add(1);
        }
        Ok(())
    }

    fn spawn(caller: Caller<Self>) -> JoinHandle<Result<Tally>> {
        let runtime = caller.client().ok().and_then(|client| client.cores.clone());
        match runtime {
            Some(cores) => cores.next().spawn(caller.run()),
            None => tokio::spawn(caller.run()),
        }
    }
}
