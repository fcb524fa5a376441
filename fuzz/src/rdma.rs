//! Seeds of what the ends of an RDMA path tell each other, written down by hand: a format of its
//! own is not known twice by accident.

use prost::Message;

/// Every kind of message, and offers that make sense.
pub(crate) fn message_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = (1..=9).map(|kind| header(kind, 0)).collect();
    seeds.extend([1, 2].map(|outcome| header(3, outcome)));
    seeds.push([header(1, 0), vec![1; 64]].concat());
    seeds.extend([offer(&[100_000]), offer(&[1, 1 << 20, 1 << 33])]);
    seeds
}

/// Kind, outcome, control messages seen, epoch, grant and transfer.
fn header(kind: u8, outcome: u8) -> Vec<u8> {
    let mut bytes = vec![kind, outcome, 1, 0];
    for word in [0x0102_0304u32, 32, 1 << 20] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The frame's length, how many segments, how long its head is, each segment, and the head.
fn offer(lens: &[u64]) -> Vec<u8> {
    const HEAD: [u8; 32] = [1; 32];
    let count = u32::try_from(lens.len()).unwrap_or(u32::MAX);
    let frame_len = HEAD.len() as u64 + lens.iter().sum::<u64>();
    let mut bytes = header(2, 0);
    bytes.extend_from_slice(&frame_len.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&32u32.to_le_bytes());
    for len in lens {
        for word in [0x7f00_0000_0000, *len, 0x2a] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes.extend_from_slice(&HEAD);
    bytes
}

/// The fields of a blob that are not zero on Ethernet.
#[derive(Clone, PartialEq, Eq, Message)]
struct Blob {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint32, tag = "2")]
    queue_pair_number: u32,
    #[prost(uint32, tag = "3")]
    packet_sequence_number: u32,
    #[prost(bytes = "vec", tag = "4")]
    gid: Vec<u8>,
    #[prost(uint32, tag = "6")]
    mtu: u32,
    #[prost(uint32, tag = "7")]
    reads_max: u32,
    #[prost(uint32, tag = "9")]
    epoch: u32,
    #[prost(uint32, tag = "10")]
    grant: u32,
    #[prost(uint32, tag = "11")]
    slot_len: u32,
}

/// Ends of this version and of another.
pub(crate) fn blob_seeds() -> Vec<Vec<u8>> {
    let blob = Blob {
        version: 2,
        queue_pair_number: 17,
        packet_sequence_number: 5,
        gid: vec![3; 16],
        mtu: 4096,
        reads_max: 16,
        epoch: 1,
        grant: 32,
        slot_len: 4352,
    };
    let other = Blob { version: 1, ..blob.clone() };
    [blob, other, Blob::default()].iter().map(Message::encode_to_vec).collect()
}
