//! The path between two queue pairs: what its ends agree on, and its parameters. Pure.

use rpc_core::InvalidSetting;

use crate::ConnectOptions;
use crate::proto::endpoint::{Endpoint, Gid, LinkLayer, Mtu};
use crate::sys::provider::{Partition, VerbsError};

/// The greatest LID of a single port; those above are groups (InfiniBand, 4.1.3).
const UNICAST_LID_MAX: u16 = 0xbfff;

/// Numbers of queue pairs and packets have 24 bits.
pub(crate) const NUMBER_24_MAX: u32 = 0x00ff_ffff;

/// The parameters that two endpoints agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreement {
    /// The path MTU.
    pub mtu: Mtu,
    /// READs that the peer may have outstanding here.
    pub reads_in: u8,
    /// READs that may be outstanding at the peer.
    pub reads_out: u8,
}

/// Everything that a provider needs to connect a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathAttributes {
    /// The port that is used here.
    pub port: u8,
    /// Position of the GID in that port's table.
    pub gid_index: u8,
    /// Sequence number of our first packet.
    pub packet_sequence_number: u32,
    /// The peer.
    pub remote: Endpoint,
    /// The agreed parameters.
    pub agreement: Agreement,
    /// Traffic class of our packets, where they have a global header.
    pub traffic_class: u8,
    /// True if packets have a global header, beside the local one on InfiniBand.
    pub is_global: bool,
    /// True if the peer may read memory of this end through the queue pair.
    pub serves_reads: bool,
    /// Timeouts and retries.
    pub options: ConnectOptions,
}

