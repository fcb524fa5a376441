//! Counts the kernel's objects of this process: `rdma resource`.

use std::collections::BTreeMap;
use std::process::Command;

use farcall_suite::Failure;
use serde_json::Value;

use crate::child::{Process, Role};
use crate::rig::{Rig, until};

const LEN: usize = 64 << 20;

/// Number of packets after which a payload is surely in flight: a MiB even in the shortest packets,
/// which carry 1 KiB.
const PACKETS_UNDER_WAY: u64 = 1024;

/// Queue pairs that a lane keeps for its next connections: three for each of eight.
const SPARES_MAX: u64 = 24;

/// Number of objects of each kind on each device, the kernel's own included. Queue pairs that are
/// kept for the next connections are left out: there are as many as connections came at once.
pub(crate) type Resources = BTreeMap<String, u64>;

fn show(what: &[&str]) -> Vec<Value> {
    let shown = Command::new("rdma").args(["-j", "resource", "show"]).args(what).output();
    let shown = shown.expect("`rdma` of iproute2 is installed");
    assert!(shown.status.success(), "`rdma resource show`: {shown:?}");
    serde_json::from_slice(&shown.stdout).expect("it prints JSON")
}

/// Counts them.
pub(crate) fn resources() -> Resources {
    let devices = show(&[]);
    let mut resources = Resources::new();
    for device in &devices {
        let name = device["ifname"].as_str().unwrap_or_default();
        let fields = device.as_object().into_iter().flatten();
        let counts = fields.filter(|(kind, _)| *kind != "ifindex");
        let counts = counts.filter_map(|(kind, count)| Some((kind, count.as_u64()?)));
        resources.extend(counts.map(|(kind, count)| (format!("{name} {kind}"), count)));
    }
    let mut kept = Resources::new();
    resources.retain(|kind, _| !kind.ends_with(" qp"));
    for queue_pair in show(&["qp"]) {
        let name = queue_pair["ifname"].as_str().unwrap_or_default();
        let counts = if queue_pair["state"] == "INIT" { &mut kept } else { &mut resources };
        *counts.entry(format!("{name} qp")).or_default() += 1;
    }
    assert!(resources.keys().any(|kind| kind.ends_with(" qp")), "no counts: {devices:?}");
    // A client and a server of this process, or of two, may use one device.
    assert!(kept.values().all(|count| *count <= 2 * SPARES_MAX), "{kept:?}");
    resources
}

/// Without registered memory, of which a process that lives on may keep some to use it again.
fn queues() -> Resources {
    let mut resources = resources();
    resources.retain(|kind, _| !kind.ends_with(" mr"));
    resources
}

pub(crate) fn ended_processes(rig: &Rig) -> Result<(), Failure> {
    rig.run(processes(rig))
}

async fn processes(rig: &Rig) -> Result<(), Failure> {
    let before = resources();
    println!("before: {before:?}");
    let server = Process::start(&Role::Serve(rig.host.clone())).await?;
    let authority = server.line.clone();
    let serving = resources();

    ends(Process::start(&Role::Upload(authority.clone(), 1 << 20)).await?).await;
    let with_lane = {
        // The first connection made the server's lane, which stays.
        until("the end of the client", || rig.queue_pair_counts() == (0, 0)).await;
        queues()
    };
    println!("serving: {serving:?}; after an orderly close: {with_lane:?}");

    ends(Process::start(&Role::Leave(authority.clone(), 1 << 20)).await?).await;
    let took = until("what is left of a client that exited", || queues() == with_lane).await;
    println!("a client that exits with its connection open leaves nothing after {took:?}");

    let arrived = || rig.server_device.counts().packets_received;
    let start = arrived();
    let victim = Process::start(&Role::Upload(authority, LEN)).await?;
    until("a MiB of the payload", || arrived() - start >= PACKETS_UNDER_WAY).await;
    println!("in the middle of a READ: {:?}", resources());
    assert_ne!(queues(), with_lane);
    victim.kill();
    let took = until("what is left of a client that was killed", || queues() == with_lane).await;
    println!("a client killed in the middle of a READ leaves nothing after {took:?}");

    server.kill();
    let took = until("what is left of the server", || resources() == before).await;
    println!("a server that is killed leaves nothing after {took:?}");
    Ok(())
}

/// Waits until a process has ended by itself, and well.
async fn ends(mut process: Process) {
    let mut status = None;
    until("the end of the child", || {
        status = process.child.try_wait().expect("it is our child");
        status.is_some()
    })
    .await;
    assert!(status.is_some_and(|status| status.success()), "the child failed: {status:?}");
}
