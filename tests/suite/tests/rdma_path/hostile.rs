//! Clients that speak the handshake and then lie: each costs its own connection and no other.

use std::time::Duration;

use farcall::{ConnectionInfo, RdmaConfig};
use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;
use rpc_transport_rdma::verbs::{RemoteKey, RemoteMemory};

use crate::hostile_peer::{CANCEL, FRAME, GRANT, HostilePeer, OFFER, RELEASE, produce_frame};
use crate::rig::{Rig, Serving, connect, devices, echo, is_idle, slow, until, within};

const MIB: u64 = 1 << 20;

/// Time for which the server lets a client keep an offer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Lengths of the neighbour's payloads: small ones, and ones that take a READ each way.
const NEIGHBOUR_LENS: [usize; 3] = [100, 20_000, 300_000];

/// A server, a good client on a connection of its own, and a bad one.
struct Scene {
    server: Serving,
    good: ProbeStub,
    before: ConnectionInfo,
    bad: HostilePeer,
}

impl Scene {
    async fn set(rig: &Rig, rdma: RdmaConfig) -> Result<Self, Failure> {
        let server = rig.serve(rdma).await?;
        let channel = connect(&server.authority, &devices(RdmaConfig::default())).await?;
        let good = ProbeStub::new(channel);
        serve_neighbour(&good).await?;
        let before = server.connection();
        let bad = within("the handshake", HostilePeer::connect(&server.authority)).await?;
        until("the bad connection", || server.server.connections().len() == 2).await;
        Ok(Self { server, good, before, bad })
    }

    /// The bad client's connection ends, the good one's goes on, and nothing is left in use.
    async fn costs_the_bad_connection_only(self) -> Result<(), Failure> {
        let Self { server, good, before, bad } = self;
        let checked = goes_on_without_the_bad(&server, &good, &before).await;
        drop(bad);
        checked
    }

    /// The bad client leaves; the good one's connection goes on, and nothing is left in use.
    async fn ends_with_the_bad_client(self) -> Result<(), Failure> {
        let Self { server, good, before, bad } = self;
        drop(bad);
        goes_on_without_the_bad(&server, &good, &before).await
    }
}

async fn goes_on_without_the_bad(
    server: &Serving,
    good: &ProbeStub,
    before: &ConnectionInfo,
) -> Result<(), Failure> {
    serve_neighbour(good).await?;
    until("the end of the bad connection", || server.server.connections().len() == 1).await;
    assert_eq!(server.connection().addresses, before.addresses);
    serve_neighbour(good).await?;
    until("memory that is back", || is_idle(&server.lane(), 1)).await;
    Ok(())
}

async fn serve_neighbour(good: &ProbeStub) -> Result<(), Failure> {
    for (seed, len) in (0..).zip(NEIGHBOUR_LENS) {
        within("the neighbour's call", echo(good, seed, len)).await?;
    }
    Ok(())
}

/// Rules under which a client that keeps memory is not kept for long.
fn impatient() -> RdmaConfig {
    let mut rdma = RdmaConfig::default();
    (rdma.release_timeout, rdma.cancel_timeout) = (PATIENCE, PATIENCE);
    rdma
}

/// The bad client offends; a good one is served before, meanwhile and after.
fn offend(
    rig: &Rig,
    rdma: RdmaConfig,
    offence: impl AsyncFnOnce(&mut HostilePeer),
) -> Result<(), Failure> {
    rig.run(async {
        let mut scene = Scene::set(rig, rdma).await?;
        within("the offence", offence(&mut scene.bad)).await;
        scene.costs_the_bad_connection_only().await
    })
}

pub(crate) fn bad_key(rig: &Rig) -> Result<(), Failure> {
    // Over a queue pair for READs, and with the messages.
    for read_queue_pairs in [1, 0] {
        let mut rdma = RdmaConfig::default();
        rdma.read_queue_pairs = read_queue_pairs;
        offend(rig, rdma, async |bad| {
            let memory = RemoteMemory { address: 4096, key: RemoteKey(0xdead_beef) };
            bad.offer(1, memory, MIB).await;
        })?;
    }
    Ok(())
}

pub(crate) fn sends_where_reads_belong(rig: &Rig) -> Result<(), Failure> {
    offend(rig, RdmaConfig::default(), async |bad| bad.say_where_reads_belong())
}

pub(crate) fn longer_than_its_memory(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let mut scene = Scene::set(rig, RdmaConfig::default()).await?;
        let memory = scene.bad.memory(64 << 10);
        scene.bad.offer(1, memory.remote(), MIB).await;
        scene.costs_the_bad_connection_only().await
    })
}

