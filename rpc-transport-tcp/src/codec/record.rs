//! Records, the framing on a byte stream.
//!
//! | offset | size | field |
//! |--:|--:|---|
//! | 0 | 1 | kind: 1 single, 2 first chunk, 3 next chunk, 4 ack |
//! | 1 | 1 | of a chunk: 1 if it asks for an ack; else 0 |
//! | 2 | 2 | zero |
//! | 4 | 4 | length of what follows, in bytes |
//! | 8 | 4 | transfer that a chunk belongs to; else 0 |
//!
//! A first chunk begins with the frame's total length (`u64`) and contains at least its header.
//!
//! An ack (acknowledgement) is a `u64`: the number of bytes read from chunked frames since the
//! connection began. One ack covers every chunk that asked for one and was read before the ack is
//! sent.

use bytes::{Buf as _, BufMut as _};
use rpc_core::wire::{HEADER_LEN, ProtocolError};

use crate::pacing::chunk_len::CHUNK_LEN_MAX;

/// Length of a record's header in bytes.
pub(crate) const RECORD_HEADER_LEN: usize = 12;

/// Length of the frame length in a first chunk, in bytes.
pub(crate) const FRAME_LEN_LEN: usize = 8;

/// Length of the count in an ack, in bytes.
pub(crate) const ACK_LEN: usize = 8;

/// Maximum length of a frame that travels in a single record, in bytes.
///
/// 64 KiB fit into one read, and delay a small frame by 65 us at 1 GB/s.
pub(crate) const SINGLE_LEN_MAX: usize = 64 << 10;

/// Maximum number of large frames sent in chunks at a time, per direction. Others wait at the
/// sender.
pub(crate) const TRANSFERS_MAX: usize = 16;

/// Number of zero bytes in a header.
const ZERO_LEN: usize = 2;

// `to_bytes` fills the array with the fields of the table, and `parse` reads all of it.
const _: () = assert!(1 + 1 + ZERO_LEN + 4 + 4 == RECORD_HEADER_LEN);

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Single,
    First,
    Next,
    Ack,
}

/// A record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    /// Length of the rest of the record: at most [`CHUNK_LEN_MAX`], plus the fields of its kind.
    pub(crate) len: usize,
    pub(crate) transfer: u32,
    /// True if a chunk asks for an ack.
    pub(crate) wants_ack: bool,
}

/// Encodes an ack.
pub(crate) fn ack(read: u64) -> [u8; RECORD_HEADER_LEN + ACK_LEN] {
    let mut bytes = [0; RECORD_HEADER_LEN + ACK_LEN];
    let header = RecordHeader::new(RecordKind::Ack, ACK_LEN);
    bytes[..RECORD_HEADER_LEN].copy_from_slice(&header.to_bytes());
    bytes[RECORD_HEADER_LEN..].copy_from_slice(&read.to_le_bytes());
    bytes
}

impl RecordHeader {
    /// Creates the header of a record that is not a chunk.
    pub(crate) fn new(kind: RecordKind, len: usize) -> Self {
        Self { kind, len, transfer: 0, wants_ack: false }
    }

    pub(crate) fn to_bytes(self) -> [u8; RECORD_HEADER_LEN] {
        let kind = match self.kind {
            RecordKind::Single => 1,
            RecordKind::First => 2,
            RecordKind::Next => 3,
            RecordKind::Ack => 4,
        };
        // The limits keep every record far below 4 GiB.
        let len = u32::try_from(self.len).unwrap_or(u32::MAX);
        let mut bytes = [0; RECORD_HEADER_LEN];
        let mut out = &mut bytes[..];
        out.put_u8(kind);
        out.put_u8(self.wants_ack.into());
        out.put_bytes(0, ZERO_LEN);
        out.put_u32_le(len);
        out.put_u32_le(self.transfer);
        bytes
    }

