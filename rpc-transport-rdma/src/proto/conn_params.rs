//! Connection parameters: what the two ends exchange in the handshake on the byte stream (out of
//! band).

use std::collections::HashSet;

use prost::Message;
use rpc_core::connect::{Declined, Obstacle};

use crate::config::MAX_READ_QUEUE_PAIRS;
use crate::proto::endpoint::{Endpoint, Gid, LinkLayer, Mtu, ReadDepths};
use crate::proto::wire::RTS_LEN_MAX;

/// The most queue pairs for READs that an end may have, so that a handshake is short.
const READ_QUEUE_PAIRS_MAX: usize = MAX_READ_QUEUE_PAIRS as usize;

/// The version of the messages on the path. Different versions do not understand each other.
const VERSION: u32 = 2;

/// One end of a path: its queue pair, and what may be sent to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnParams {
    pub(crate) endpoint: Endpoint,
    /// Number that every message to this end must carry.
    pub(crate) epoch: u32,
    /// Number of messages that the peer may send before the first grant.
    pub(crate) grant: u32,
    /// The longest message that this end's slots take.
    pub(crate) slot_len: u32,
    /// Set if memory windows open this end's offers, so that the peer's ATS should invalidate the
    /// key.
    pub(crate) has_memory_windows: bool,
    /// Queue pairs for READs alone, beside the one of `endpoint`. Empty from a peer that does not
    /// know of them.
    pub(crate) read_ends: Vec<Endpoint>,
    /// Traffic class of this end's packets; `None` if the peer does not say.
    pub(crate) traffic_class: Option<u8>,
    /// Parts of the protocol that this end knows beyond the first version's.
    pub(crate) capabilities: Capabilities,
}

/// Parts of the protocol that both ends must know before either uses them. Unknown bits are kept
/// for the comparison alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Capabilities(pub(crate) u32);

impl Capabilities {
    /// The path is proven by messages that fill a slot and by READs.
    pub(crate) const FULL_PROOF: Self = Self(1);

    /// Those of this version.
    pub(crate) const OURS: Self = Self::FULL_PROOF;

    /// Returns true if both ends have them.
    pub(crate) fn have(self, peer: Self, wanted: Self) -> bool {
        self.0 & peer.0 & wanted.0 == wanted.0
    }
}

#[derive(Clone, PartialEq, Eq, Message)]
struct RawBlob {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint32, tag = "2")]
    queue_pair_number: u32,
    #[prost(uint32, tag = "3")]
    packet_sequence_number: u32,
    #[prost(bytes = "vec", tag = "4")]
    gid: Vec<u8>,
    #[prost(uint32, tag = "5")]
    lid: u32,
    #[prost(uint32, tag = "6")]
    mtu: u32,
    #[prost(uint32, tag = "7")]
    reads_max: u32,
    #[prost(bool, tag = "8")]
    is_infiniband: bool,
    #[prost(uint32, tag = "9")]
    epoch: u32,
    #[prost(uint32, tag = "10")]
    grant: u32,
    #[prost(uint32, tag = "11")]
    slot_len: u32,
    #[prost(bool, tag = "12")]
    has_memory_windows: bool,
    #[prost(message, repeated, tag = "13")]
    read_ends: Vec<RawReadEnd>,
    #[prost(uint32, optional, tag = "17")]
    traffic_class: Option<u32>,
    #[prost(uint32, tag = "18")]
    capabilities: u32,
    /// 0 on Ethernet: no partition has that key.
    #[prost(uint32, tag = "19")]
    partition_key: u32,
    #[prost(bool, tag = "20")]
    needs_global_route: bool,
    /// READs of each way, from peers that tell them apart; then `reads_max` has the lesser.
    #[prost(uint32, tag = "21")]
    responder_reads: u32,
    #[prost(uint32, tag = "22")]
    initiator_reads: u32,
}

/// The parameters in which a READ queue pair differs from the one that carries messages.
#[derive(Clone, PartialEq, Eq, Message)]
struct RawReadEnd {
    #[prost(uint32, tag = "1")]
    queue_pair_number: u32,
    #[prost(uint32, tag = "2")]
    packet_sequence_number: u32,
    #[prost(uint32, tag = "3")]
    reads_max: u32,
    #[prost(uint32, tag = "4")]
    responder_reads: u32,
    #[prost(uint32, tag = "5")]
    initiator_reads: u32,
}