pub(crate) fn memory_closed_early(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let mut scene = Scene::set(rig, slow()).await?;
        let memory = scene.bad.memory(32 << 20);
        scene.bad.offer(1, memory.remote(), 32 * MIB).await;
        until("a READ", || scene.server.lane().sink_bytes_in_use >= 32 * MIB).await;
        drop(memory);
        scene.costs_the_bad_connection_only().await
    })
}

pub(crate) fn never_releases(rig: &Rig) -> Result<(), Failure> {
    offend(rig, impatient(), async |bad| {
        bad.say(FRAME, 0, 0, &produce_frame(1, MIB)).await;
        bad.hear(OFFER).await;
    })
}

pub(crate) fn keeps_what_is_taken_back(rig: &Rig) -> Result<(), Failure> {
    let mut rdma = impatient();
    rdma.release_timeout = RdmaConfig::default().release_timeout;
    offend(rig, rdma, async |bad| {
        bad.say(FRAME, 0, 0, &produce_frame(1, MIB)).await;
        let offer = bad.hear(OFFER).await;
        // The call is given up, so that the server takes its answer back.
        let mut cancel = [0; 32];
        (cancel[0], cancel[8]) = (3, 1);
        bad.wait_for_credit().await;
        bad.say(FRAME, 0, 0, &cancel).await;
        let taken_back = bad.hear(CANCEL).await;
        assert_eq!(HostilePeer::transfer(&taken_back), HostilePeer::transfer(&offer));
    })
}

pub(crate) fn releases_twice(rig: &Rig) -> Result<(), Failure> {
    offend(rig, RdmaConfig::default(), async |bad| {
        bad.say(FRAME, 0, 0, &produce_frame(1, MIB)).await;
        let transfer = HostilePeer::transfer(&bad.hear(OFFER).await);
        for _ in 0..2 {
            bad.wait_for_credit().await;
            bad.say(RELEASE, 0, transfer, &[]).await;
        }
    })
}

pub(crate) fn releases_what_it_was_never_offered(rig: &Rig) -> Result<(), Failure> {
    offend(rig, RdmaConfig::default(), async |bad| bad.say(RELEASE, 0, 99, &[]).await)
}

pub(crate) fn takes_away_what_is_no_key(rig: &Rig) -> Result<(), Failure> {
    offend(rig, RdmaConfig::default(), async |bad| {
        bad.say_bytes(b"a message", Some(RemoteKey(0xdead_beef))).await;
    })
}

pub(crate) fn sends_without_credit(rig: &Rig) -> Result<(), Failure> {
    offend(rig, RdmaConfig::default(), async |bad| {
        // Far more than it may, in one go, whatever the server grants meanwhile.
        for call in 1..2000 {
            bad.call(call).await;
        }
    })
}

pub(crate) fn floods_offers(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let mut scene = Scene::set(rig, RdmaConfig::default()).await?;
        let memory = scene.bad.memory(8 << 20);
        // With credit, but more calls than it may have, each of them larger than it need be.
        for call in 1..u64::from(GRANT) * 20 {
            // Its own grant runs out too: then the server cannot say any more that it may go on.
            if tokio::time::timeout(PATIENCE, scene.bad.wait_for_credit()).await.is_err() {
                return scene.ends_with_the_bad_client().await;
            }
            scene.bad.offer(call, memory.remote(), 8 * MIB).await;
            if call % 16 == 0 {
                serve_neighbour(&scene.good).await?;
            }
            if scene.server.server.connections().len() == 1 {
                break;
            }
        }
        scene.costs_the_bad_connection_only().await
    })
}

pub(crate) fn offers_under_a_number_in_use(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let mut scene = Scene::set(rig, slow()).await?;
        let memory = scene.bad.memory(32 << 20);
        for _ in 0..2 {
            scene.bad.wait_for_credit().await;
            scene.bad.offer(1, memory.remote(), 32 * MIB).await;
        }
        scene.costs_the_bad_connection_only().await
    })
}

pub(crate) fn talks_nonsense(rig: &Rig) -> Result<(), Failure> {
    for seed in 0..5 {
        offend(rig, RdmaConfig::default(), async |bad| {
            let mut dice = fastrand::Rng::with_seed(seed);
            for _ in 0..50 {
                let bytes: Vec<u8> = (0..dice.usize(..200)).map(|_| dice.u8(..)).collect();
                bad.say_bytes(&bytes, None).await;
            }
        })?;
    }
    Ok(())
}
