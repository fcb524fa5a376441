//! Processes killed in the middle of a READ, with the other side living on.

use std::time::{Duration, Instant};

use farcall::Code;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::{Cause, Failure};

use crate::child::{Process, Role};
use crate::device::Device;
use crate::rig::{
    Rig, connect, devices, download, echo, is_idle, lane, slow, until, upload, within,
};

const LEN: usize = 64 << 20;

/// Number of packets after which the payload is surely in flight: a MiB even in the shortest
/// packets, which carry 1 KiB.
const PACKETS_UNDER_WAY: u64 = 1024;

/// Fewer than the payload takes even in the longest packets, which carry 4 KiB.
const PACKETS_OF_ALL: u64 = (LEN / 4096) as u64;

/// The packets that a device received since a moment.
struct Arriving<'a> {
    device: &'a Device,
    before: u64,
}

impl<'a> Arriving<'a> {
    fn at(device: &'a Device) -> Self {
        Self { device, before: device.counts().packets_received }
    }

    fn packets(&self) -> u64 {
        self.device.counts().packets_received - self.before
    }

    /// Waits until the payload is under way.
    async fn begins(&self) {
        until("a MiB of the payload", || self.packets() >= PACKETS_UNDER_WAY).await;
    }

    /// Checks, after the kill, that it hit the middle.
    fn check_cut(&self, victim: &str) {
        let packets = self.packets();
        println!("{victim} killed after {packets} of more than {PACKETS_OF_ALL} packets");
        assert!(packets < PACKETS_OF_ALL, "the payload had arrived: {packets} packets");
    }
}

pub(crate) fn client_uploading(rig: &Rig) -> Result<(), Failure> {
    rig.run(client_killed(rig, &rig.server_device, |authority| Role::Upload(authority, LEN)))
}

pub(crate) fn client_downloading(rig: &Rig) -> Result<(), Failure> {
    rig.run(client_killed(rig, &rig.client_device, |authority| Role::Download(authority, LEN)))
}

async fn client_killed(
    rig: &Rig,
    reading: &Device,
    role: fn(String) -> Role,
) -> Result<(), Failure> {
    let before = rig.queue_pair_counts();
    let server = rig.serve(slow()).await?;
    let arriving = Arriving::at(reading);
    let victim = Process::start(&role(server.authority.clone())).await?;
    arriving.begins().await;
    assert_ne!(rig.queue_pair_counts(), before, "the victim has a queue pair");
    victim.kill();
    let killed = Instant::now();
    arriving.check_cut("client");
    // Another client is served at once, whatever becomes of the first one's connection.
    let client = devices(slow());
    let stub = ProbeStub::new(within("a connection", connect(&server.authority, &client)).await?);
    within("a call", echo(&stub, 1, 1 << 20)).await?;
    let served = killed.elapsed();
    drop(stub);
    server.forgets_its_clients().await;
    let forgotten = killed.elapsed();
    until("the end of the queue pairs", || rig.queue_pair_counts() == before).await;
    report("another client served", served);
    report("connections forgotten, memory back", forgotten);
    report("queue pairs gone", killed.elapsed());
    Ok(())
}

pub(crate) fn server_downloading(rig: &Rig) -> Result<(), Failure> {
    rig.run(server_killed(rig, &rig.client_device, async |stub: &ProbeStub| {
        download(stub, 1, LEN).await.map(drop)
    }))
}

pub(crate) fn server_uploading(rig: &Rig) -> Result<(), Failure> {
    rig.run(server_killed(rig, &rig.server_device, async |stub: &ProbeStub| {
        upload(stub, LEN).await
    }))
}

async fn server_killed(
    rig: &Rig,
    reading: &Device,
    call: impl AsyncFnOnce(&ProbeStub) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let before = rig.queue_pair_counts();
    let victim = Process::start(&Role::Serve(rig.host.clone())).await?;
    let client = devices(slow());
    let stub = ProbeStub::new(connect(&victim.line, &client).await?);
    let arriving = Arriving::at(reading);
    let call = call(&stub);
    let kill = async {
        arriving.begins().await;
        victim.kill();
        arriving.check_cut("server");
        Instant::now()
    };
    let (outcome, killed) = within("the end of the call", async { tokio::join!(call, kill) }).await;
    report("the call ended", killed.elapsed());
    let failure = outcome.expect_err("the server was killed");
    let Cause::Status(status) = failure.cause() else { panic!("{failure}") };
    println!("with: {status}");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    until("memory that is back", || is_idle(&lane(&client), 0)).await;
    until("the end of the queue pairs", || rig.queue_pair_counts() == before).await;
    report("queue pairs gone, memory back", killed.elapsed());
    let next = Process::start(&Role::Serve(rig.host.clone())).await?;
    let stub = ProbeStub::new(within("a connection", connect(&next.line, &client)).await?);
    within("a call", echo(&stub, 2, 1 << 20)).await
}

fn report(what: &str, after: Duration) {
    println!("{what} {after:?} after the kill");
}
