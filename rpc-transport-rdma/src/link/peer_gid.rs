//! Checks that the GID in a peer's offer can belong to the host that sent it.
//!
//! The GID of an offer is where this host's device will send packets to, and the kernel resolves it
//! first. A forged one makes this host send RoCE packets to a third host, to all hosts of a link,
//! or to a multicast group. On Ethernet a RoCE v2 GID is an IP address, so it is compared with the
//! address that the bootstrap's connection has its peer at, which the peer has proven by answering
//! there. It is compared before anything of the path exists. Pure.
//!
//! Deliberately not here: InfiniBand, where a port is addressed by its LID within the subnet and
//! a GID is no address; and whether the two ends fit each other, which [`Endpoint`] knows.

use std::net::IpAddr;

use rpc_core::connect::Declined;
use rpc_core::transport::Addresses;

use crate::PortChoice;
use crate::verbs::{Endpoint, Gid, LinkLayer};

/// The GIDs that the peer of one connection may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerGid {
    /// The one that is the peer's address on the bootstrap, if that is known.
    Address(Option<IpAddr>),
    /// Any GID of a single host: ports are not chosen by the connection's addresses.
    AnyHost,
}

impl PeerGid {
    /// The rule for the peer at the other end of `addresses`.
    pub(crate) fn of(addresses: &Addresses, choice: PortChoice) -> Self {
        match choice {
            // A scope is not a part of a GID: the device's port has the interface already.
            PortChoice::Address => Self::Address(addresses.peer.map(|peer| peer.ip())),
            PortChoice::Nearest => Self::AnyHost,
        }
    }

    /// Checks where the peer says it is.
    ///
    /// # Errors
    ///
    /// [`Declined`] names both addresses.
    pub(crate) fn check(self, peer: &Endpoint) -> Result<(), Declined> {
        if peer.link_layer == LinkLayer::InfiniBand {
            return Ok(());
        }
        let gid = peer.gid;
        match self {
            Self::Address(Some(address)) if gid == Gid::from_ip(address) => Ok(()),
            Self::Address(Some(address)) => Err(Declined::new(format!(
                "the peer is at {}, but its RDMA port is said to be at {gid} \
                 (rdma.port_choice is address)",
                address.to_canonical()
            ))),
            Self::Address(None) => Err(Declined::new(format!(
                "the peer's RDMA port is said to be at {gid}, but the connection has no IP address \
                 to compare that with"
            ))),
            Self::AnyHost if is_of_one_host(gid.to_ip()) => Ok(()),
            Self::AnyHost => Err(Declined::new(format!(
                "the peer's RDMA port is said to be at {gid}, which is no host's address"
            ))),
        }
    }
}

/// Returns true if an address can belong to a single host.
fn is_of_one_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || is_broadcast)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, SocketAddrV6};

    use proptest::prelude::*;

    use super::*;
    use crate::verbs::{Mtu, ReadDepths};

    fn at(gid: Gid) -> Endpoint {
        Endpoint {
            queue_pair_number: 17,
            packet_sequence_number: 5,
            gid,
            lid: 0,
            mtu: Mtu::B4096,
            reads: ReadDepths::Same(16),
            link_layer: LinkLayer::Ethernet,
            partition_key: None,
            needs_global_route: false,
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn rule(peer: SocketAddr, choice: PortChoice) -> PeerGid {
        PeerGid::of(&Addresses { peer: Some(peer), ..Addresses::default() }, choice)
    }

    fn declined(peer: &str, gid: &str, choice: PortChoice) -> Option<String> {
        let rule = rule((ip(peer), 7000).into(), choice);
        rule.check(&at(Gid::from_ip(ip(gid)))).err().map(|declined| declined.reason)
    }

    #[test]
    fn a_peer_is_where_its_connection_comes_from() {
        let declined = |peer, gid| declined(peer, gid, PortChoice::Address);
        for (peer, gid) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8::7", "2001:db8::7"),
            ("fe80::1", "fe80::1"),
        ] {
            assert_eq!(declined(peer, gid), None);
        }
        for gid in ["10.0.0.2", "255.255.255.255", "224.0.0.1", "0.0.0.0", "ff02::1", "::", "::1"] {
            let reason = declined("10.0.0.1", gid).expect(gid);
            assert!(reason.contains("10.0.0.1") && reason.contains(gid), "{reason}");
        }
    }

    #[test]
    fn a_link_local_address_is_compared_without_its_scope() {
        let scoped = SocketAddrV6::new("fe80::1".parse().unwrap(), 7000, 0, 3);
        let rule = rule(scoped.into(), PortChoice::Address);
        assert_eq!(rule.check(&at(Gid::from_ip(ip("fe80::1")))), Ok(()));
    }

    #[test]
    fn ports_that_are_chosen_otherwise_are_still_those_of_one_host() {
        let declined = |gid| declined("10.0.0.1", gid, PortChoice::Nearest);
        for gid in ["10.1.0.9", "2001:db8::7", "fe80::1"] {
            assert_eq!(declined(gid), None);
        }
        for gid in ["255.255.255.255", "224.0.0.1", "0.0.0.0", "ff02::1", "::"] {
            assert!(declined(gid).expect(gid).contains("no host's address"));
        }
    }

    #[test]
    fn a_gid_of_infiniband_is_no_address() {
        let infiniband = Endpoint { link_layer: LinkLayer::InfiniBand, lid: 9, ..at(Gid([3; 16])) };
        assert_eq!(PeerGid::Address(Some(ip("10.0.0.1"))).check(&infiniband), Ok(()));
    }

    proptest! {
        #[test]
        fn no_other_gid_is_taken(peer in any::<[u8; 16]>(), gid in any::<[u8; 16]>()) {
            let rule = PeerGid::Address(Some(IpAddr::from(peer)));
            prop_assert_eq!(rule.check(&at(Gid(gid))).is_ok(), peer == gid);
            prop_assert_eq!(rule.check(&at(Gid(peer))), Ok(()));
            prop_assert!(PeerGid::Address(None).check(&at(Gid(gid))).is_err());
        }
    }
}
