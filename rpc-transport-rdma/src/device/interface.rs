//! The GID in the hardware address of a network interface (IP over InfiniBand).

use std::fs;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use crate::verbs::Gid;

/// The GID in the hardware address of the interface that has an address, if that interface is IP
/// over InfiniBand.
pub(super) fn infiniband_gid_of(address: IpAddr) -> Option<Gid> {
    let interfaces = getifaddrs().ok()?;
    let mut interfaces = interfaces.filter(|it| it.address.and_then(ip_of) == Some(address));
    let name = interfaces.next()?.interface_name;
    let text = fs::read_to_string(format!("/sys/class/net/{name}/address")).ok()?;
    gid_in_hardware_address(&text)
}

fn ip_of(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

/// An IP over InfiniBand hardware address is 4 bytes and then the port's GID (RFC 4391, 9.1.1).
pub(super) fn gid_in_hardware_address(text: &str) -> Option<Gid> {
    let bytes: Result<Vec<u8>, _> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    let bytes: [u8; 20] = bytes.ok()?.try_into().ok()?;
    bytes[4..].try_into().ok().map(Gid)
}
