//! The key by which limits are shared between peers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A peer, as far as its address tells it from others.
///
/// IPv6 networks give a host a /64, from which it may take as many addresses as it likes: all of
/// them are one peer. The port says nothing: a host has as many as it likes, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerKey {
    /// An address of IPv4, also one that is mapped into IPv6.
    V4([u8; 4]),
    /// The first 64 bits of an address of IPv6.
    V6([u8; 8]),
    /// A peer without an address: it is on this machine, and came in over a Unix socket or within
    /// the process. Who may do that was decided by permissions.
    Local,
}

impl PeerKey {
    /// The peer at an address; without one it is on this machine.
    #[must_use]
    pub fn new(peer: Option<SocketAddr>) -> Self {
        match peer.map(|peer| peer.ip().to_canonical()) {
            None => Self::Local,
            Some(IpAddr::V4(address)) => Self::V4(address.octets()),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(octets) => write!(f, "{}", IpAddr::from(*octets)),
            Self::V6(prefix) => {
                let mut octets = [0; 16];
                octets[..8].copy_from_slice(prefix);
                write!(f, "{}/64", Ipv6Addr::from(octets))
            }
            Self::Local => f.write_str("this machine"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(peer: &str) -> PeerKey {
        PeerKey::new(Some(peer.parse().unwrap()))
    }

    #[test]
    fn a_host_is_one_peer_whatever_address_of_its_network_it_takes() {
        assert_eq!(key("192.0.2.1:1"), key("192.0.2.1:2"));
        assert_eq!(key("192.0.2.1:1"), key("[::ffff:192.0.2.1]:1"));
        assert_ne!(key("192.0.2.1:1"), key("192.0.2.2:1"));
        assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::ffff:1:2:3]:9"));
        assert_ne!(key("[2001:db8::1]:1"), key("[2001:db8:0:1::1]:1"));
        assert_eq!(PeerKey::new(None), PeerKey::Local);
    }

    #[test]
    fn its_name_is_an_address() {
        assert_eq!(key("192.0.2.1:1").to_string(), "192.0.2.1");
        assert_eq!(key("[2001:db8:0:1::1]:1").to_string(), "2001:db8:0:1::/64");
    }
}
