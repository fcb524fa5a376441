//! The wire format: the messages that travel by SEND between the ends of a connection.
//!
//! Every message begins with a header and piggy-backs the credit that its sender grants:
//!
//! | offset | size | field |
//! |--:|--:|---|
//! | 0 | 1 | kind: 1 frame, 2 offer, 3 release, 4 grant, 5 probe, 6 probe answer, 7 cancel |
//! | | | 8 reclaim, 9 return, 10 proof; 128 more when the sender has more to send than credit |
//! | 1 | 1 | outcome of a release: 0 read, 1 refused, 2 stopped; else zero |
//! | 2 | 2 | how many grants, probes, answers and proofs came in, modulo 2^16 |
//! | 4 | 4 | epoch: the incarnation of the connection, chosen at random by the receiver |
//! | 8 | 4 | grant: how many messages the sender of this may be sent in all, modulo 2^32 |
//! | 12 | 4 | transfer of an offer, a release, a cancel or a proof; else zero |
//! | | | of a reclaim the credits to keep, of a return those given back so far, modulo 2^32 |
//!
//! A probe and its answer carry 32 bytes of proof behind the header where the path is bound to a
//! TLS session (`rpc_core::connect::PathBinding`), and nothing otherwise.
//!
//! A frame follows its header. After the header of an offer come `frame_len: u64`,
//! `segment_count: u32`, `head_len: u32`, for each segment `address: u64, len: u64, rkey: u32` and
//! four zero bytes, and then the first `head_len` bytes of the frame: its header at least. The
//! segments are what follows the head. A proof is an offer whose head fills the rest of the slot:
//! 32 bytes of zeros, a seed of 8 bytes, and zeros. A cancel of transfer 0 in place of a proof says
//! that its sender has no memory for one. Pure values: nothing is sent here.

use bytes::{Buf as _, BufMut as _};
use rpc_core::wire::{HEADER_LEN, ProtocolError};

use crate::config::MIN_SLOT_LEN;
use crate::proto::remote_memory::{RemoteKey, RemoteMemory};

/// The length of a message's header in bytes.
pub(crate) const MESSAGE_HEADER_LEN: usize = 16;

/// The length of an offer before its segments.
pub(crate) const RTS_LEN: usize = 16;

/// The length of a segment in an offer.
pub(crate) const SEGMENT_LEN: usize = 24;

/// The bytes of a segment that are zero.
const SEGMENT_ZERO_LEN: usize = 4;

/// The most segments of one offer: the parts of a message that prost writes for a handful of
/// large `bytes` fields.
pub(crate) const SEGMENTS_MAX: usize = 16;

/// The longest message that is not a frame, where only the frame's header is its head: an offer
/// with all its segments.
pub(crate) const RTS_LEN_MAX: usize =
    MESSAGE_HEADER_LEN + RTS_LEN + SEGMENTS_MAX * SEGMENT_LEN + HEADER_LEN;

/// Bytes that an offer of one segment takes of a slot, besides the message's header and the frame's
/// head.
pub(crate) const RTS_EXTRA_LEN: usize = RTS_LEN + SEGMENT_LEN;

// What the rule for `rdma.slot_len` says in words.
const _: () = assert!(RTS_LEN_MAX == MIN_SLOT_LEN as usize);
// The fields, as they are written and read.
const _: () = assert!(1 + 1 + 2 + 4 + 4 + 4 == MESSAGE_HEADER_LEN);
const _: () = assert!(8 + 4 + 4 == RTS_LEN);
const _: () = assert!(8 + 8 + 4 + SEGMENT_ZERO_LEN == SEGMENT_LEN);

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageHeader {
    pub(crate) kind: MessageKind,
    pub(crate) epoch: u32,
    pub(crate) grant: Grant,
}

/// The credit part of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Total number of ordinary messages that the receiver may send to the sender.
    pub(crate) count: u32,
    /// Number of control messages received: pure grants, probes and answers.
    pub(crate) control_seen: u16,
    /// Set if the sender has more to send than credit.
    pub(crate) wants_more: bool,
}

/// The bit of the kind that says [`Grant::wants_more`].
const WANTS_MORE: u8 = 0x80;

