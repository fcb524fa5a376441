//! A cable that goes dead under an RDMA connection: both ends notice within the bound, and the next
//! connection over the mended cable is as good as the first.
//!
//! Needs RDMA devices on a virtual cable, like those of the virtual machine that `cargo xtask test`
//! starts, and the right to pull it. As in `tests/rdma.rs`, `FARCALL_RDMA=required` says that
//! devices are there and `FARCALL_RDMA_SERVER` is the address of the server's. A cable of a real
//! network card is left alone.

mod cable;
mod noticing;

use std::time::Duration;

use cable::Cable;
use farcall::{Channel, Code, Keepalive, Rdma, RdmaConfig, ServeError, Server, Status};
use farcall_suite::OneServer as _;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::{ProbeService, ProbeStub};
use farcall_suite::{Probe, Watch};
use noticing::{
    both_notice, call_in_flight, ended, handler_is_dropped, stream_in_progress, within,
};
use tokio::task::JoinHandle;

const KEEPALIVE: Keepalive = Keepalive::new(Duration::from_secs(1), Duration::from_secs(2));

/// The time that the documentation of [`Keepalive`] promises, 5 s for a queue pair that does not
/// drain, and as much again for emulated processors.
const BOUND: Duration = Duration::from_secs(2 * (2 + 2 + 5));

/// Between two looks at a condition that nothing announces.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

struct Rig {
    host: String,
    server: Server,
    serving: JoinHandle<Result<(), ServeError>>,
    watch: Watch,
    address: String,
    rdma: Rdma,
}

impl Rig {
    async fn start(host: String) -> Self {
        let rdma = || Rdma::new(RdmaConfig::default().with_allow_untrusted_reads(true));
        let (probe, watch) = Probe::new();
        let builder = Server::builder().keepalive(KEEPALIVE).rdma(&rdma());
        let server = builder.add_service(ProbeService::new(probe)).build();
        let listener = server.bind(&format!("rdma://{host}:0")).await.expect("a place to listen");
        let address = listener.local_address().to_string();
        let serving = tokio::spawn(listener.serve());
        Self { host, server, serving, watch, address, rdma: rdma() }
    }

    /// A new connection over RDMA that works. A cable that was mended takes a moment.
    async fn connect(&self) -> (Channel, ProbeStub) {
        let connecting = async {
            loop {
                match Channel::builder(&self.address)
                    .expect("an address")
                    .keepalive(KEEPALIVE)
                    .rdma(&self.rdma)
                    .connect()
                    .await
                {
                    Ok(channel) => return channel,
                    Err(error) => println!("not connected yet: {error}"),
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        let channel = within("a connection", connecting).await;
        let stub = ProbeStub::new(channel.clone());
        let echoed = within("a call", stub.echo(EchoRequest::default())).await;
        echoed.expect("a connection that works");
        (channel, stub)
    }

    /// Pulls the cable, waits until both ends have noticed, and mends it.
    async fn pull(&self, channel: &Channel, what: &str) {
        let local = channel.info().and_then(|info| info.addresses.local).expect("an address");
        let cable = Cable::of(local.ip()).expect("a virtual cable");
        cable.pull();
        both_notice(what, channel, &self.server, BOUND).await;
    }
}

fn check_unavailable(status: &Status) {
    println!("the caller is told: {status}");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

/// One after the other: there is one cable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ends_notice_a_dead_cable() {
    if std::env::var("FARCALL_RDMA").as_deref() != Ok("required") {
        println!("skipped: no RDMA device (FARCALL_RDMA is not set to `required`)");
        return;
    }
    let host = std::env::var("FARCALL_RDMA_SERVER").unwrap_or_else(|_| "10.0.1.1".to_owned());
    let mut rig = Rig::start(host).await;
    let (channel, _stub) = rig.connect().await;
    let local = channel.info().and_then(|info| info.addresses.local).expect("an address");
    if Cable::of(local.ip()).is_none() {
        println!("skipped: {} is on a real cable", rig.host);
        return;
    }
    rig.pull(&channel, "idle").await;
    with_a_call(&mut rig).await;
    with_a_stream(&rig).await;
    large_call(&rig).await;
    drop(rig.connect().await);
    rig.serving.abort();
}

async fn with_a_call(rig: &mut Rig) {
    let (channel, stub) = rig.connect().await;
    let call = call_in_flight(&stub, &mut rig.watch).await;
    rig.pull(&channel, "a call in flight").await;
    check_unavailable(&ended(call).await);
    handler_is_dropped(&mut rig.watch).await;
}

async fn with_a_stream(rig: &Rig) {
    let (channel, stub) = rig.connect().await;
    let reading = stream_in_progress(&stub).await;
    rig.pull(&channel, "a stream in progress").await;
    check_unavailable(&ended(reading).await);
}

/// Calls whose payloads are being read by the other side's device.
async fn large_call(rig: &Rig) {
    let (channel, stub) = rig.connect().await;
    let payload = farcall_suite::payload(1, 4_000_000);
    let calls = tokio::spawn(async move {
        loop {
            let request = EchoRequest { payload: payload.clone(), ..Default::default() };
            if let Err(status) = stub.echo(request).await {
                return status;
            }
        }
    });
    rig.pull(&channel, "large calls").await;
    check_unavailable(&ended(calls).await);
}
