//! Entry points for the fuzz targets alone: what a peer says, as bytes.

use rpc_core::wire::HEADER_LEN;

use crate::proto::conn_params::{Capabilities, ConnParams};
use crate::proto::endpoint::{Endpoint, Gid, LinkLayer, Mtu, ReadDepths};
use crate::proto::remote_memory::{RemoteKey, RemoteMemory};
use crate::proto::wire::{
    AtsStatus, Grant, MESSAGE_HEADER_LEN, MessageHeader, MessageKind, RTS_LEN_MAX, Rts, RtsSegment,
};

/// Reads a message as a connection does.
///
/// # Panics
///
/// Panics if a property does not hold: what was read says the same when it is written again, and
/// the segments of an offer are there.
pub fn message(bytes: &[u8]) {
    let Ok((header, body)) = MessageHeader::parse(bytes) else { return };
    let again = header.to_bytes();
    assert_eq!(MessageHeader::parse(&again), Ok((header, &[][..])));
    if matches!(header.kind, MessageKind::Rts { .. } | MessageKind::Proof { .. })
        && let Ok(offer) = Rts::parse(body)
    {
        assert!(offer.segments.iter().all(|segment| segment.len > 0));
        assert!(!offer.segments.is_empty());
    }
}

/// Reads a peer's part of the handshake.
///
/// # Panics
///
/// Panics if what was read says something else once it is written again.
pub fn conn_params(bytes: &[u8]) {
    if let Ok(conn_params) = ConnParams::decode(bytes) {
        assert_eq!(ConnParams::decode(&conn_params.encode()), Ok(conn_params));
    }
}

/// Messages of every kind as connections write them, with offers of one segment and of several.
#[must_use]
pub fn message_seeds() -> Vec<Vec<u8>> {
    let transfer = 1 << 20;
    let release = |outcome| MessageKind::Ats { transfer, outcome };
    let kinds = [
        MessageKind::Frame,
        release(AtsStatus::Read),
        release(AtsStatus::Refused),
        release(AtsStatus::Stopped),
        MessageKind::Grant,
        MessageKind::Probe,
        MessageKind::ProbeAnswer,
        MessageKind::Cancel { transfer },
        MessageKind::Reclaim { keep: 1 },
        MessageKind::Return { returned: 3 },
    ];
    let mut seeds: Vec<_> = kinds.map(header).into();
    seeds.push([header(MessageKind::Frame), vec![1; 64]].concat());
    seeds.extend([offer(&[100_000]), offer(&[1, 1 << 20, 1 << 33])]);
    // The same as a proof of the path.
    let mut proof = offer(&[12_305, 12_305]);
    let kind = MessageKind::Proof { transfer };
    proof.splice(..MESSAGE_HEADER_LEN, header(kind));
    seeds.push(proof);
    seeds
}

fn header(kind: MessageKind) -> Vec<u8> {
    let grant = Grant { count: 32, control_seen: 1, wants_more: false };
    MessageHeader { kind, epoch: 0x0102_0304, grant }.to_bytes().into()
}

fn offer(lens: &[u64]) -> Vec<u8> {
    let memory = RemoteMemory { address: 0x7f00_0000_0000, key: RemoteKey(0x2a) };
    let segments = lens.iter().map(|len| RtsSegment { memory, len: *len }).collect();
    let offer = Rts { head: vec![1; HEADER_LEN], segments };
    let mut message = header(MessageKind::Rts { transfer: 1 << 20 });
    message.resize(RTS_LEN_MAX, 0);
    let len = offer.write(&mut message[MESSAGE_HEADER_LEN..]);
    message.truncate(MESSAGE_HEADER_LEN + len);
    message
}

/// Parts of handshakes as ends write them, on Ethernet and on InfiniBand, and one of nothing.
#[must_use]
pub fn conn_params_seeds() -> Vec<Vec<u8>> {
    let ethernet = Endpoint {
        queue_pair_number: 17,
        packet_sequence_number: 5,
        gid: Gid([3; 16]),
        lid: 0,
        mtu: Mtu::B4096,
        reads: ReadDepths::Same(16),
        link_layer: LinkLayer::Ethernet,
        partition_key: None,
        needs_global_route: false,
    };
    let infiniband = Endpoint {
        lid: 9,
        link_layer: LinkLayer::InfiniBand,
        partition_key: Some(0x8001),
        needs_global_route: true,
        reads: ReadDepths::Apart { responder: 16, initiator: 128 },
        ..ethernet
    };
    let conn_params = |endpoint, has_memory_windows| {
        let read_ends = vec![endpoint; if has_memory_windows { 0 } else { 2 }];
        ConnParams {
            endpoint,
            epoch: 1,
            grant: 32,
            slot_len: 4352,
            has_memory_windows,
            read_ends,
            traffic_class: has_memory_windows.then_some(106),
            capabilities: if has_memory_windows { Capabilities::OURS } else { Capabilities(0) },
        }
        .encode()
    };
    vec![conn_params(ethernet, false), conn_params(infiniband, true), Vec::new()]
}
