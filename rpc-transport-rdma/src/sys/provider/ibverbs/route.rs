//! The network interface that packets to a peer leave by.
//!
//! Here because a GID table may have an address several times, each entry of another interface,
//! and only the system's routes tell which entry reaches a peer. One question to the kernel on a
//! netlink socket, which answers at once.

use std::fs;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::net::if_::if_indextoname;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// `RTM_NEWROUTE` and `RTM_GETROUTE` of rtnetlink(7).
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;

/// `NLM_F_REQUEST` of netlink(7).
const REQUEST: u16 = 1;

/// `RTA_DST`, `RTA_SRC` and `RTA_OIF` of rtnetlink(7).
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const INTERFACE: u16 = 4;

/// Length of `struct nlmsghdr`, and of that with the `struct rtmsg` behind it.
const HEADER_LEN: usize = 16;
const ROUTE_LEN: usize = HEADER_LEN + 12;

/// Longer than a route with all its attributes.
const ANSWER_LEN_MAX: usize = 4096;

/// The interface by which packets from `local` to `peer` leave, or `None` where the system does
/// not say.
pub(super) fn interface_to(local: IpAddr, peer: IpAddr) -> Option<u32> {
    let request = request(local, peer)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let protocol = SockProtocol::NetlinkRoute;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol).ok()?;
    send(socket.as_raw_fd(), &request, MsgFlags::empty()).ok()?;
    let mut answer = [0; ANSWER_LEN_MAX];
    // The kernel has answered when `send` returns.
    let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT).ok()?;
    interface_in(answer.get(..len)?)
}

/// The MTU of an interface in bytes, or `None` where the system does not say: the interface may
/// belong to another network namespace.
pub(super) fn interface_mtu(interface: u32) -> Option<u32> {
    let name = if_indextoname(interface).ok()?;
    let text = fs::read_to_string(format!("/sys/class/net/{}/mtu", name.to_str().ok()?)).ok()?;
    text.trim().parse().ok()
}

/// A question for the route from one address to another, of one family.
fn request(local: IpAddr, peer: IpAddr) -> Option<Vec<u8>> {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let family = match (local, peer) {
        (IpAddr::V4(_), IpAddr::V4(_)) => libc::AF_INET,
        (IpAddr::V6(_), IpAddr::V6(_)) => libc::AF_INET6,
        _ => return None,
    };
    let (source, destination) = (octets(local), octets(peer));
    let bits = u8::try_from(destination.len() * 8).ok()?;
    // Behind the header: family, lengths of the prefixes, and what the kernel fills in.
    let mut body = vec![u8::try_from(family).ok()?, bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (kind, value) in [(DESTINATION, &destination), (SOURCE, &source)] {
        let len = u16::try_from(4 + value.len()).ok()?;
        body.extend(len.to_ne_bytes().into_iter().chain(kind.to_ne_bytes()));
        body.extend(value);
    }
    let len = u32::try_from(HEADER_LEN + body.len()).ok()?;
    let mut request = len.to_ne_bytes().to_vec();
    request.extend(GET_ROUTE.to_ne_bytes().into_iter().chain(REQUEST.to_ne_bytes()));
    // The sequence number and the sender, which one question needs not tell apart.
    request.extend([0; 8]);
    request.extend(body);
    Some(request)
}

/// The outgoing interface of the route in an answer.
fn interface_in(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != NEW_ROUTE {
        return None;
    }
    let mut attributes = answer.get(ROUTE_LEN..)?;
    loop {
        let len = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..len)?;
        if kind == INTERFACE {
            return Some(u32::from_ne_bytes(value.try_into().ok()?));
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// An answer with a table, which is of no interest, and an interface.
    fn answer(kind: u16, interface: u32) -> Vec<u8> {
        let mut bytes = vec![0; ROUTE_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        for (len, attribute, value) in [(5_u16, 15_u16, 7_u32), (8, INTERFACE, interface)] {
            bytes.extend(len.to_ne_bytes().into_iter().chain(attribute.to_ne_bytes()));
            bytes.extend(value.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn the_interface_is_an_attribute_of_the_route() {
        assert_eq!(interface_in(&answer(NEW_ROUTE, 9)), Some(9));
        assert_eq!(interface_in(&answer(2, 9)), None, "an error");
        let whole = answer(NEW_ROUTE, 9);
        for len in 0..whole.len() {
            assert_eq!(interface_in(&whole[..len]), None, "cut to {len}");
        }
        let mut endless = whole;
        endless[ROUTE_LEN..ROUTE_LEN + 2].fill(0);
        assert_eq!(interface_in(&endless), None, "an attribute shorter than its head");
    }

    #[test]
    fn a_question_names_both_ends_of_one_family() {
        assert_eq!(request(LOCALHOST, "::1".parse().unwrap()), None);
        let request = request(LOCALHOST, "10.0.0.2".parse().unwrap()).unwrap();
        assert_eq!(request.len(), ROUTE_LEN + 16);
        assert_eq!(request[ROUTE_LEN + 4..ROUTE_LEN + 8], [10, 0, 0, 2]);
        assert_eq!(request[ROUTE_LEN + 12..], [127, 0, 0, 1]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn the_system_names_an_interface_that_exists_or_none() {
        if let Some(interface) = interface_to(LOCALHOST, LOCALHOST) {
            let name = if_indextoname(interface).unwrap();
            assert_eq!(name.to_str(), Ok("lo"));
            assert!(interface_mtu(interface).is_some_and(|mtu| mtu >= 1280));
        }
    }
}
