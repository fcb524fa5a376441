//! Repair of the `:authority` that a client on a Unix socket sends.
//!
//! gRPC's core uses the percent-encoded path as the authority of a server at `unix:/run/app.sock`:
//! `run%2Fapp.sock`. RFC 3986 allows that, but the `http` crate rejects the percent sign, so h2
//! would refuse the request. Nothing in the port reads an authority, and a socket without a host
//! serves only one. This module therefore replaces every byte that the crate could reject with an
//! underscore, in place, before h2 reads it. Lengths stay the same, and with them the sizes of
//! HPACK's table.
//!
//! ```text
//!   HEADERS, CONTINUATION:  field*
//!   field:  1 index | 01 name value | 001 table size | 000x name value     (RFC 7541, 6)
//!   name:   index, or 0 and a string    value: string    string: H, length, bytes
//! ```
//!
//! Huffman-coded values pass unchanged: core does not use them for an authority.

use crate::frames::{FramePart, HEADERS};

/// Index of `:authority` in HPACK's static table.
const AUTHORITY_INDEX: usize = 1;

const AUTHORITY: &[u8] = b":authority";

const FLAG_PADDED: u8 = 8;
const FLAG_PRIORITY: u8 = 0x20;

/// Length of a frame's priority fields in bytes.
const PRIORITY_LEN: usize = 5;

/// A position in the fields of a header block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before a field.
    Field,
    /// Inside an integer that continues beyond its first byte.
    Integer { value: usize, shift: u32, of: Integer },
    /// Before a string.
    String(Text),
    /// Inside a string, with `left` bytes to come.
    Bytes { left: usize, text: Text, is_plain: bool },
}

/// The role of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Integer {
    /// A whole field from the tables, or a new table size.
    Alone,
    NameIndex,
    Len {
        text: Text,
        is_plain: bool,
    },
}

/// The role of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    /// A name. `matched` counts the bytes of `:authority` seen so far; `None` after a mismatch.
    Name {
        matched: Option<usize>,
    },
    Value {
        is_authority: bool,
    },
}

/// A filter that rewrites one client's authorities to bytes that h2 accepts.
#[derive(Debug)]
pub(super) struct AuthorityMender {
    at: At,
    /// Padding at the end of the frame in bytes.
    padding: usize,
}

impl Default for AuthorityMender {
    fn default() -> Self {
        Self { at: At::Field, padding: 0 }
    }
}

impl AuthorityMender {
    /// Rewrites the next part of a HEADERS or CONTINUATION frame.
    pub(super) fn mend(&mut self, part: FramePart<'_>) {
        let FramePart { kind, flags, len, at, bytes } = part;
        let is_first = kind == HEADERS;
        let has_padding = is_first && flags & FLAG_PADDED != 0;
        let has_priority = is_first && flags & FLAG_PRIORITY != 0;
        let begins_at = usize::from(has_padding) + if has_priority { PRIORITY_LEN } else { 0 };
        if at == 0 {
            // Padding belongs to one HEADERS frame. A CONTINUATION frame has none, and must not
            // inherit the last one's.
            self.padding = 0;
            if is_first {
                self.at = At::Field;
            }
            // A padded frame begins with the length of its padding.
            if has_padding {
                self.padding = bytes.first().map_or(0, |len| usize::from(*len));
            }
        }
        // A pad length beyond the frame is a protocol error. h2 reports it; here it must only not
        // underflow.
        let ends_at = len.saturating_sub(self.padding);
        for (at, byte) in (at..).zip(bytes) {
            if (begins_at..ends_at).contains(&at) {
                self.at = step(self.at, byte);
            }
        }
    }
}

/// Advances by one byte, and replaces the byte if an authority must not contain it.
fn step(at: At, byte: &mut u8) -> At {
    match at {
        At::Field if *byte & 0x80 != 0 => integer(*byte, 0x7f, Integer::Alone),
        At::Field if *byte & 0x40 != 0 => integer(*byte, 0x3f, Integer::NameIndex),
        At::Field if *byte & 0x20 != 0 => integer(*byte, 0x1f, Integer::Alone),
        At::Field => integer(*byte, 0x0f, Integer::NameIndex),
        At::Integer { value, shift, of } => {
            // A hostile integer may have any number of bytes. It saturates instead of overflowing,
            // and h2 then refuses it.
            let more = usize::from(*byte & 0x7f).checked_shl(shift).unwrap_or(usize::MAX);
            let value = value.saturating_add(more);
            match *byte & 0x80 {
                0 => read(of, value),
                _ => At::Integer { value, shift: shift.saturating_add(7), of },
            }
        }
        At::String(text) => {
            let is_plain = *byte & 0x80 == 0;
            integer(*byte, 0x7f, Integer::Len { text, is_plain })
        }
        At::Bytes { left, text, is_plain } => {
            let text = match text {
                Text::Name { matched } => {
                    let next = matched.filter(|at| AUTHORITY.get(*at) == Some(byte));
                    // A Huffman-coded name never matches: its bytes are not those of `:authority`.
                    Text::Name { matched: next.filter(|_| is_plain).map(|at| at + 1) }
                }
                Text::Value { is_authority: true } if is_plain && !is_host_byte(*byte) => {
                    *byte = b'_';
                    text
                }
                Text::Value { .. } => text,
            };
            bytes(left - 1, text, is_plain)
        }
    }
}

