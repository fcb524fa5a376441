//! Four servers are restarted one by one, and then killed one by one, while clients call.
//!
//! An idempotent call never fails. What is not idempotent never happens twice, never fails when
//! servers end in order, and when they are killed fails with a mark that says whether it may have
//! happened.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use farcall::Channel;
use farcall::balance::Connectivity;
use tokio::runtime::Handle;

use super::Shown;
use super::cluster::{Cluster, Directory, SERVERS, SERVICE};
use super::ledger::LedgerFile;
use super::load::{Counts, Entered, Load, until};
use super::names::servers_by_name;
use super::registry::{PREFIX, Registry, TTL_SECONDS};
use crate::RigError;
use farcall_suite::Failure;
use farcall_suite::control_plane::ControlPlane;

/// Calls between two things that happen to servers.
const CALLS_BETWEEN: u64 = 500;

/// The client's way to find the servers.
#[derive(Debug, Clone)]
enum Found {
    ByAddresses,
    ByName,
    InEtcd(String),
    ByControlPlane(Arc<ControlPlane>),
}

pub(super) fn show(runtime: &Handle) -> Result<Shown, RigError> {
    let mut shown = Shown::default();
    for found in [Found::ByAddresses, Found::ByName] {
        show_found(runtime, &found, &mut shown)?;
    }
    match Registry::start()? {
        Some(etcd) => show_found(runtime, &Found::InEtcd(etcd.address().to_owned()), &mut shown)?,
        None => {
            println!("  servers found in etcd: not shown, FARCALL_ETCD names no program");
            shown.left_out.push("etcd");
        }
    }
    let control_plane = Arc::new(runtime.block_on(ControlPlane::start(&[]))?);
    show_found(runtime, &Found::ByControlPlane(Arc::clone(&control_plane)), &mut shown)?;
    let seen = control_plane.seen();
    shown.expect(seen.faults.is_empty() && seen.rejected.is_empty(), || {
        format!("the control plane has seen {:?} and {:?}", seen.faults, seen.rejected)
    });
    Ok(shown)
}

fn show_found(runtime: &Handle, found: &Found, shown: &mut Shown) -> Result<(), RigError> {
    let file = LedgerFile::new()?;
    let mut cluster = Cluster::start(file.path(), [0; SERVERS], found.directory())?;
    let channel = runtime.block_on(channel(&cluster, found))?;
    let load = Load::start(runtime, &channel);
    load.go_on(CALLS_BETWEEN)?;
    all_ready(&channel)?;
    if let Found::InEtcd(_) = found {
        // Longer than an entry lives whose server gives no signs of life.
        std::thread::sleep(Duration::from_secs(2 * TTL_SECONDS + 1));
        let left = channel.endpoints().len();
        shown.expect(left == SERVERS, || format!("{left} of four servers are still registered"));
    }
    for index in 0..SERVERS {
        cluster.shut_down(index)?;
        load.go_on(CALLS_BETWEEN)?;
        cluster.start_one(index, 0)?;
        all_ready(&channel)?;
        load.go_on(CALLS_BETWEEN)?;
    }
    let in_order = load.counts();
    for index in 0..SERVERS {
        cluster.kill(index)?;
        load.go_on(CALLS_BETWEEN)?;
        cluster.start_one(index, 0)?;
        all_ready(&channel)?;
        load.go_on(CALLS_BETWEEN)?;
    }
    let failures = load.failures();
    let counts = load.stop()?;
    tell(found, &in_order, &counts);
    failures.iter().for_each(|failure| println!("    {failure}"));
    judge(shown, &in_order, &counts, &file.entries()?);
    Ok(())
}

impl Found {
    /// Returns the directory of the servers.
    fn directory(&self) -> Directory {
        match self {
            Self::ByAddresses | Self::ByName => Directory::Nowhere,
            Self::InEtcd(etcd) => Directory::Etcd(etcd.clone()),
            Self::ByControlPlane(control_plane) => {
                Directory::ControlPlane(Arc::clone(control_plane))
            }
        }
    }
}