/// Returns the name of the kind in a message's first byte, for the log.
pub(crate) fn kind_name(first: u8) -> &'static str {
    match first & !WANTS_MORE {
        1 => "frame",
        2 => "offer",
        3 => "release",
        4 => "grant",
        5 => "probe",
        6 => "probe answer",
        7 => "cancel",
        8 => "reclaim",
        9 => "return",
        10 => "proof",
        _ => "message",
    }
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// A whole frame follows.
    Frame,
    /// Ready to send: an offer follows, and the frame lies in the sender's memory.
    Rts { transfer: u32 },
    /// Acknowledges an RTS: the receiver is done with the frame's memory, and its sender may free
    /// it.
    Ats { transfer: u32, outcome: AtsStatus },
    /// Nothing but the grant.
    Grant,
    /// Asks for an answer, to prove the path.
    Probe,
    /// Answers a probe.
    ProbeAnswer,
    /// The sender of an offer wants its memory back. The answer is the release, which says how far
    /// the receiver came; one that crossed the cancel is answer enough.
    Cancel { transfer: u32 },
    /// Asks for the credits that are not in use, but for `keep`.
    Reclaim { keep: u32 },
    /// Gives credits back, `returned` in all since the path began. It takes one itself.
    Return { returned: u32 },
    /// Proves the path: an offer that fills its slot, of memory to READ once on each queue pair.
    Proof { transfer: u32 },
}

impl MessageKind {
    /// Returns true if it takes a slot of the reserve and no credit.
    pub(crate) fn is_reserved(self) -> bool {
        matches!(self, Self::Grant | Self::Probe | Self::ProbeAnswer | Self::Proof { .. })
    }
}

/// The end of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtsStatus {
    /// Everything was read.
    Read,
    /// Nothing was read.
    Refused,
    /// A part was read, and no more will be.
    Stopped,
}

impl MessageHeader {
    pub(crate) fn to_bytes(self) -> [u8; MESSAGE_HEADER_LEN] {
        let (kind, outcome, transfer) = match self.kind {
            MessageKind::Frame => (1, 0, 0),
            MessageKind::Rts { transfer } => (2, 0, transfer),
            MessageKind::Ats { transfer, outcome: AtsStatus::Read } => (3, 0, transfer),
            MessageKind::Ats { transfer, outcome: AtsStatus::Refused } => (3, 1, transfer),
            MessageKind::Ats { transfer, outcome: AtsStatus::Stopped } => (3, 2, transfer),
            MessageKind::Grant => (4, 0, 0),
            MessageKind::Probe => (5, 0, 0),
            MessageKind::ProbeAnswer => (6, 0, 0),
            MessageKind::Cancel { transfer } => (7, 0, transfer),
            MessageKind::Reclaim { keep } => (8, 0, keep),
            MessageKind::Return { returned } => (9, 0, returned),
            MessageKind::Proof { transfer } => (10, 0, transfer),
        };
        let kind = if self.grant.wants_more { kind | WANTS_MORE } else { kind };
        let mut bytes = [0; MESSAGE_HEADER_LEN];
        let mut out = &mut bytes[..];
        out.put_u8(kind);
        out.put_u8(outcome);
        out.put_u16_le(self.grant.control_seen);
        out.put_u32_le(self.epoch);
        out.put_u32_le(self.grant.count);
        out.put_u32_le(transfer);
        bytes
    }