/// Reads the first byte of an integer.
fn integer(byte: u8, mask: u8, of: Integer) -> At {
    match byte & mask {
        all if all == mask => At::Integer { value: mask.into(), shift: 0, of },
        value => read(of, value.into()),
    }
}

/// Moves on to the part after an integer.
fn read(of: Integer, value: usize) -> At {
    match of {
        Integer::Alone => At::Field,
        Integer::NameIndex if value == 0 => At::String(Text::Name { matched: Some(0) }),
        Integer::NameIndex => At::String(Text::Value { is_authority: value == AUTHORITY_INDEX }),
        Integer::Len { text, is_plain } => bytes(value, text, is_plain),
    }
}

/// Moves on to a string with `left` bytes to come.
fn bytes(left: usize, text: Text, is_plain: bool) -> At {
    match text {
        _ if left > 0 => At::Bytes { left, text, is_plain },
        Text::Name { matched } => {
            At::String(Text::Value { is_authority: matched == Some(AUTHORITY.len()) })
        }
        Text::Value { .. } => At::Field,
    }
}

/// Returns true for a byte that may occur in an authority at any position and any number of times.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frames::{CONTINUATION, Frames};

    /// A literal field whose name is an index.
    fn indexed(first: u8, value: &[u8]) -> Vec<u8> {
        [&[first, u8::try_from(value.len()).unwrap()], value].concat()
    }

    /// A literal field whose name is spelled out.
    fn named(name: &[u8], value: &[u8]) -> Vec<u8> {
        let len = |text: &[u8]| u8::try_from(text.len()).unwrap();
        [&[0, len(name)], name, &[len(value)], value].concat()
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, len @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len[..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn mended(frames: &[Vec<u8>], piece_len: usize) -> Vec<u8> {
        let (mut mender, mut bytes) = (AuthorityMender::default(), frames.concat());
        let mut frames = Frames::from_server();
        for piece in bytes.chunks_mut(piece_len) {
            frames.follow(piece, |part| mender.mend(part));
        }
        bytes
    }

    #[test]
    fn path_authorities_become_hosts() {
        let cases = [
            (indexed(0x41, b"%2Ftmp%2Ff.sock"), indexed(0x41, b"_2Ftmp_2Ff.sock")),
            (indexed(0x01, b"a:b:c@d[e]"), indexed(0x01, b"a_b_c_d_e_")),
            (named(b":authority", b"%20"), named(b":authority", b"_20")),
            (indexed(0x41, b"localhost"), indexed(0x41, b"localhost")),
            // Other fields stay: `:path`, a name with the same prefix, and one from the table.
            (indexed(0x44, b"/a%2F"), indexed(0x44, b"/a%2F")),
            (named(b":authorityx", b"%"), named(b":authorityx", b"%")),
            (
                vec![0x82, 0x3f, 0xe1, 0x1f, 0x41, 1, b'%'],
                vec![0x82, 0x3f, 0xe1, 0x1f, 0x41, 1, b'_'],
            ),
            // A Huffman-coded value.
            (vec![0x41, 0x81, b'%'], vec![0x41, 0x81, b'%']),
            // An index and a length that take several bytes.
            (
                [&[0x7f, 0x80, 1, 0x7f, 2], &[b'%'; 129][..], &[0x41, 1, b'%']].concat(),
                [&[0x7f, 0x80, 1, 0x7f, 2], &[b'%'; 129][..], &[0x41, 1, b'_']].concat(),
            ),
        ];
        for (sent, expected) in cases {
            for piece_len in [1, 2, 3, 7, 1000] {
                let mended = mended(&[frame(HEADERS, 4, &sent)], piece_len);
                assert_eq!(mended, frame(HEADERS, 4, &expected), "{sent:?} by {piece_len}");
            }
        }
    }

    #[test]
    fn padding_priority_and_continuation_are_skipped() {
        let padded =
            |value: &[u8]| [&[2, 0, 0, 0, 0, 9], &indexed(0x41, value)[..], b"%%"].concat();
        let sent = frame(HEADERS, FLAG_PADDED | FLAG_PRIORITY, &padded(b"%"));
        assert_eq!(mended(&[sent], 5), frame(HEADERS, FLAG_PADDED | FLAG_PRIORITY, &padded(b"_")));
        let (first, rest) = (&[0x41, 4, b'a'][..], &b"%2F"[..]);
        let sent = [frame(HEADERS, 0, first), frame(CONTINUATION, 4, rest)];
        let expected = [frame(HEADERS, 0, first), frame(CONTINUATION, 4, b"_2F")];
        assert_eq!(mended(&sent, 4), expected.concat());
    }

    proptest! {
        #[test]
        fn mending_never_panics_and_keeps_lengths(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..5),
            flags: u8, piece_len in 1..30_usize,
        ) {
            let frames: Vec<_> =
                payloads.iter().map(|payload| frame(HEADERS, flags, payload)).collect();
            prop_assert_eq!(mended(&frames, piece_len).len(), frames.concat().len());
        }
    }
}
