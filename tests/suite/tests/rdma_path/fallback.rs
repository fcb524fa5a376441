//! Connections that stay on TCP although both sides have devices, and say why.

use farcall::{ConnectErrorKind, Rdma, RdmaConfig};
use farcall_suite::Failure;
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::proxy::{Alter, Proxy};
use crate::rig::{
    Rig, Serving, client, connect, devices, echo, is_idle, lane, repeats, until, within,
};

/// An address without a host, of a block that is set aside for documentation.
const UNUSED_GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];

/// Connections to a server without RDMA, unless `FARCALL_FALLBACKS` says otherwise: with what each
/// of them once kept of a completion queue, 338 are one too many.
const FALLBACKS: u64 = 400;

/// Connects to a server that cannot be had over RDMA: `auto` falls back and `rdma` fails, each
/// with a reason that has `words`. Gives the connection.
async fn falls_back(authority: &str, rdma: &Rdma, text: &str) -> Result<ProbeStub, Failure> {
    let channel = client("auto", authority, rdma)?.connect().await?;
    let info = channel.info().expect("it is connected");
    let fallback = info.fallback.expect("a reason");
    println!("fell back: {fallback}");
    assert_eq!(info.transport, "tcp");
    assert!(fallback.starts_with("rdma: ") && fallback.contains(text), "{fallback}");
    let refused = client("rdma", authority, rdma)?.connect().await;
    match refused {
        Err(error) if error.kind() == ConnectErrorKind::RdmaRequired => {
            assert!(error.to_string().contains(text), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let stub = ProbeStub::new(channel);
    echo(&stub, 1, 1000).await?;
    echo(&stub, 2, 1 << 20).await?;
    Ok(stub)
}

pub(crate) fn address_without_device(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let server = Serving::start("auto://127.0.0.1:0", RdmaConfig::default()).await?;
        let rdma = devices(RdmaConfig::default());
        let text = "this host: no active RDMA port has the address 127.0.0.1; found: ";
        falls_back(&server.authority, &rdma, text).await.map(drop)
    })
}

pub(crate) fn full_lane(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let mut small = RdmaConfig::default();
        small.receive_slots = 5;
        let server = rig.serve(small).await?;
        let rdma = devices(RdmaConfig::default());
        let first = ProbeStub::new(connect(&server.authority, &rdma).await?);
        let second = ProbeStub::new(connect(&server.authority, &rdma).await?);
        let lanes = server.server.rdma().lanes();
        let counts: Vec<_> = lanes.iter().map(|lane| lane.connection_count).collect();
        assert_eq!(counts, [1, 1], "another lane");
        // Both are served, and the places are free again for others.
        echo(&first, 1, 1 << 20).await?;
        echo(&second, 2, 1 << 20).await?;
        drop((first, second));
        server.forgets_its_clients().await;
        echo(&ProbeStub::new(connect(&server.authority, &rdma).await?), 3, 1000).await
    })
}

/// A process that falls back again and again is still on RDMA with others.
pub(crate) fn again_and_again(rig: &Rig) -> Result<(), Failure> {
    let fallbacks = repeats("FARCALL_FALLBACKS", FALLBACKS);
    rig.run(async {
        let before = rig.queue_pair_counts();
        let without = format!("tcp://{}:0", rig.host);
        let without = Serving::start(&without, RdmaConfig::default()).await?;
        let with = rig.serve(RdmaConfig::default()).await?;
        let rdma = devices(RdmaConfig::default());
        for count in 1..=fallbacks {
            let connected = client("auto", &without.authority, &rdma)?.connect();
            let channel = within("a connection", connected).await?;
            let info = channel.info().expect("it is connected");
            let reason = info.fallback.expect("a reason");
            assert!(reason.contains("not offered at the address"), "connection {count}: {reason}");
        }
        until("an end of the paths", || is_idle(&lane(&rdma), 0)).await;
        until("the end of the queue pairs", || rig.queue_pair_counts() == before).await;
        let channel = connect(&with.authority, &rdma).await?;
        let claimed = lane(&rdma).claimed_entries;
        println!(
            "{fallbacks} connections fell back; the next is on RDMA, {claimed} entries claimed"
        );
        let stub = ProbeStub::new(channel);
        echo(&stub, 1, 1000).await?;
        echo(&stub, 2, 1 << 20).await
    })
}

/// Alters the server's parameters in flight, so that the path fails for the reason in `words`.
async fn unproven(rig: &Rig, alter: Alter, text: &str) -> Result<(), Failure> {
    let before = rig.queue_pair_counts();
    let server = rig.serve(RdmaConfig::default()).await?;
    let proxy = Proxy::start(&rig.host, &server.authority, Some(alter)).await?;
    let rdma = devices(RdmaConfig::default());
    let stub = falls_back(&proxy.authority, &rdma, text).await?;
    until("one connection", || server.server.connections().len() == 1).await;
    let connection = server.connection();
    assert_eq!(connection.transport, "tcp");
    let reason = connection.fallback.unwrap_or_default();
    assert!(reason.contains("the client says") && reason.contains(text), "{reason}");
    // What was prepared for the path is gone on both sides.
    until("an end of the paths", || is_idle(&server.lane(), 0) && is_idle(&lane(&rdma), 0)).await;
    until("the end of the queue pairs", || rig.queue_pair_counts() == before).await;
    // The lanes are as good as new.
    let direct = ProbeStub::new(connect(&server.authority, &rdma).await?);
    echo(&direct, 4, 1 << 20).await?;
    echo(&stub, 5, 1000).await
}

pub(crate) fn wrong_queue_pair(rig: &Rig) -> Result<(), Failure> {
    let text = "the path could not be proven: the connection is closed: the RDMA path failed: \
                 work request failed: retries exceeded: the peer does not answer";
    rig.run(unproven(rig, |blob| blob.queue_pair_number ^= 0x10_0000, text))
}

pub(crate) fn wrong_address(rig: &Rig) -> Result<(), Failure> {
    // Another host's address is no reason to send packets there.
    let text = "but its RDMA port is said to be at ";
    rig.run(unproven(rig, |blob| blob.gid = UNUSED_GID.to_vec(), text))
}

pub(crate) fn wrong_epoch(rig: &Rig) -> Result<(), Failure> {
    // The server takes it for what an earlier path left behind, and does not answer.
    let text = "the path could not be proven: no answer to a probe within 3000 ms";
    rig.run(unproven(rig, |blob| blob.epoch ^= 1, text))
}
