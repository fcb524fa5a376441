//! Addresses that take all the memory of a server that they can get, in turn, and an honest client
//! of another address.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use farcall::{Channel, Limits, ServeError, Server, Status};
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub, SERVICE};
use farcall_suite::proto::{EchoRequest, ProduceRequest};
use farcall_suite::raw_peer::{RawPeer, frame, hello_with, record};
use prost::Message;
use rpc_core::wire::FrameKind;
use tokio::net::TcpSocket;
use tokio_util::task::AbortOnDropHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// No wait of these tests is longer. It is shorter than `progress_timeout`, so that nothing here is
/// the work of that.
const LIMIT: Duration = Duration::from_secs(30);

const MAX_MEMORY: u64 = 64 << 20;

/// Slow readers, each of which asks for more than the whole budget.
const SLOW_COUNT: u8 = 14;

/// Answers that a slow reader asks for: how many, and their length. The short ones fill what the
/// long ones leave.
const ANSWERS: [(u64, u64); 3] = [(20, 4_000_000), (40, 400_000), (60, 100_000)];

const SILENT_COUNT: usize = 600;

const WHOLE: u8 = 1;

struct Rig {
    address: String,
    server: Server,
    _serving: AbortOnDropHandle<Result<(), ServeError>>,
}

impl Rig {
    async fn start() -> Result<Self, Failure> {
        let builder = Server::builder().max_memory(MAX_MEMORY);
        let server = builder.add_service(ProbeService::new(Probe::new().0)).build();
        let listener = server.bind("tcp://127.0.0.1:0").await?;
        let address = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        Ok(Self { address, server, _serving: AbortOnDropHandle::new(serving) })
    }

    /// Connects from 127.0.0.1, as clients do.
    async fn honest(&self) -> Result<ProbeStub, Failure> {
        let connecting = Channel::builder(&self.address)?.connect();
        Ok(ProbeStub::new(within("an honest connection", connecting).await?))
    }

    /// A connection from 127.0.0.`host` that has said nothing yet.
    async fn silent(&self, host: u8) -> Result<RawPeer, Failure> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, host], 0)))?;
        let server = self.address.trim_start_matches("tcp://").parse()?;
        Ok(RawPeer::new(socket.connect(server).await?))
    }

    /// A connection from 127.0.0.`host` that has asked for large answers and reads none, once the
    /// server has read what it asks for.
    async fn slow(&self, host: u8) -> Result<RawPeer, Failure> {
        let limits = Limits::default().with_max_receiving_bytes(u64::MAX);
        let mut peer = self.silent(host).await?;
        peer.send(&hello_with(&limits, Vec::new())).await?;
        within("the server's Hello", peer.read_hello()).await?;
        let lens = ANSWERS.into_iter().flat_map(|(count, len)| (0..count).map(move |_| len));
        let requests: Vec<u8> =
            (0..).zip(lens).flat_map(|(call, len)| produce(call, len)).collect();
        let read_before = self.read_bytes(host);
        peer.send(&requests).await?;
        let all_read = async {
            while self.read_bytes(host) < read_before + requests.len() as u64 {
                tokio::task::yield_now().await;
            }
        };
        within("what a slow reader asks for", all_read).await;
        Ok(peer)
    }

    fn read_bytes(&self, host: u8) -> u64 {
        let infos = self.server.connections().into_iter();
        let host_infos = infos.filter(|info| {
            info.addresses.peer.is_some_and(|peer| peer.ip() == IpAddr::from([127, 0, 0, host]))
        });
        host_infos.map(|info| info.stats.received_bytes).sum()
    }
}

async fn within<T>(what: &str, waited: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, waited).await.unwrap_or_else(|_| panic!("{what}: not in time"))
}

/// A request for an answer of `len` bytes.
fn produce(call: u64, len: u64) -> Vec<u8> {
    let path = |method: &farcall::MethodDescriptor| method.path.ends_with("/Produce");
    let method = SERVICE.methods.iter().position(path).expect("the service has it");
    let method = u16::try_from(method).expect("it has few");
    let message = ProduceRequest { seed: call, len }.encode_to_vec();
    record(WHOLE, 0, &frame(FrameKind::Request, call, method, &message))
}

async fn echo(stub: &ProbeStub, len: usize) -> Result<(), Status> {
    let payload = farcall_suite::payload(1, len);
    let request = EchoRequest { payload: payload.clone(), ..EchoRequest::default() };
    let reply = within("an honest call", stub.echo(request)).await?.into_inner();
    assert_eq!(reply.payload, payload);
    Ok(())
}

/// Calls with a MiB until one is served.
async fn echo_at_last(stub: &ProbeStub) -> u32 {
    let mut refused_count = 0;
    let calling = async {
        while echo(stub, 1 << 20).await.is_err() {
            refused_count += 1;
            tokio::task::yield_now().await;
        }
    };
    within("a large honest call", calling).await;
    refused_count
}

#[tokio::test]
async fn slow_readers_of_one_address_are_one_holder() -> Result<(), Failure> {
    let rig = Rig::start().await?;
    let mut slow = Vec::new();
    for _ in 0..SLOW_COUNT {
        slow.push(rig.slow(2).await?);
    }
    let held = rig.server.memory_held();
    println!("{SLOW_COUNT} slow readers of one address: {} of 64 MiB count", held >> 20);
    let honest = rig.honest().await?;
    for _ in 0..10 {
        echo(&honest, 1 << 20).await?;
    }
    assert!(held <= MAX_MEMORY / 2, "{held}");
    Ok(())
}

#[tokio::test]
async fn slow_readers_of_many_addresses_give_way() -> Result<(), Failure> {
    let rig = Rig::start().await?;
    let mut slow = Vec::new();
    for host in 2..2 + SLOW_COUNT {
        slow.push(rig.slow(host).await?);
    }
    let held = rig.server.memory_held();
    println!("slow readers of {SLOW_COUNT} addresses: {} of 64 MiB count", held >> 20);
    let honest = rig.honest().await?;
    for _ in 0..10 {
        echo(&honest, 50_000).await?;
    }
    let refused_count = echo_at_last(&honest).await;
    println!("{refused_count} calls of 1 MiB were refused before the first was served");
    Ok(())
}

#[tokio::test]
async fn silent_sockets_of_one_address_lock_none_out() -> Result<(), Failure> {
    let rig = Rig::start().await?;
    let mut silent = Vec::new();
    for _ in 0..SILENT_COUNT {
        silent.push(rig.silent(2).await?);
    }
    // Accepted behind them.
    let honest = rig.honest().await?;
    let held = rig.server.memory_held();
    println!("{SILENT_COUNT} silent sockets of one address: {} KiB count", held >> 10);
    echo(&honest, 1 << 20).await?;
    for _ in 0..10 {
        echo(&rig.honest().await?, 1 << 20).await?;
    }
    Ok(())
}