    /// Reads the header, and gives what follows it.
    pub(crate) fn parse(message: &[u8]) -> Result<(Self, &[u8]), ProtocolError> {
        // One check of the length, after which nothing here can panic, whatever the peer sent.
        let (mut raw, rest) = message
            .split_at_checked(MESSAGE_HEADER_LEN)
            .ok_or_else(|| truncated("RDMA message", message.len(), MESSAGE_HEADER_LEN))?;
        let (marked_kind, outcome, control_seen) = (raw.get_u8(), raw.get_u8(), raw.get_u16_le());
        let (epoch, count, transfer) = (raw.get_u32_le(), raw.get_u32_le(), raw.get_u32_le());
        let kind = match (marked_kind & !WANTS_MORE, outcome) {
            (1, 0) => MessageKind::Frame,
            (2, 0) => MessageKind::Rts { transfer },
            (3, 0) => MessageKind::Ats { transfer, outcome: AtsStatus::Read },
            (3, 1) => MessageKind::Ats { transfer, outcome: AtsStatus::Refused },
            (3, 2) => MessageKind::Ats { transfer, outcome: AtsStatus::Stopped },
            (4, 0) => MessageKind::Grant,
            (5, 0) => MessageKind::Probe,
            (6, 0) => MessageKind::ProbeAnswer,
            (7, 0) => MessageKind::Cancel { transfer },
            (8, 0) => MessageKind::Reclaim { keep: transfer },
            (9, 0) => MessageKind::Return { returned: transfer },
            (10, 0) => MessageKind::Proof { transfer },
            (kind, outcome) => {
                let value = u64::from(kind) | u64::from(outcome) << 8;
                return Err(ProtocolError::Invalid { what: "kind of an RDMA message", value });
            }
        };
        let grant = Grant { count, control_seen, wants_more: marked_kind & WANTS_MORE != 0 };
        Ok((Self { kind, epoch, grant }, rest))
    }
}

/// A frame that lies in the sender's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rts {
    /// The frame's first bytes, its header at least.
    pub(crate) head: Vec<u8>,
    /// The rest of it.
    pub(crate) segments: Vec<RtsSegment>,
}

/// A part of an offered frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RtsSegment {
    pub(crate) memory: RemoteMemory,
    pub(crate) len: u64,
}

impl Rts {
    /// The length of the frame. It does not overflow in an offer that was parsed.
    pub(crate) fn frame_len(&self) -> u64 {
        let segments = self.segments.iter().map(|segment| segment.len);
        segments.fold(self.head.len() as u64, u64::saturating_add)
    }

    /// The frame's header.
    pub(crate) fn prefix(&self) -> [u8; HEADER_LEN] {
        let mut prefix = [0; HEADER_LEN];
        prefix.copy_from_slice(&self.head[..HEADER_LEN]);
        prefix
    }

    /// Writes the offer behind a message's header; returns the length written.
    ///
    /// # Panics
    ///
    /// Panics if `out` is too short; [`RTS_LEN_MAX`] less the header always fits where the head is
    /// the frame's header alone.
    pub(crate) fn write(&self, out: &mut [u8]) -> usize {
        // Both are bounded by the length of a slot.
        let segment_count = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
        let head_len = u32::try_from(self.head.len()).unwrap_or(u32::MAX);
        let mut out = out;
        out.put_u64_le(self.frame_len());
        out.put_u32_le(segment_count);
        out.put_u32_le(head_len);
        for segment in &self.segments {
            out.put_u64_le(segment.memory.address);
            out.put_u64_le(segment.len);
            out.put_u32_le(segment.memory.key.0);
            out.put_bytes(0, SEGMENT_ZERO_LEN);
        }
        out.put_slice(&self.head);
        RTS_LEN + self.segments.len() * SEGMENT_LEN + self.head.len()
    }

    /// Reads what follows the header of an offer, and checks that head and segments are the frame.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ProtocolError> {
        let cut = |needed| truncated("offer", body.len(), needed);
        let (mut raw, rest) = body.split_at_checked(RTS_LEN).ok_or_else(|| cut(RTS_LEN))?;
        let frame_len = raw.get_u64_le();
        let (count, head_len) = (raw.get_u32_le() as usize, raw.get_u32_le() as usize);
        // Before the count is multiplied or allocated by.
        if count == 0 || count > SEGMENTS_MAX {
            let value = count as u64;
            return Err(ProtocolError::Invalid { what: "segment count of an offer", value });
        }
        let segments_len = count * SEGMENT_LEN;
        let (raw_segments, head) =
            rest.split_at_checked(segments_len).ok_or_else(|| cut(RTS_LEN + segments_len))?;
        // The head is all that is left, to the byte: what follows it would be a second truth about
        // the frame's length.
        if head_len < HEADER_LEN || head_len != head.len() {
            let value = head_len as u64;
            return Err(ProtocolError::Invalid { what: "length of an offer's head", value });
        }
        let segments: Vec<_> =
            raw_segments.chunks_exact(SEGMENT_LEN).map(RtsSegment::from_bytes).collect();
        let mut lens = segments.iter().map(|segment| segment.len);
        // Segments are a peer's numbers, and their sum may overflow.
        let sum = lens.try_fold(head_len as u64, u64::checked_add);
        if sum != Some(frame_len) || segments.iter().any(|segment| segment.len == 0) {
            let what = "length of an offer's segments";
            return Err(ProtocolError::Invalid { what, value: sum.unwrap_or(u64::MAX) });
        }
        Ok(Self { head: head.to_vec(), segments })
    }
}

