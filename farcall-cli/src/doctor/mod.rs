//! `farcall doctor`: names what keeps this host or pod off RDMA, and the command that fixes it.
//!
//! `facts` is a host as plain values. `gather` reads them from files, and `live` asks the system
//! and libibverbs. `devices`, `addresses` and `machine` turn facts into findings and do no I/O.
//! `loopback`, `raw_verbs` and `peer` measure and test paths, and `path` judges what they saw.

mod addresses;
mod devices;
mod facts;
mod files;
mod finding;
mod gather;
#[cfg(test)]
mod gather_tests;
mod live;
mod loopback;
mod machine;
mod path;
mod peer;
#[cfg(test)]
mod peer_tests;
mod raw_verbs;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::Duration;

use farcall::{Rdma, RdmaConfig};
use serde::Serialize;

use self::facts::Facts;
use self::files::Root;
use self::finding::Finding;
use crate::args::{DoctorArgs, Global};
use crate::failure::Failure;
use crate::output::Output;

/// Maximum time for the answers of libibverbs and the drivers.
const VERBS_LIMIT: Duration = Duration::from_secs(20);

/// Exit code of a host that cannot use RDMA.
const CANNOT_WORK: u8 = 1;

/// The output of `--format json`.
#[derive(Debug, Serialize)]
struct Report {
    works: bool,
    checks: Vec<Finding>,
    facts: Facts,
}

pub(crate) async fn run(
    global: &Global,
    args: &DoctorArgs,
    output: &Output,
) -> Result<u8, Failure> {
    let rdma = handle();
    let peer = args.peer.as_deref().map(|target| peer::Peer::new(global, target, &rdma));
    let peer = peer.transpose()?;
    let route = match &peer {
        Some(peer) => peer.local_address().await,
        None => None,
    };
    let facts = gather_all(rdma.clone(), args.address.or(route)).await?;
    let mut checks = host(&facts);
    let mut works = facts.addresses.iter().any(|it| it.port.is_some());
    if let Some(served) = facts.addresses.iter().find(|it| it.port.is_some()) {
        works &= test_here(&rdma, &facts, served.address, &mut checks).await;
    }
    if let Some(peer) = peer {
        works &= peer.examine(global, &mut checks).await;
    }
    let code = if works { 0 } else { CANNOT_WORK };
    if output.is_json() {
        output.value(&Report { works, checks, facts })?;
        return Ok(code);
    }
    output.line(&format!("farcall doctor on Linux {}", facts.kernel))?;
    for line in checks.iter().flat_map(Finding::lines) {
        output.line(&line)?;
    }
    Ok(code)
}

/// A handle with one lane. Both ends of the loopback are in this process, and under a low limit on
/// locked memory there is room for one lane.
fn handle() -> Rdma {
    Rdma::new(RdmaConfig::default().with_lanes(Some(1)))
}

/// Reads all facts of this host. Drivers may hang, so they get a thread and a bound.
async fn gather_all(rdma: Rdma, wanted: Option<IpAddr>) -> Result<Facts, Failure> {
    let gather = move || {
        let mut facts = gather::gather(&Root::new("/"));
        live::add_addresses(&mut facts);
        live::add_verbs(&mut facts, &rdma, wanted);
        facts
    };
    match tokio::time::timeout(VERBS_LIMIT, tokio::task::spawn_blocking(gather)).await {
        Ok(Ok(facts)) => Ok(facts),
        Ok(Err(error)) => Err(Failure::usage(format!("the facts cannot be read: {error}"))),
        Err(_) => {
            let limit = VERBS_LIMIT.as_secs();
            let message = format!("a driver did not answer within {limit} s: see `dmesg`");
            Err(Failure::usage(message))
        }
    }
}

/// The findings about this host. Pure.
fn host(facts: &Facts) -> Vec<Finding> {
    let mut findings = devices::library(facts);
    findings.extend(devices::devices(facts));
    findings.extend(devices::mtu(facts));
    findings.extend(addresses::gids(facts));
    findings.extend(machine::machine(facts));
    findings.extend(addresses::addresses(facts));
    findings
}

/// Tests a path from this host to itself, and compares it with raw verbs. Returns false if the
/// path does not work.
async fn test_here(rdma: &Rdma, facts: &Facts, address: IpAddr, checks: &mut Vec<Finding>) -> bool {
    let measured = match loopback::measure(rdma, address).await {
        Ok(measured) => measured,
        Err(reason) => {
            let text = format!("a connection from {address} to itself failed: {reason}");
            checks.push(path::host_fault(&text));
            return false;
        }
    };
    checks.push(Finding::ok("loopback", measured.describe(address)));
    checks.push(match checks.iter().any(Finding::is_fault) {
        // A faulty host compares badly, and slowly.
        true => Finding::note("raw verbs", "not compared: a fault above comes first"),
        false => raw_verbs::compare(facts, address, &measured).await,
    });
    true
}