async fn channel(cluster: &Cluster, found: &Found) -> Result<Channel, RigError> {
    let address = match found {
        Found::ByAddresses => cluster.addresses(),
        // The resolver has its own.
        Found::ByName => "dns:///ledger.test".to_owned(),
        Found::InEtcd(etcd) => {
            let etcd = etcd.trim_start_matches("grpc://");
            format!("etcd+tcp://{etcd}{}", PREFIX.trim_end_matches('/'))
        }
        Found::ByControlPlane(control_plane) => {
            format!("xds+tcp://{}/{SERVICE}", control_plane.address())
        }
    };
    let builder = Channel::builder(address.as_str()).map_err(Failure::from)?;
    let builder = builder.scheme(farcall_etcd::scheme()).scheme(farcall_xds::scheme());
    Ok(match found {
        Found::ByAddresses | Found::InEtcd(_) | Found::ByControlPlane(_) => builder.connect_lazy(),
        Found::ByName => builder.connect_with_resolver(servers_by_name(cluster.port()).await?),
    })
}

/// Waits until all servers are connected.
fn all_ready(channel: &Channel) -> Result<(), RigError> {
    until("all four servers are connected", || {
        let endpoints = channel.endpoints();
        let ready =
            endpoints.iter().filter(|it| matches!(it.connectivity, Connectivity::Ready { .. }));
        ready.count() == SERVERS
    })
}

fn tell(found: &Found, in_order: &Counts, counts: &Counts) {
    println!(
        "  servers found {}",
        match found {
            Found::ByAddresses => "by their addresses",
            Found::ByName => "by name (DNS)",
            Found::InEtcd(_) => "in etcd, where they register",
            Found::ByControlPlane(_) => "by a control plane (xDS)",
        }
    );
    for (what, counts) in [("restarted in order", in_order), ("and then killed", counts)] {
        println!(
            "  {what:<19} {:>6} idempotent calls, {} failed; {:>6} others, {} failed: {} not \
             executed, {} may have been, {} without a mark",
            counts.looks + counts.lost_looks,
            counts.lost_looks,
            counts.entries.len(),
            counts.lost_entries(),
            counts.of(Entered::NotExecuted),
            counts.of(Entered::MayHaveExecuted),
            counts.of(Entered::Unmarked),
        );
    }
}

fn judge(shown: &mut Shown, in_order: &Counts, counts: &Counts, entries: &HashMap<u64, u32>) {
    let failed = in_order.lost_entries();
    shown.expect(failed == 0, || {
        format!("{failed} calls failed while servers were restarted in order")
    });
    shown.expect(counts.lost_looks == 0, || {
        format!("{} idempotent calls failed", counts.lost_looks)
    });
    let unmarked = counts.of(Entered::Unmarked);
    shown.expect(unmarked == 0, || format!("{unmarked} calls failed without a mark"));
    let repeated = entries.values().filter(|count| **count > 1).count();
    shown.expect(repeated == 0, || format!("{repeated} calls that must not be were repeated"));
    let has = |end: Entered, is_entered: bool| {
        let mine = counts.entries.iter().filter(|(_, other)| **other == end);
        mine.filter(|(number, _)| entries.contains_key(*number) == is_entered).count()
    };
    let lost = has(Entered::Answered, false);
    shown.expect(lost == 0, || format!("{lost} calls were answered and not executed"));
    let executed = has(Entered::NotExecuted, true);
    shown.expect(executed == 0, || format!("{executed} calls marked as not executed were"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ends: &[Entered]) -> Counts {
        let entries = (0..).zip(ends.iter().copied()).collect();
        Counts { looks: 10, lost_looks: 0, entries }
    }

    fn complaints(in_order: &Counts, counts: &Counts, entries: &[(u64, u32)]) -> Vec<String> {
        let mut shown = Shown::default();
        judge(&mut shown, in_order, counts, &entries.iter().copied().collect());
        shown.complaints
    }

    #[test]
    fn each_rule_can_be_broken() {
        use Entered::{Answered, MayHaveExecuted, NotExecuted, Unmarked};
        let good = counts(&[Answered, MayHaveExecuted, MayHaveExecuted, NotExecuted]);
        let none = complaints(&counts(&[Answered]), &good, &[(0, 1), (1, 1)]);
        assert!(none.is_empty(), "{none:?}");
        let all = [
            (good.clone(), good.clone(), vec![(0, 1)]),
            (counts(&[]), Counts { lost_looks: 1, ..counts(&[]) }, vec![]),
            (counts(&[]), counts(&[Unmarked]), vec![]),
            (counts(&[]), counts(&[Answered]), vec![(0, 2)]),
            (counts(&[]), counts(&[Answered]), vec![]),
            (counts(&[]), counts(&[NotExecuted]), vec![(0, 1)]),
        ];
        for (in_order, counts, entries) in all {
            let complaints = complaints(&in_order, &counts, &entries);
            assert_eq!(complaints.len(), 1, "{complaints:?}");
        }
    }
}