impl RtsSegment {
    /// Reads a segment from its [`SEGMENT_LEN`] bytes.
    fn from_bytes(mut raw: &[u8]) -> Self {
        let (address, len) = (raw.get_u64_le(), raw.get_u64_le());
        Self { memory: RemoteMemory { address, key: RemoteKey(raw.get_u32_le()) }, len }
    }
}

fn truncated(what: &'static str, len: usize, needed: usize) -> ProtocolError {
    ProtocolError::Truncated { what, len: len as u64, needed: needed as u64 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(address: u64, len: u64) -> RtsSegment {
        RtsSegment { memory: RemoteMemory { address, key: RemoteKey(7) }, len }
    }

    #[test]
    fn every_kind_survives() {
        for kind in [
            MessageKind::Frame,
            MessageKind::Rts { transfer: 3 },
            MessageKind::Ats { transfer: 4, outcome: AtsStatus::Read },
            MessageKind::Ats { transfer: 5, outcome: AtsStatus::Refused },
            MessageKind::Ats { transfer: 6, outcome: AtsStatus::Stopped },
            MessageKind::Cancel { transfer: u32::MAX },
            MessageKind::Grant,
            MessageKind::Probe,
            MessageKind::ProbeAnswer,
            MessageKind::Reclaim { keep: 3 },
            MessageKind::Return { returned: u32::MAX },
            MessageKind::Proof { transfer: 7 },
        ] {
            for wants_more in [false, true] {
                let grant = Grant { count: 2, control_seen: 3, wants_more };
                let header = MessageHeader { kind, epoch: 1, grant };
                let mut bytes = header.to_bytes().to_vec();
                bytes.push(9);
                assert_eq!(MessageHeader::parse(&bytes), Ok((header, &[9][..])));
            }
        }
    }

    #[test]
    fn an_offer_survives() {
        let segments = vec![segment(1, 10), segment(1 << 40, 1 << 33)];
        let offer = Rts { head: vec![5; HEADER_LEN + 3], segments };
        assert_eq!(offer.frame_len(), 35 + 10 + (1 << 33));
        let mut bytes = [0; RTS_LEN_MAX];
        let len = offer.write(&mut bytes);
        assert_eq!(Rts::parse(&bytes[..len]), Ok(offer));
        assert!(Rts::parse(&bytes[..len - 1]).is_err());
        assert!(Rts::parse(&bytes[..=len]).is_err());
    }

    #[test]
    fn head_and_segments_that_are_not_the_frame_are_refused() {
        let written = |head_len, segments| {
            let mut bytes = vec![0; RTS_LEN_MAX + 24];
            let len = Rts { head: vec![0; head_len], segments }.write(&mut bytes);
            bytes.truncate(len);
            bytes
        };
        let good = written(HEADER_LEN, vec![segment(1, 10)]);
        assert!(Rts::parse(&good).is_ok());
        let mut longer = good.clone();
        longer[0] += 1;
        for bytes in [
            longer,
            written(HEADER_LEN - 1, vec![segment(1, 10)]),
            written(HEADER_LEN, vec![segment(1, 10), segment(2, 0)]),
            written(HEADER_LEN, vec![segment(1, u64::MAX), segment(2, 11)]),
            written(HEADER_LEN, vec![]),
            written(HEADER_LEN, vec![segment(1, 1); SEGMENTS_MAX + 1]),
        ] {
            assert!(Rts::parse(&bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..RTS_LEN_MAX)) {
            let _ = MessageHeader::parse(&bytes);
            let _ = Rts::parse(&bytes);
        }
    }
}