/// Why a queue pair could not be connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The peer's endpoint has a value that cannot be.
    #[error("the peer's endpoint has an invalid {field}: {value}")]
    InvalidEndpoint {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// One end is on InfiniBand and the other on Ethernet.
    #[error("the link layers differ: {local:?} here, {remote:?} at the peer")]
    LinkLayerMismatch {
        /// Here.
        local: LinkLayer,
        /// There.
        remote: LinkLayer,
    },
    /// Both ends are on InfiniBand, in subnets that only a router joins. A path through one is
    /// not supported: its LIDs would have to come from the subnet's manager.
    #[error("the InfiniBand subnets differ: {local} here, {remote} at the peer")]
    SubnetMismatch {
        /// The GID here.
        local: Gid,
        /// The GID there.
        remote: Gid,
    },
    /// Both ends are on InfiniBand, in partitions between which no packet passes.
    #[error("the partitions do not match: {local:#06x} here, {remote:#06x} at the peer")]
    PartitionMismatch {
        /// The key here.
        local: u16,
        /// The key there.
        remote: u16,
    },
    /// Both ends are on Ethernet, one with an IPv4 address and the other with an IPv6 address.
    #[error("the GIDs are of two address families: {local} here, {remote} at the peer")]
    FamilyMismatch {
        /// The GID here.
        local: Gid,
        /// The GID there.
        remote: Gid,
    },
    /// An option is outside its range.
    #[error(transparent)]
    InvalidOption(#[from] InvalidSetting),
    /// The queue pair was connected or halted before.
    #[error("the queue pair has been connected or halted before")]
    NotInitial,
    /// The device refused.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

impl Endpoint {
    /// Returns the parameters that this end and its peer both support.
    ///
    /// # Errors
    ///
    /// Returns [`ConnectError::InvalidEndpoint`] if the peer's values, which came over the network,
    /// are impossible, and one of the mismatches if no path joins the two.
    pub fn agree(&self, remote: &Self) -> Result<Agreement, ConnectError> {
        let invalid = |field, value| Err(ConnectError::InvalidEndpoint { field, value });
        let number = remote.queue_pair_number;
        if number == 0 || number > NUMBER_24_MAX {
            return invalid("queue pair number", number);
        }
        if remote.packet_sequence_number > NUMBER_24_MAX {
            return invalid("packet sequence number", remote.packet_sequence_number);
        }
        if remote.reads.least() == 0 {
            return invalid("number of READs", 0);
        }
        self.check_addresses(remote)?;
        let (reads_in, reads_out) = self.reads.agree(remote.reads);
        Ok(Agreement { mtu: self.mtu.min(remote.mtu), reads_in, reads_out })
    }

    /// Checks that a path can join the two: by LIDs within one InfiniBand subnet, or by the
    /// GIDs of RoCE v2, which are addresses of one family.
    fn check_addresses(&self, remote: &Self) -> Result<(), ConnectError> {
        let (here, there) = (self.gid, remote.gid);
        match (self.link_layer, remote.link_layer) {
            (LinkLayer::InfiniBand, LinkLayer::InfiniBand) => {
                if !(1..=UNICAST_LID_MAX).contains(&remote.lid) {
                    return Err(ConnectError::InvalidEndpoint {
                        field: "LID",
                        value: remote.lid.into(),
                    });
                }
                if here.subnet_prefix() != there.subnet_prefix() {
                    return Err(ConnectError::SubnetMismatch { local: here, remote: there });
                }
                if let (Some(local), Some(remote)) = (self.partition_key, remote.partition_key)
                    && !Partition::joins(local, remote)
                {
                    return Err(ConnectError::PartitionMismatch { local, remote });
                }
            }
            (LinkLayer::Ethernet, LinkLayer::Ethernet) => {
                if here.to_ip().is_ipv4() != there.to_ip().is_ipv4() {
                    return Err(ConnectError::FamilyMismatch { local: here, remote: there });
                }
            }
            (local, remote) => return Err(ConnectError::LinkLayerMismatch { local, remote }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::endpoint::ReadDepths;

    fn endpoint() -> Endpoint {
        Endpoint {
            queue_pair_number: 17,
            packet_sequence_number: 5,
            gid: Gid::default(),
            lid: 0,
            mtu: Mtu::B4096,
            reads: ReadDepths::Same(16),
            link_layer: LinkLayer::Ethernet,
            partition_key: None,
            needs_global_route: false,
        }
    }

    #[test]
    fn both_ends_agree_on_the_smaller_values() {
        let remote = Endpoint { mtu: Mtu::B1024, reads: ReadDepths::Same(4), ..endpoint() };
        let agreement = endpoint().agree(&remote).unwrap();
        assert_eq!(agreement, Agreement { mtu: Mtu::B1024, reads_in: 4, reads_out: 4 });
        assert_eq!(remote.agree(&endpoint()).unwrap(), agreement);
    }

    #[test]
    fn reads_of_each_way_have_a_number_of_their_own() {
        let apart = |responder, initiator| Endpoint {
            reads: ReadDepths::Apart { responder, initiator },
            ..endpoint()
        };
        let reads = |local: Endpoint, remote| {
            let Agreement { reads_in, reads_out, .. } = local.agree(&remote).unwrap();
            (reads_in, reads_out)
        };
        assert_eq!(reads(apart(16, 128), apart(64, 32)), (16, 64));
        assert_eq!(reads(apart(64, 32), apart(16, 128)), (64, 16));
        // A peer of before takes the least of all, and so does its own peer.
        let before = endpoint();
        assert_eq!(reads(apart(8, 128), before), (8, 8));
        assert_eq!(reads(before, apart(8, 128)), (8, 8));
        assert_eq!(reads(apart(128, 128), before), (16, 16));
    }

    #[test]
    fn an_impossible_endpoint_is_refused() {
        let bad = [
            Endpoint { queue_pair_number: 0, ..endpoint() },
            Endpoint { queue_pair_number: 1 << 24, ..endpoint() },
            Endpoint { packet_sequence_number: 1 << 24, ..endpoint() },
            Endpoint { reads: ReadDepths::Same(0), ..endpoint() },
            Endpoint { reads: ReadDepths::Apart { responder: 0, initiator: 1 }, ..endpoint() },
            Endpoint { reads: ReadDepths::Apart { responder: 1, initiator: 0 }, ..endpoint() },
            Endpoint { link_layer: LinkLayer::InfiniBand, lid: 3, ..endpoint() },
        ];
        for remote in bad {
            assert!(endpoint().agree(&remote).is_err(), "{remote:?}");
        }
    }

    fn on(link_layer: LinkLayer, gid: &str, lid: u16) -> Endpoint {
        Endpoint { link_layer, gid: Gid::from_ip(gid.parse().unwrap()), lid, ..endpoint() }
    }

    #[test]
    fn lids_join_ends_of_one_subnet() {
        let infiniband = |gid, lid| on(LinkLayer::InfiniBand, gid, lid);
        let local = infiniband("fe80::2:c903:1d:2a31", 3);
        for lid in [1, 0xbfff] {
            local.agree(&infiniband("fe80::2:c903:1d:2a32", lid)).unwrap();
        }
        for lid in [0, 0xc000, 0xffff] {
            let error = local.agree(&infiniband("fe80::2:c903:1d:2a32", lid)).unwrap_err();
            assert!(matches!(error, ConnectError::InvalidEndpoint { field: "LID", .. }), "{error}");
        }
        let elsewhere = infiniband("fec0:0:0:1::2", 4);
        let error = local.agree(&elsewhere).unwrap_err();
        assert!(matches!(error, ConnectError::SubnetMismatch { .. }), "{error}");
    }

    #[test]
    fn partitions_join_ends_of_which_one_is_a_full_member() {
        let member = |key| Endpoint {
            partition_key: key,
            ..on(LinkLayer::InfiniBand, "fe80::2:c903:1d:2a31", 3)
        };
        for (here, there) in [(0xffff, 0xffff), (0x8001, 0x0001)] {
            member(Some(here)).agree(&member(Some(there))).unwrap();
        }
        member(Some(0x8001)).agree(&member(None)).expect("an older peer does not say");
        for (here, there) in [(0x0001, 0x0001), (0x8001, 0xffff)] {
            let error = member(Some(here)).agree(&member(Some(there))).unwrap_err();
            assert!(matches!(error, ConnectError::PartitionMismatch { .. }), "{error}");
        }
    }

    #[test]
    fn gids_join_ends_of_one_address_family() {
        let ethernet = |gid| on(LinkLayer::Ethernet, gid, 0);
        ethernet("10.0.0.1").agree(&ethernet("192.168.7.1")).unwrap();
        ethernet("2001:db8::1").agree(&ethernet("2001:db8:1::1")).unwrap();
        let error = ethernet("10.0.0.1").agree(&ethernet("2001:db8::1")).unwrap_err();
        assert!(matches!(error, ConnectError::FamilyMismatch { .. }), "{error}");
    }

    #[test]
    fn infiniband_and_ethernet_are_not_joined() {
        let (infiniband, ethernet) =
            (on(LinkLayer::InfiniBand, "fe80::1", 3), on(LinkLayer::Ethernet, "fe80::1", 0));
        for (local, remote) in [(infiniband, ethernet), (ethernet, infiniband)] {
            let error = local.agree(&remote).unwrap_err();
            assert!(matches!(error, ConnectError::LinkLayerMismatch { .. }), "{error}");
        }
    }

    #[test]
    fn an_infinite_retry_count_and_the_slow_timer_are_refused() {
        ConnectOptions::default().check().unwrap();
        let seven = ConnectOptions { retry_count: 7, ..Default::default() };
        assert!(seven.check().unwrap_err().to_string().contains("retry_count is 7"));
        assert!(ConnectOptions { rnr_timer: 0, ..Default::default() }.check().is_err());
    }
}