    /// Parses a header, and checks its length against its kind.
    #[inline(always)]
    pub(crate) fn parse(bytes: &[u8; RECORD_HEADER_LEN]) -> Result<Self, ProtocolError> {
        let mut raw = &bytes[..];
        let (kind, wants_ack) = (raw.get_u8(), raw.get_u8());
        raw.advance(ZERO_LEN);
        let (len, transfer) = (raw.get_u32_le() as usize, raw.get_u32_le());
        let (kind, min, max) = match kind {
            1 => (RecordKind::Single, HEADER_LEN, SINGLE_LEN_MAX),
            2 => (RecordKind::First, FRAME_LEN_LEN + HEADER_LEN, FRAME_LEN_LEN + CHUNK_LEN_MAX),
            3 => (RecordKind::Next, 1, CHUNK_LEN_MAX),
            4 => (RecordKind::Ack, ACK_LEN, ACK_LEN),
            other => {
                let value = other.into();
                return Err(ProtocolError::Invalid { what: "record kind", value });
            }
        };
        let is_chunk = matches!(kind, RecordKind::First | RecordKind::Next);
        if wants_ack > u8::from(is_chunk) {
            let value = wants_ack.into();
            return Err(ProtocolError::Invalid { what: "mark of a record", value });
        }
        if len > max {
            let (len, max) = (len as u64, max as u64);
            return Err(ProtocolError::TooLong { what: "record", len, max });
        }
        if len < min {
            let (len, needed) = (len as u64, min as u64);
            return Err(ProtocolError::Truncated { what: "record", len, needed });
        }
        Ok(Self { kind, len, transfer, wants_ack: wants_ack == 1 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_encodes_to_its_documented_bytes() {
        let header =
            RecordHeader { kind: RecordKind::First, len: 0x0102, transfer: 7, wants_ack: false };
        assert_eq!(header.to_bytes(), [2, 0, 0, 0, 2, 1, 0, 0, 7, 0, 0, 0]);
        assert_eq!(RecordHeader::parse(&header.to_bytes()), Ok(header));
        let header = RecordHeader { wants_ack: true, ..header };
        assert_eq!(header.to_bytes(), [2, 1, 0, 0, 2, 1, 0, 0, 7, 0, 0, 0]);
        assert_eq!(RecordHeader::parse(&header.to_bytes()), Ok(header));
        let ack = ack(0x0304);
        assert_eq!(ack, [4, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn only_chunks_ask_for_acks() {
        for (kind, wants_ack, is_good) in
            [(1, 1, false), (4, 1, false), (2, 2, false), (3, 1, true)]
        {
            let header = RecordHeader::parse(&[kind, wants_ack, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(header.is_ok(), is_good, "{kind} {wants_ack}");
        }
    }

    #[test]
    fn lengths_out_of_range_are_refused() {
        for (kind, len) in [
            (RecordKind::Single, HEADER_LEN - 1),
            (RecordKind::Single, SINGLE_LEN_MAX + 1),
            (RecordKind::First, FRAME_LEN_LEN + HEADER_LEN - 1),
            (RecordKind::Next, 0),
            (RecordKind::Next, CHUNK_LEN_MAX + 1),
            (RecordKind::Ack, ACK_LEN - 1),
            (RecordKind::Ack, ACK_LEN + 1),
        ] {
            let header = RecordHeader { kind, len, transfer: 1, wants_ack: false };
            assert!(RecordHeader::parse(&header.to_bytes()).is_err(), "{header:?}");
        }
    }

    #[test]
    fn shortest_and_longest_records_are_accepted() {
        for (kind, min, max) in [
            (RecordKind::Single, HEADER_LEN, SINGLE_LEN_MAX),
            (RecordKind::First, FRAME_LEN_LEN + HEADER_LEN, FRAME_LEN_LEN + CHUNK_LEN_MAX),
            (RecordKind::Next, 1, CHUNK_LEN_MAX),
            (RecordKind::Ack, ACK_LEN, ACK_LEN),
        ] {
            let header = |len| RecordHeader { kind, len, transfer: 7, wants_ack: false };
            for len in [min, max] {
                assert_eq!(RecordHeader::parse(&header(len).to_bytes()), Ok(header(len)));
            }
            for len in [min - 1, max + 1] {
                assert!(RecordHeader::parse(&header(len).to_bytes()).is_err(), "{kind:?} {len}");
            }
        }
        assert!(RecordHeader::parse(&[5, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes: [u8; RECORD_HEADER_LEN]) {
            let _ = RecordHeader::parse(&bytes);
        }
    }
}