/// READs as they travel: the number of both ways, and that of each way, or zeros.
struct RawReads {
    both: u32,
    responder: u32,
    initiator: u32,
}

impl RawReads {
    fn of(reads: ReadDepths) -> Self {
        let (responder, initiator) = match reads {
            ReadDepths::Same(_) => (0, 0),
            ReadDepths::Apart { responder, initiator } => (responder, initiator),
        };
        Self {
            both: reads.least().into(),
            responder: responder.into(),
            initiator: initiator.into(),
        }
    }

    fn depths(self) -> Option<ReadDepths> {
        let number = |raw| u8::try_from(raw).ok();
        match (number(self.responder)?, number(self.initiator)?) {
            (0, 0) => number(self.both).map(ReadDepths::Same),
            (responder, initiator) => Some(ReadDepths::Apart { responder, initiator }),
        }
    }
}

/// Declines parameters that fit no path of this side.
fn incompatible(reason: impl Into<String>) -> Declined {
    Declined::with(Obstacle::Incompatible, reason)
}

impl ConnParams {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let endpoint = &self.endpoint;
        let reads = RawReads::of(endpoint.reads);
        let raw = RawBlob {
            version: VERSION,
            queue_pair_number: endpoint.queue_pair_number,
            packet_sequence_number: endpoint.packet_sequence_number,
            gid: endpoint.gid.0.to_vec(),
            lid: endpoint.lid.into(),
            mtu: endpoint.mtu.bytes().into(),
            reads_max: reads.both,
            is_infiniband: endpoint.link_layer == LinkLayer::InfiniBand,
            epoch: self.epoch,
            grant: self.grant,
            slot_len: self.slot_len,
            has_memory_windows: self.has_memory_windows,
            read_ends: self.read_ends.iter().map(RawReadEnd::of).collect(),
            traffic_class: self.traffic_class.map(u32::from),
            capabilities: self.capabilities.0,
            partition_key: endpoint.partition_key.unwrap_or(0).into(),
            needs_global_route: endpoint.needs_global_route,
            responder_reads: reads.responder,
            initiator_reads: reads.initiator,
        };
        raw.encode_to_vec()
    }

    /// Decodes the peer's parameters. Whether a path joins it with an end of ours,
    /// [`check`](Self::check) says.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Declined> {
        let raw = RawBlob::decode(bytes)
            .map_err(|error| incompatible(format!("the peer's blob does not decode: {error}")))?;
        // Fields may be added within a version; peers skip those that they do not know.
        if raw.version != VERSION {
            let version = raw.version;
            return Err(incompatible(format!(
                "the peer's RDMA path has version {version}; this side speaks {VERSION}"
            )));
        }
        let invalid =
            |field: &str| incompatible(format!("the peer's blob has an impossible {field}"));
        // Every number is checked for its type here, and for what it means in `check`: a value that
        // wraps would name another queue pair or another host.
        let mtu = u16::try_from(raw.mtu).ok().and_then(Mtu::from_bytes);
        let partition_key =
            u16::try_from(raw.partition_key).map_err(|_| invalid("partition key"))?;
        let reads = RawReads {
            both: raw.reads_max,
            responder: raw.responder_reads,
            initiator: raw.initiator_reads,
        };
        let endpoint = Endpoint {
            queue_pair_number: raw.queue_pair_number,
            packet_sequence_number: raw.packet_sequence_number,
            gid: Gid(raw.gid.try_into().map_err(|_| invalid("GID"))?),
            lid: u16::try_from(raw.lid).map_err(|_| invalid("LID"))?,
            mtu: mtu.ok_or_else(|| invalid("MTU"))?,
            reads: reads.depths().ok_or_else(|| invalid("number of READs"))?,
            link_layer: if raw.is_infiniband { LinkLayer::InfiniBand } else { LinkLayer::Ethernet },
            partition_key: Some(partition_key).filter(|key| *key != 0),
            needs_global_route: raw.needs_global_route,
        };
        let traffic_class = raw.traffic_class.map(u8::try_from).transpose();
        let traffic_class = traffic_class.map_err(|_| invalid("traffic class"))?;
        // Before anything is made of them: a blob of 8 KiB could name a thousand.
        if raw.read_ends.len() > READ_QUEUE_PAIRS_MAX {
            return Err(invalid("number of queue pairs for READs"));
        }
        let read_ends = raw.read_ends.iter().map(|end| end.beside(&endpoint));
        let read_ends = read_ends.collect::<Option<_>>().ok_or_else(|| invalid("number of READs"));
        Ok(Self {
            endpoint,
            read_ends: read_ends?,
            epoch: raw.epoch,
            grant: raw.grant,
            slot_len: raw.slot_len,
            has_memory_windows: raw.has_memory_windows,
            traffic_class,
            capabilities: Capabilities(raw.capabilities),
        })
    }

    /// Checks everything about the peer's end that can be checked without a queue pair, so that a
    /// Parameters that cannot be used cost none: `local` is an end of ours, of which the queue
    /// pair number does not matter. Gives the length of slots that both ends have.
    ///
    /// # Errors
    ///
    /// Returns [`Declined`] for an end that cannot be, or that no path joins with ours; for no
    /// credit; for slots too short for an offer; for one queue pair with two purposes.
    pub(crate) fn check(&self, local: &Endpoint, slot_len: u32) -> Result<u32, Declined> {
        let ends = || std::iter::once(&self.endpoint).chain(&self.read_ends);
        for end in ends() {
            local.agree(end).map_err(|error| incompatible(error.to_string()))?;
        }
        // Two ends on one queue pair would take each other's packets for lost ones, and retry.
        let numbers: HashSet<u32> = ends().map(|end| end.queue_pair_number).collect();
        if numbers.len() != ends().count() {
            return Err(incompatible("the peer uses one queue pair for two purposes"));
        }
        // The proof itself needs a credit for its release.
        if self.grant == 0 {
            return Err(incompatible("the peer grants no message at all"));
        }
        // Both ends use the shorter, so that neither writes what the other's slot cannot take.
        let slot_len = slot_len.min(self.slot_len);
        if (slot_len as usize) < RTS_LEN_MAX {
            return Err(incompatible(format!(
                "slots of {slot_len} bytes are too short: an offer takes {RTS_LEN_MAX}"
            )));
        }
        Ok(slot_len)
    }
}

