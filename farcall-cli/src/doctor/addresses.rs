//! Findings about GIDs and the addresses that ports serve. Pure.

use std::net::IpAddr;

use super::devices::exclusive;
use super::facts::{Container, Device, Facts, Gid, Port};
use super::finding::{Cause, Finding, Mark};

/// Most addresses in one line.
const SHOWN_MAX: usize = 8;

/// The findings about the GID tables of active Ethernet ports.
pub(crate) fn gids(facts: &Facts) -> Vec<Finding> {
    let is_own = |gid: &Gid| facts.is_local(gid.address);
    let ports: Vec<_> = facts
        .ports()
        .filter(|(device, port)| {
            let is_open = device.opened.as_ref().is_some_and(|it| it.fault.is_none());
            is_open && port.is_active() && port.is_ethernet()
        })
        .collect();
    let has_own = ports.iter().any(|(_, port)| serving(port).any(is_own));
    let mut findings = Vec::new();
    for (device, port) in ports {
        let place = format!("{}:{}", device.name, port.number);
        let foreign: Vec<_> = serving(port).filter(|gid| !is_own(gid)).collect();
        if port.gids.is_empty() {
            findings.push(empty_table(facts, &place));
        } else if !foreign.is_empty() && !has_own {
            findings.push(behind_nat(facts, &place, &foreign));
        } else if !foreign.is_empty() {
            findings.push(foreign_gids(&place, &foreign));
        }
        if let Some(gid) = serving(port).filter(|gid| is_own(gid)).find(|gid| has_gap(port, gid)) {
            findings.push(late_index(&place, gid));
        }
        if foreign.is_empty() && !port.gids.is_empty() && serving(port).next().is_none() {
            findings.push(no_address(device, port, &place));
        }
    }
    findings
}

/// The GIDs that a connection between hosts can use.
fn serving(port: &Port) -> impl Iterator<Item = &Gid> {
    port.gids.iter().filter(|gid| gid.is_roce_v2() && !gid.is_link_local())
}

/// Returns true if an entry before this one is empty.
fn has_gap(port: &Port, gid: &Gid) -> bool {
    let before = port.gids.iter().filter(|other| other.index < gid.index).count();
    before < usize::from(gid.index)
}

fn empty_table(facts: &Facts, place: &str) -> Finding {
    if facts.is_netns_exclusive == Some(true) {
        return exclusive(&format!("the GID table of {place} is empty in this network namespace"));
    }
    let text = format!("the GID table of {place} is empty: its interface is in another namespace");
    let fault = Finding::fault("gids", Cause::GidTable, text);
    match facts.container {
        Some(_) => fault.fix("kubectl apply -f deploy/kubernetes/sriov.yaml   # moves a function"),
        None => fault.fix("rdma link show; ip -brief address   # gives its interface an address"),
    }
}

fn behind_nat(facts: &Facts, place: &str, foreign: &[&Gid]) -> Finding {
    let text = format!(
        "{place} has addresses of the host alone ({}), and this network namespace is behind NAT: \
         a handshake would succeed and no byte would move",
        list(foreign)
    );
    let fault = Finding::fault("gids", Cause::Nat, text);
    match facts.container {
        Some(Container::Kubernetes) => {
            fault.fix("kubectl apply -f deploy/kubernetes/sriov.yaml   # or `hostNetwork: true`")
        }
        Some(Container::Podman) => fault.fix("podman run --network host .."),
        Some(Container::Docker) | None => fault.fix("docker run --network host .."),
    }
}

fn foreign_gids(place: &str, foreign: &[&Gid]) -> Finding {
    let text = format!(
        "{place} has GIDs of other containers: {}. farcall goes by the address, and other tools by \
         the index",
        list(foreign)
    );
    Finding::advice("gids", Cause::ForeignGid, text)
        .fix("grep -n gid_index farcall.toml   # remove it: farcall chooses by the address")
}

