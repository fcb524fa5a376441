//! The fixed header that every frame begins with.
//!
//! | offset | size | field | what it holds |
//! |--:|--:|---|---|
//! | 0 | 1 | kind | see [`FrameKind`] |
//! | 1 | 1 | flags | see below |
//! | 2 | 2 | selector | request: method id; response: status code; else 0 |
//! | 4 | 4 | metadata_len | bytes of the block: metadata of a request or of headers, outcome |
//! | 8 | 8 | call | the call's id, which the client chose; 0 in a frame of the connection |
//! | 16 | 8 | argument | depends on the kind, see below |
//! | 24 | 8 | message_len | bytes of the message, or of the messages with their lengths |
//!
//! Bit 0 of the flags says of a request that the client's messages follow as a stream, bit 1 of a
//! response that no handler has seen the call. Bit 2 says of a request with a message, of a
//! response and of messages that the message is compressed: it is the length that it inflates to,
//! in eight bytes, and deflate in the format of zlib (RFC 1950). Only a peer that has said so in
//! its Hello is sent such a frame. One of messages holds a single one then, whose length counts
//! both parts.
//!
//! The argument of a request is what is left of its deadline in microseconds, 0 for none; that of
//! a window is two counts; that of a cancel is 0. The other frames of a call carry their
//! sequence number there, counted from 0 for each direction. A ping has its number there, and its
//! pong the same.
//!
//! What may follow the header, by kind; anything else is a violation, since what a frame carries
//! is memory that its receiver keeps and that no window counts:
//!
//! | kind | metadata | message |
//! |---|---|---|
//! | request | yes | one; none where the client's messages follow as a stream |
//! | response | yes: the outcome | one; none at the end of a stream, which the client checks |
//! | headers | yes | no |
//! | messages | no | at least one, each behind its length |
//! | cancel, half-close, window, ping, pong, go-away | no | no: 32 bytes in all |

use bytes::{Buf as _, BufMut as _};

use super::{FrameKind, ProtocolError};

/// The length of the header in bytes.
pub const HEADER_LEN: usize = 32;

/// The length of a message's length in a frame of messages, in bytes.
pub const MESSAGE_LEN_LEN: usize = 4;

// The fields of the table: `to_bytes` fills the array, and `parse` reads all of it.
const _: () = assert!(1 + 1 + 2 + 4 + 8 + 8 + 8 == HEADER_LEN);

/// The flag of a request whose messages follow as a stream.
const STREAMING: u8 = 1;

/// The flag of a response to a call that no handler has seen.
const NOT_EXECUTED: u8 = 2;

/// The flag of a frame whose message is compressed.
const DEFLATED: u8 = 4;

/// The length of the length that a compressed message inflates to, in bytes.
const INFLATED_LEN_LEN: usize = 8;

/// The parts that may follow the header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// Nothing: the frame is its header.
    Nothing,
    /// Metadata, which may be empty.
    Metadata,
    /// Metadata and a message, either of which may be empty.
    MetadataAndMessage,
    /// Messages behind their lengths, at least one.
    Messages,
}

impl FrameKind {
    /// The one place that decides which kinds carry what. The match is total, so that a new kind
    /// cannot be forgotten.
    fn body(self) -> Body {
        match self {
            Self::Request | Self::Response => Body::MetadataAndMessage,
            Self::Headers => Body::Metadata,
            Self::Messages => Body::Messages,
            Self::Cancel
            | Self::HalfClose
            | Self::Window
            | Self::Ping
            | Self::Pong
            | Self::GoAway => Body::Nothing,
        }
    }

    /// Returns true if the kind has messages.
    fn has_message(self) -> bool {
        matches!(self.body(), Body::MetadataAndMessage | Body::Messages)
    }
}

/// The decoded header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// True if a request's messages follow as a stream.
    pub is_streaming: bool,
    /// True if a response reports that no handler has seen the call.
    pub is_not_executed: bool,
    /// True if the message is compressed.
    pub is_deflated: bool,
    /// The method's id of a request, the status code of a response.
    pub selector: u16,
    /// The length of the block between header and message, in bytes.
    pub metadata_len: u32,
    /// The call, by the id that the client chose.
    pub call: u64,
    /// Argument of the kind: see the table of this module.
    pub argument: u64,
    /// The length of the message, in bytes.
    pub message_len: u64,
}

impl FrameHeader {
    /// The header of a frame without block and message.
    #[must_use]
    pub fn bare(kind: FrameKind, call: u64) -> Self {
        Self {
            kind,
            is_streaming: false,
            is_not_executed: false,
            is_deflated: false,
            selector: 0,
            metadata_len: 0,
            call,
            argument: 0,
            message_len: 0,
        }
    }

