//! TCP's records: nothing panics, and how much is read at a time changes nothing.

use bytes::Bytes;
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};
use rpc_transport_tcp::fuzzing::reassemble;

/// Frames up to this length are admitted.
const ADMITTED_LEN_MAX: u64 = 1 << 20;

/// The first byte is how much is read at a time.
pub(crate) fn run(bytes: &[u8]) {
    let Some((step, bytes)) = bytes.split_first() else { return };
    let whole = reassemble(bytes, usize::MAX, ADMITTED_LEN_MAX);
    let in_steps = reassemble(bytes, usize::from(*step) + 1, ADMITTED_LEN_MAX);
    assert_eq!(in_steps, whole);
    let len: usize = whole.frames.iter().map(Bytes::len).sum();
    assert!(len <= bytes.len(), "{len} bytes of frames from {} bytes", bytes.len());
    assert!(whole.frames.iter().all(|frame| frame.len() >= HEADER_LEN));
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let frame = FrameHeader::bare(FrameKind::Cancel, 5).to_bytes();
    let small = record(1, 0, &frame);
    let mut first = (HEADER_LEN as u64 + 40).to_le_bytes().to_vec();
    first.extend_from_slice(&frame);
    let chunks = [record(2, 9, &first), small.clone(), record(3, 9, &[4; 40])].concat();
    let mut other = (HEADER_LEN as u64 + 30).to_le_bytes().to_vec();
    other.extend_from_slice(&frame);
    let turns = [
        record(2, 1, &first),
        record(2, 2, &other),
        record(3, 1, &[1; 20]),
        record(3, 2, &[2; 30]),
        record(3, 1, &[1; 20]),
    ];
    let mut refused = (1_u64 << 40).to_le_bytes().to_vec();
    refused.extend_from_slice(&frame);
    let mut asking = chunks.clone();
    asking[1] = 1;
    let acks = [record(4, 0, &[9; 8]), asking, record(4, 0, &[0; 8])].concat();
    let refused = record(2, 1, &refused);
    [vec![], small.clone(), small.repeat(3), chunks, turns.concat(), refused, acks, vector()]
        .into_iter()
        .flat_map(|bytes| [0, 6, 255].map(|step| [&[step], &bytes[..]].concat()))
        .collect()
}

/// The beginning of a frame that ends with a vector of 64 KiB, which is received into memory of its
/// own. All of it would be longer than an input may be.
fn vector() -> Vec<u8> {
    let field = [&[1 << 3 | 2, 0x80, 0x80, 0x04][..], &[7; 64 << 10]].concat();
    let mut header = FrameHeader::bare(FrameKind::Request, 5);
    header.message_len = field.len() as u64;
    let frame = [&header.to_bytes()[..], &field].concat();
    let first = [&(frame.len() as u64).to_le_bytes()[..], &frame[..300]].concat();
    [record(2, 1, &first), record(3, 1, &frame[300..500])].concat()
}

/// A record as the table of the transport's module has it.
fn record(kind: u8, transfer: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let mut out = vec![kind, 0, 0, 0];
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&transfer.to_le_bytes());
    out.extend_from_slice(body);
    out
}
