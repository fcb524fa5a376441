//! The facts that no file has: addresses of interfaces, and devices as libibverbs opens them.

use std::net::{IpAddr, Ipv4Addr};

use farcall::Rdma;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use super::facts::{Address, Device, Facts, Interface, LibraryFault, Opened};

/// Addresses of interfaces that are read.
const INTERFACE_ADDRESSES_MAX: usize = 1_024;

/// Addresses that a port is looked for.
const ADDRESSES_MAX: usize = 32;

/// Adds the addresses of this network namespace.
pub(crate) fn add_addresses(facts: &mut Facts) {
    let Ok(found) = getifaddrs() else { return };
    for entry in found.take(INTERFACE_ADDRESSES_MAX) {
        let Some(address) = entry.address.as_ref().and_then(ip) else { continue };
        let known = facts.interfaces.iter_mut().find(|it| it.name == entry.interface_name);
        match known {
            Some(interface) => interface.addresses.push(address),
            None => facts.interfaces.push(Interface {
                name: entry.interface_name,
                mtu: None,
                addresses: vec![address],
            }),
        }
    }
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// Adds what libibverbs says of the devices, and farcall's own search for a port by each local
/// address, or by `wanted` alone. It may block for as long as a driver does.
pub(crate) fn add_verbs(facts: &mut Facts, rdma: &Rdma, wanted: Option<IpAddr>) {
    match rdma.survey() {
        Err(error) => {
            let (reason, is_missing) = (error.to_string(), error.is_library_missing());
            facts.library_fault = Some(LibraryFault { reason, is_missing });
        }
        Ok(survey) => {
            for surveyed in survey {
                // A device may have come since its files were read.
                let Some(device) = device(facts, &surveyed.name) else { continue };
                for port in &surveyed.ports {
                    let known = device.ports.iter_mut().find(|it| it.number == port.number);
                    if let Some(known) = known {
                        known.mtu = Some(port.active_mtu);
                    }
                }
                device.opened = Some(Opened {
                    fault: surveyed.fault,
                    read_defect: surveyed.read_defect,
                    max_reads: surveyed.max_reads,
                    max_shared_receives: surveyed.max_shared_receives,
                    max_windows: surveyed.max_windows,
                });
            }
        }
    }
    facts.is_address_given = wanted.is_some();
    let addresses = wanted.map_or_else(|| candidates(facts), |address| vec![address]);
    facts.addresses = addresses.into_iter().map(|address| search(rdma, address)).collect();
}

fn device<'a>(facts: &'a mut Facts, name: &str) -> Option<&'a mut Device> {
    facts.devices.iter_mut().find(|device| device.name == name)
}

/// The local addresses that another host could connect to, or one that tells why RDMA cannot work.
fn candidates(facts: &Facts) -> Vec<IpAddr> {
    let all = facts.interfaces.iter().flat_map(|interface| &interface.addresses).copied();
    let is_reachable = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    };
    let mut found: Vec<_> = all.filter(is_reachable).take(ADDRESSES_MAX).collect();
    if found.is_empty() {
        found.push(Ipv4Addr::LOCALHOST.into());
    }
    found
}

fn search(rdma: &Rdma, address: IpAddr) -> Address {
    match rdma.port_at(address) {
        Ok(port) => Address { address, port: Some(port), reason: None },
        Err(error) => Address { address, port: None, reason: Some(error.to_string()) },
    }
}