    /// Sets the lengths of what follows, in bytes. The caller has checked the metadata against a
    /// limit of 32 bits.
    pub(crate) fn measure(&mut self, metadata_len: usize, message_len: usize) {
        self.metadata_len = u32::try_from(metadata_len).unwrap_or(u32::MAX);
        self.message_len = message_len as u64;
    }

    /// The length of the whole frame, header included.
    #[must_use]
    pub fn frame_len(&self) -> u64 {
        (HEADER_LEN as u64 + u64::from(self.metadata_len)).saturating_add(self.message_len)
    }

    /// Returns the key that tells the frame from the others of its call and direction while it is
    /// received.
    #[must_use]
    pub fn frame_key(&self) -> (u64, u64) {
        // A request's argument is a timeout; places of frames that follow it count from 0.
        let seq = if self.kind == FrameKind::Request { u64::MAX } else { self.argument };
        (self.call, seq)
    }

    fn flags(&self) -> u8 {
        let streaming = if self.is_streaming { STREAMING } else { 0 };
        let not_executed = if self.is_not_executed { NOT_EXECUTED } else { 0 };
        let deflated = if self.is_deflated { DEFLATED } else { 0 };
        streaming | not_executed | deflated
    }

    /// The header's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut out = &mut bytes[..];
        out.put_u8(self.kind.to_wire());
        out.put_u8(self.flags());
        out.put_u16_le(self.selector);
        out.put_u32_le(self.metadata_len);
        out.put_u64_le(self.call);
        out.put_u64_le(self.argument);
        out.put_u64_le(self.message_len);
        bytes
    }

    /// Reads the header from a frame's first bytes.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if there are fewer than [`HEADER_LEN`] bytes, if kind or flags mean
    /// nothing, or if the frame has a part that its kind does not have, or lacks one that it needs.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, ProtocolError> {
        let mut raw: &[u8] = frame.first_chunk::<HEADER_LEN>().ok_or(ProtocolError::Truncated {
            what: "frame header",
            len: frame.len() as u64,
            needed: HEADER_LEN as u64,
        })?;
        let (kind, flags) = (raw.get_u8(), raw.get_u8());
        let kind = FrameKind::from_wire(kind)
            .ok_or(ProtocolError::Invalid { what: "frame kind", value: kind.into() })?;
        let is_streaming = flags == STREAMING && kind == FrameKind::Request;
        let is_not_executed = flags == NOT_EXECUTED && kind == FrameKind::Response;
        let is_deflated = flags == DEFLATED && kind.has_message();
        if flags != 0 && !is_streaming && !is_not_executed && !is_deflated {
            let value = flags.into();
            return Err(ProtocolError::Invalid { what: "frame flags", value });
        }
        let header = Self {
            kind,
            is_streaming,
            is_not_executed,
            is_deflated,
            // In the order of the bytes.
            selector: raw.get_u16_le(),
            metadata_len: raw.get_u32_le(),
            call: raw.get_u64_le(),
            argument: raw.get_u64_le(),
            message_len: raw.get_u64_le(),
        };
        header.check_body()?;
        Ok(header)
    }

    /// Checks that the frame has the parts that its kind has.
    fn check_body(&self) -> Result<(), ProtocolError> {
        let Self { kind, metadata_len, message_len, is_deflated, .. } = *self;
        let no_metadata = || match metadata_len {
            0 => Ok(()),
            len => Err(ProtocolError::UnexpectedPart { kind, part: "metadata", len: len.into() }),
        };
        let no_message = || match message_len {
            0 => Ok(()),
            len => Err(ProtocolError::UnexpectedPart { kind, part: "message", len }),
        };
        if is_deflated {
            let lens_len = if kind == FrameKind::Messages { MESSAGE_LEN_LEN } else { 0 };
            let needed = (lens_len + INFLATED_LEN_LEN) as u64;
            if message_len < needed {
                let what = "compressed message";
                return Err(ProtocolError::Truncated { what, len: message_len, needed });
            }
        }
        match kind.body() {
            Body::Nothing => no_metadata().and_then(|()| no_message()),
            Body::Metadata => no_message(),
            // The messages follow in frames of their own.
            Body::MetadataAndMessage if self.is_streaming => no_message(),
            Body::MetadataAndMessage => Ok(()),
            Body::Messages if message_len < MESSAGE_LEN_LEN as u64 => {
                // An empty frame would be kept without counting against the stream's window.
                let needed = MESSAGE_LEN_LEN as u64;
                Err(ProtocolError::Truncated {
                    what: "frame of messages",
                    len: message_len,
                    needed,
                })
            }
            Body::Messages => no_metadata(),
        }
    }

    /// Reads the header of a frame that has arrived whole, and checks that its parts fill it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`FrameHeader::parse`], and one if the header's lengths do not add up.
    pub fn parse_whole(frame: &[u8]) -> Result<Self, ProtocolError> {
        let header = Self::parse(frame)?;
        header.check_len(frame.len() as u64)?;
        Ok(header)
    }

    /// Checks that the lengths in the header add up to `len`.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if they do not.
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
            is_streaming: false,
            is_not_executed: false,
            is_deflated: false,
            selector: 0x0201,
            metadata_len: 3,
            call: 0x0807_0605_0403_0201,
            argument: 5,
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

    /// The lengths of metadata and message that each kind may have, written down a second time. A
    /// receiver keeps a frame that carries more than its kind has, and no window counts it.
    #[test]
    fn a_kind_has_its_parts_and_no_others() {
        for &kind in FrameKind::ALL {
            for (metadata_len, message_len) in [(0, 0), (7, 0), (0, 3), (0, 4), (7, 4)] {
                let header =
                    FrameHeader { metadata_len, message_len, ..FrameHeader::bare(kind, 1) };
                let is_good = match kind {
                    FrameKind::Request | FrameKind::Response => true,
                    FrameKind::Headers => message_len == 0,
                    FrameKind::Messages => metadata_len == 0 && message_len >= 4,
                    FrameKind::Cancel
                    | FrameKind::HalfClose
                    | FrameKind::Window
                    | FrameKind::Ping
                    | FrameKind::Pong
                    | FrameKind::GoAway => (metadata_len, message_len) == (0, 0),
                };
                let parsed = FrameHeader::parse(&header.to_bytes());
                assert_eq!(parsed.is_ok(), is_good, "{header:?}: {parsed:?}");
            }
        }
        let streaming =
            FrameHeader { is_streaming: true, ..FrameHeader::bare(FrameKind::Request, 1) };
        assert!(FrameHeader::parse(&streaming.to_bytes()).is_ok());
        let with_message = FrameHeader { message_len: 1, ..streaming };
        assert!(FrameHeader::parse(&with_message.to_bytes()).is_err());
    }

    #[test]
    fn a_flag_is_for_one_kind_and_survives() {
        for &kind in FrameKind::ALL {
            for flags in 0..=u8::MAX {
                let mut bytes = FrameHeader::bare(kind, 1).to_bytes();
                if kind == FrameKind::Messages || flags == 4 && kind.has_message() {
                    bytes[24] = 12;
                }
                bytes[1] = flags;
                let is_good = match flags {
                    0 => true,
                    1 => kind == FrameKind::Request,
                    2 => kind == FrameKind::Response,
                    4 => [FrameKind::Request, FrameKind::Response, FrameKind::Messages]
                        .contains(&kind),
                    _ => false,
                };
                let parsed = FrameHeader::parse(&bytes);
                assert_eq!(parsed.is_ok(), is_good, "{kind:?} with {flags}");
                let Ok(header) = parsed else { continue };
                assert_eq!((header.is_streaming, header.is_not_executed), (flags == 1, flags == 2));
                assert_eq!(header.is_deflated, flags == 4);
                assert_eq!(header.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_compressed_message_begins_with_its_inflated_length() {
        for (kind, least) in
            [(FrameKind::Request, 8), (FrameKind::Response, 8), (FrameKind::Messages, 12)]
        {
            for message_len in 0..20 {
                let bare = FrameHeader::bare(kind, 1);
                let header = FrameHeader { is_deflated: true, message_len, ..bare };
                let parsed = FrameHeader::parse(&header.to_bytes());
                assert_eq!(parsed.is_ok(), message_len >= least, "{kind:?}, {message_len}");
            }
        }
    }

    #[test]
    fn the_parts_of_a_frame_add_up_to_its_length() {
        let mut header = FrameHeader::bare(FrameKind::Response, 1);
        (header.metadata_len, header.message_len) = (5, 700);
        assert_eq!(header.frame_len(), 32 + 5 + 700);
        let mut frame = header.to_bytes().to_vec();
        frame.resize(32 + 5 + 700, 0);
        assert_eq!(FrameHeader::parse_whole(&frame), Ok(header));
    }

    #[test]
    fn frames_of_a_call_have_keys_of_their_own() {
        let key =
            |kind, argument| FrameHeader { argument, ..FrameHeader::bare(kind, 7) }.frame_key();
        assert_eq!(key(FrameKind::Messages, 3), (7, 3));
        assert_eq!(key(FrameKind::HalfClose, 0), (7, 0));
        // Its argument is a timeout, which may be the place of another frame.
        assert_eq!(key(FrameKind::Request, 3), (7, u64::MAX));
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
