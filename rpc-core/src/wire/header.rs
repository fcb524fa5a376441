//! The fixed header that every frame begins with.
//!
//! | offset | size | field | request | response | cancel |
//! |--:|--:|---|---|---|---|
//! | 0 | 1 | kind | 1 | 2 | 3 |
//! | 1 | 1 | flags | 0 | 0 | 0 |
//! | 2 | 2 | selector | method id | status code | 0 |
//! | 4 | 4 | metadata_len | bytes of metadata | bytes of outcome | 0 |
//! | 8 | 8 | call | call id | call id | call id |
//! | 16 | 8 | timeout_us | what is left of the deadline, 0: none | 0 | 0 |
//! | 24 | 8 | message_len | bytes of the message | bytes of the message | 0 |

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ProtocolError;

/// The length of the header in bytes.
pub const HEADER_LEN: usize = 32;

const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);

/// The header as it lies in memory.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    kind: u8,
    flags: u8,
    selector: U16,
    metadata_len: U32,
    call: U64,
    timeout_us: U64,
    message_len: U64,
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameKind {
    /// Starts a call: the client's message.
    Request,
    /// Ends a call: the server's status and, on success, its message.
    Response,
    /// The client gives the call up; nothing answers it.
    Cancel,
}

/// The decoded header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is.
    pub kind: FrameKind,
    /// The method's id of a request, the status code of a response.
    pub selector: u16,
    /// The length of the block between header and message, in bytes.
    pub metadata_len: u32,
    /// The call, by the id that the client chose.
    pub call: u64,
    /// What is left of a request's deadline in microseconds; 0 when it has none.
    pub timeout_us: u64,
    /// The length of the message, in bytes.
    pub message_len: u64,
}

impl FrameHeader {
    /// The header of a frame without block and message.
    #[must_use]
    pub fn bare(kind: FrameKind, call: u64) -> Self {
        Self { kind, selector: 0, metadata_len: 0, call, timeout_us: 0, message_len: 0 }
    }

    /// The length of the whole frame, header included.
    #[must_use]
    pub fn frame_len(&self) -> u64 {
        (HEADER_LEN as u64 + u64::from(self.metadata_len)).saturating_add(self.message_len)
    }

    /// The header's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let raw = RawHeader {
            kind: match self.kind {
                FrameKind::Request => 1,
                FrameKind::Response => 2,
                FrameKind::Cancel => 3,
            },
            flags: 0,
            selector: self.selector.into(),
            metadata_len: self.metadata_len.into(),
            call: self.call.into(),
            timeout_us: self.timeout_us.into(),
            message_len: self.message_len.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// Reads the header from a frame's first bytes.
    ///
    /// # Errors
    ///
    /// When there are fewer than [`HEADER_LEN`] bytes, and when kind or flags mean nothing.
    pub fn parse(frame: &[u8]) -> Result<Self, ProtocolError> {
        let (raw, _) =
            RawHeader::read_from_prefix(frame).map_err(|_| ProtocolError::Truncated {
                what: "frame header",
                len: frame.len() as u64,
                needed: HEADER_LEN as u64,
            })?;
        let kind = match raw.kind {
            1 => FrameKind::Request,
            2 => FrameKind::Response,
            3 => FrameKind::Cancel,
            other => {
                return Err(ProtocolError::Invalid { what: "frame kind", value: other.into() });
            }
        };
        if raw.flags != 0 {
            let value = raw.flags.into();
            return Err(ProtocolError::Invalid { what: "frame flags", value });
        }
        Ok(Self {
            kind,
            selector: raw.selector.get(),
            metadata_len: raw.metadata_len.get(),
            call: raw.call.get(),
            timeout_us: raw.timeout_us.get(),
            message_len: raw.message_len.get(),
        })
    }

    /// Reads the header of a frame that has arrived whole, and checks that its parts fill it.
    ///
    /// # Errors
    ///
    /// As [`FrameHeader::parse`], and when the lengths in the header do not add up to the frame.
    pub fn parse_whole(frame: &[u8]) -> Result<Self, ProtocolError> {
        let header = Self::parse(frame)?;
        header.check_len(frame.len() as u64)?;
        Ok(header)
    }

    /// Checks that the lengths in the header add up to `len`.
    ///
    /// # Errors
    ///
    /// When they do not.
    pub fn check_len(&self, len: u64) -> Result<(), ProtocolError> {
        match self.frame_len() {
            needed if needed > len => Err(ProtocolError::Truncated { what: "frame", len, needed }),
            max if max < len => Err(ProtocolError::TooLong { what: "frame", len, max }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_has_its_documented_bytes() {
        let header = FrameHeader {
            kind: FrameKind::Request,
            selector: 0x0201,
            metadata_len: 3,
            call: 0x0807_0605_0403_0201,
            timeout_us: 5,
            message_len: 7,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..8], [1, 0, 1, 2, 3, 0, 0, 0]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16], 5);
        assert_eq!(bytes[24], 7);
    }

    #[test]
    fn lengths_that_do_not_fill_the_frame_are_refused() {
        let mut header = FrameHeader::bare(FrameKind::Request, 1);
        header.message_len = u64::MAX;
        let frame = header.to_bytes();
        assert!(matches!(
            FrameHeader::parse_whole(&frame),
            Err(ProtocolError::Truncated { needed: u64::MAX, .. })
        ));
        let mut longer = FrameHeader::bare(FrameKind::Cancel, 1).to_bytes().to_vec();
        longer.push(0);
        assert!(matches!(
            FrameHeader::parse_whole(&longer),
            Err(ProtocolError::TooLong { max: 32, len: 33, .. })
        ));
    }

    proptest! {
        #[test]
        fn decoding_never_panics_and_encoding_is_its_inverse(bytes: [u8; HEADER_LEN]) {
            if let Ok(header) = FrameHeader::parse(&bytes) {
                prop_assert_eq!(header.to_bytes(), bytes);
            }
        }

        #[test]
        fn short_frames_are_errors(bytes in prop::collection::vec(any::<u8>(), 0..HEADER_LEN)) {
            prop_assert!(FrameHeader::parse(&bytes).is_err());
        }
    }
}