impl RawReadEnd {
    fn of(endpoint: &Endpoint) -> Self {
        let reads = RawReads::of(endpoint.reads);
        Self {
            queue_pair_number: endpoint.queue_pair_number,
            packet_sequence_number: endpoint.packet_sequence_number,
            reads_max: reads.both,
            responder_reads: reads.responder,
            initiator_reads: reads.initiator,
        }
    }

    fn beside(&self, main: &Endpoint) -> Option<Endpoint> {
        let reads = RawReads {
            both: self.reads_max,
            responder: self.responder_reads,
            initiator: self.initiator_reads,
        };
        Some(Endpoint {
            // The rest is the main end's: all queue pairs of a connection are on one port.
            queue_pair_number: self.queue_pair_number,
            packet_sequence_number: self.packet_sequence_number,
            reads: reads.depths()?,
            ..*main
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_infiniband_end_travels_with_its_lid() {
        let endpoint = Endpoint {
            queue_pair_number: 17,
            packet_sequence_number: 5,
            gid: Gid([3; 16]),
            lid: 0xbfff,
            mtu: Mtu::B2048,
            reads: ReadDepths::Apart { responder: 4, initiator: 255 },
            link_layer: LinkLayer::InfiniBand,
            partition_key: Some(0x8001),
            needs_global_route: true,
        };
        let read_ends = vec![Endpoint { queue_pair_number: 18, ..endpoint }];
        let conn_params = ConnParams {
            endpoint,
            epoch: 1,
            grant: 32,
            slot_len: 4352,
            has_memory_windows: true,
            read_ends,
            traffic_class: Some(106),
            capabilities: Capabilities(u32::MAX),
        };
        assert_eq!(ConnParams::decode(&conn_params.encode()), Ok(conn_params));
    }

    fn end(queue_pair_number: u32) -> Endpoint {
        Endpoint {
            queue_pair_number,
            packet_sequence_number: 5,
            gid: Gid::from_ip([10, 0, 0, 1].into()),
            lid: 0,
            mtu: Mtu::B1024,
            reads: ReadDepths::Same(4),
            link_layer: LinkLayer::Ethernet,
            partition_key: None,
            needs_global_route: false,
        }
    }

    #[test]
    fn an_end_that_cannot_be_joined_is_declined_with_the_reason() {
        let good = || ConnParams {
            endpoint: end(17),
            epoch: 1,
            grant: 1,
            slot_len: 4352,
            has_memory_windows: false,
            read_ends: vec![end(18), end(19)],
            traffic_class: None,
            capabilities: Capabilities::default(),
        };
        assert_eq!(good().check(&end(20), 1000), Ok(1000));
        assert_eq!(good().check(&end(20), 8000), Ok(4352));
        let with_end = |endpoint| ConnParams { endpoint, ..good() };
        let with_read_end = |end| ConnParams { read_ends: vec![end], ..good() };
        let ipv6 = Gid::from_ip("2001:db8::1".parse().unwrap());
        let bad = [
            ("grants no message", ConnParams { grant: 0, ..good() }),
            ("slots of 1 bytes are too short", ConnParams { slot_len: 1, ..good() }),
            ("queue pair number", with_end(end(0))),
            ("queue pair number", with_read_end(end(1 << 24))),
            ("number of READs", with_read_end(Endpoint { reads: ReadDepths::Same(0), ..end(18) })),
            ("two purposes", with_read_end(end(17))),
            ("link layers", with_end(Endpoint { link_layer: LinkLayer::InfiniBand, ..end(17) })),
            ("address families", with_end(Endpoint { gid: ipv6, ..end(17) })),
        ];
        for (text, conn_params) in bad {
            let reason = conn_params.check(&end(20), 1000).unwrap_err().reason;
            assert!(reason.contains(text), "{reason}");
        }
    }

    #[test]
    fn more_queue_pairs_for_reads_than_anybody_needs_are_declined() {
        let declined = |count: usize, reads_max: u32| {
            let read_ends = vec![RawReadEnd { reads_max, ..RawReadEnd::default() }; count];
            let raw =
                RawBlob { version: VERSION, gid: vec![0; 16], mtu: 1024, ..RawBlob::default() };
            ConnParams::decode(&RawBlob { read_ends, ..raw }.encode_to_vec())
                .err()
                .map(|why| why.reason)
        };
        assert_eq!(declined(READ_QUEUE_PAIRS_MAX, 255), None);
        let reason = declined(READ_QUEUE_PAIRS_MAX + 1, 4).unwrap();
        assert!(reason.contains("number of queue pairs for READs"), "{reason}");
        let reason = declined(1, 256).unwrap();
        assert!(reason.contains("number of READs"), "{reason}");
    }

    #[test]
    fn a_blob_survives_and_another_version_is_declined() {
        let endpoint = Endpoint {
            queue_pair_number: 17,
            packet_sequence_number: 5,
            gid: Gid([3; 16]),
            lid: 9,
            mtu: Mtu::B4096,
            reads: ReadDepths::Apart { responder: 16, initiator: 0 },
            link_layer: LinkLayer::Ethernet,
            partition_key: None,
            needs_global_route: false,
        };
        let [first, second] = [18, 19].map(|number| Endpoint {
            queue_pair_number: number,
            packet_sequence_number: number + 100,
            reads: ReadDepths::Same(8),
            ..endpoint
        });
        let read_ends = vec![first, second];
        let conn_params = ConnParams {
            endpoint,
            epoch: 1,
            grant: 32,
            slot_len: 4352,
            has_memory_windows: true,
            read_ends,
            traffic_class: Some(106),
            capabilities: Capabilities(u32::MAX),
        };
        assert_eq!(ConnParams::decode(&conn_params.encode()), Ok(conn_params));
        let other = RawBlob { version: 1, ..RawBlob::default() }.encode_to_vec();
        assert!(ConnParams::decode(&other).unwrap_err().reason.contains("version 1"));
    }

    #[test]
    fn a_class_or_partition_that_cannot_be_is_declined() {
        let raw = RawBlob { version: VERSION, gid: vec![0; 16], mtu: 1024, ..RawBlob::default() };
        let declined = |raw: RawBlob| ConnParams::decode(&raw.encode_to_vec()).unwrap_err().reason;
        let class = RawBlob { traffic_class: Some(256), ..raw.clone() };
        assert!(declined(class).contains("traffic class"));
        assert!(declined(RawBlob { partition_key: 1 << 16, ..raw }).contains("partition key"));
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = ConnParams::decode(&bytes);
        }
    }
}