fn late_index(place: &str, gid: &Gid) -> Finding {
    let text = format!(
        "the GIDs of {place} do not start at 0: {} is at index {}, behind an empty entry",
        gid.address, gid.index
    );
    Finding::advice("gids", Cause::GidIndex, text)
        .fix(format!("ib_send_lat -x {}   # tools need the index, and farcall none", gid.index))
}

fn no_address(device: &Device, port: &Port, place: &str) -> Finding {
    let interface = device.interfaces.first().map_or("INTERFACE", String::as_str);
    let kinds = match port.gids.iter().any(Gid::is_roce_v2) {
        true => "link-local addresses alone",
        false => "GIDs of RoCE v1 alone",
    };
    Finding::fault("gids", Cause::NoGid, format!("{place} has {kinds}"))
        .fix(format!("ip address add 10.0.0.1/24 dev {interface}   # an address of your network"))
}

/// The GIDs with their places.
fn list(gids: &[&Gid]) -> String {
    let shown = gids.iter().take(SHOWN_MAX).map(|gid| format!("{} at {}", gid.address, gid.index));
    let more = gids.len().saturating_sub(SHOWN_MAX);
    let more = (more > 0).then(|| format!("{more} more"));
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

/// The findings about the addresses that connections may have, and the verdict.
pub(crate) fn addresses(facts: &Facts) -> Vec<Finding> {
    let served: Vec<IpAddr> =
        facts.addresses.iter().filter(|it| it.port.is_some()).map(|it| it.address).collect();
    let has_devices = facts.devices.iter().any(|device| device.opened.is_some());
    let mut findings = Vec::new();
    for entry in &facts.addresses {
        let address = entry.address;
        let (text, is_served) = match (&entry.port, &entry.reason) {
            (Some(port), _) => (format!("{address} is served by {port}"), true),
            (None, reason) => {
                (format!("{address}: {}", reason.as_deref().unwrap_or("no port")), false)
            }
        };
        findings.push(match is_served {
            true => Finding::ok("address", text),
            // Without a device or the library the reason is the same for all, and the verdict's.
            false if !facts.is_address_given && !has_devices => continue,
            false if !facts.is_address_given => Finding::note("address", text),
            false => unserved(facts, text, address),
        });
    }
    findings.push(verdict(facts, &served));
    findings
}

fn unserved(facts: &Facts, text: String, address: IpAddr) -> Finding {
    let own = |gid: &Gid| facts.is_local(gid.address);
    let others: Vec<_> = facts
        .ports()
        .flat_map(|(_, port)| serving(port))
        .filter(|gid| own(gid) && gid.address != address)
        .take(SHOWN_MAX)
        .map(|gid| format!("auto://{}:PORT", gid.address))
        .collect();
    let fault = Finding::fault("address", Cause::NoGid, text);
    match others.is_empty() {
        false => {
            fault.fix(format!("farcall ping {}   # an address of a port", others.join(" or ")))
        }
        true => {
            let interface = facts.devices.iter().find_map(|it| it.interfaces.first());
            let interface = interface.map_or("INTERFACE", String::as_str);
            // An address of this host is another interface's: a second one there would cut it off.
            let (added, note) = match facts.is_local(address) {
                true => ("10.0.0.1/24".to_owned(), "   # an address of the RDMA network; use it"),
                false => (format!("{address}/{}", if address.is_ipv4() { 24 } else { 64 }), ""),
            };
            fault.fix(format!("ip address add {added} dev {interface}{note}"))
        }
    }
}

fn verdict(facts: &Facts, served: &[IpAddr]) -> Finding {
    if !served.is_empty() {
        let shown: Vec<_> = served.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
        return Finding::ok("rdma://", format!("can be offered at {}", shown.join(", ")));
    }
    let reason = facts.addresses.iter().find_map(|it| it.reason.as_deref());
    let reason = reason.or_else(|| facts.library_fault.as_ref().map(|it| it.reason.as_str()));
    let text = reason.unwrap_or("no local address is that of an RDMA port");
    Finding { mark: Mark::Fault, ..Finding::ok("rdma://", format!("cannot work here: {text}")) }
}
