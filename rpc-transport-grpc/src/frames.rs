//! A follower of HTTP/2 frames in the bytes of one direction.
//!
//! h2 does not expose some frames: a client's settings, and a GOAWAY that precedes a socket error.
//! The follower finds them in the bytes. It buffers nothing but a frame header.

/// Length of the client's connection preface in bytes.
const PREFACE_LEN: usize = 24;

/// Length of a frame header: length (3), type, flags, stream (4).
const HEADER_LEN: usize = 9;

pub(crate) const HEADERS: u8 = 1;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

/// The flag of the frame that ends a header block (RFC 9113, sections 6.2 and 6.10).
const END_HEADERS: u8 = 4;

/// A part of a frame's payload.
#[derive(Debug)]
pub(crate) struct FramePart<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Length of the whole payload in bytes.
    pub(crate) len: usize,
    /// Offset of this part in the payload.
    pub(crate) at: usize,
    pub(crate) bytes: &'a mut [u8],
}

/// The bytes that h2 holds while it waits for more.
///
/// h2 buffers a partial frame, and decodes a header block as its frames arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// Payload bytes received of an incomplete frame.
    pub(crate) partial_frame_len: usize,
    /// True between the first frame of a header block and its END_HEADERS.
    pub(crate) is_header_block_open: bool,
}

/// A position in a sequence of frames.
#[derive(Debug)]
pub(crate) struct Frames {
    preface_left: usize,
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// Payload bytes of the current frame that have passed.
    at: usize,
    is_header_block_open: bool,
}

impl Frames {
    /// Follows the bytes that a client sends, which begin with the preface.
    pub(crate) fn from_client() -> Self {
        Self {
            preface_left: PREFACE_LEN,
            header: [0; HEADER_LEN],
            header_len: 0,
            at: 0,
            is_header_block_open: false,
        }
    }

    /// Follows the bytes that a server sends.
    pub(crate) fn from_server() -> Self {
        Self { preface_left: 0, ..Self::from_client() }
    }

    /// Follows the next bytes and visits the payloads in them. Skips empty payloads.
    pub(crate) fn follow(&mut self, bytes: &mut [u8], mut visit: impl FnMut(FramePart<'_>)) {
        let preface = self.preface_left.min(bytes.len());
        self.preface_left -= preface;
        let mut rest = &mut bytes[preface..];
        while !rest.is_empty() {
            let missing = HEADER_LEN - self.header_len;
            if missing > 0 {
                let (taken, left) = rest.split_at_mut(missing.min(rest.len()));
                self.header[self.header_len..][..taken.len()].copy_from_slice(taken);
                self.header_len += taken.len();
                self.at = 0;
                rest = left;
            }
            if self.header_len < HEADER_LEN {
                return;
            }
            let [a, b, c, kind, flags, ..] = self.header;
            let len = u32::from_be_bytes([0, a, b, c]) as usize;
            // A block is open from its first frame header on: from then on the client owes the rest
            // of it.
            let is_block = matches!(kind, HEADERS | CONTINUATION);
            self.is_header_block_open |= is_block;
            let (part, left) = rest.split_at_mut((len - self.at).min(rest.len()));
            let (at, part_len) = (self.at, part.len());
            if part_len > 0 {
                visit(FramePart { kind, flags, len, at, bytes: part });
            }
            self.at += part_len;
            if self.at == len {
                self.header_len = 0;
                self.is_header_block_open &= !(is_block && flags & END_HEADERS != 0);
            }
            rest = left;
        }
    }

    pub(crate) fn unfinished(&self) -> Unfinished {
        let is_in_payload = self.header_len == HEADER_LEN;
        let partial_frame_len = if is_in_payload { self.at } else { 0 };
        Unfinished { partial_frame_len, is_header_block_open: self.is_header_block_open }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let [_, len @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&len[..], &[kind, 5, 0, 0, 0, 1], payload].concat()
    }

    fn after(frames: &[&[u8]]) -> Unfinished {
        let mut follower = Frames::from_server();
        frames.iter().for_each(|frame| follower.follow(&mut frame.to_vec(), |_| {}));
        follower.unfinished()
    }

    /// Returns a frame with the END_STREAM flag alone, so that its header block stays open.
    fn open(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = frame(kind, payload);
        frame[4] = 1;
        frame
    }

    #[test]
    fn a_header_block_stays_open_until_its_last_byte() {
        let (begin, end) = (open(HEADERS, b"abc"), frame(CONTINUATION, b"defg"));
        let is_open = |frames: &[&[u8]]| after(frames).is_header_block_open;
        assert!(is_open(&[&begin[..HEADER_LEN]]));
        assert!(is_open(&[&begin, &open(CONTINUATION, b"")]));
        assert!(is_open(&[&begin, &end[..end.len() - 1]]));
        assert!(!is_open(&[&begin, &end]));
        assert!(!is_open(&[&begin, &frame(CONTINUATION, b"")]));
        assert!(!is_open(&[&frame(HEADERS, b"abc")]));
        assert!(!is_open(&[&open(0, b"abc")]), "a frame of data");
    }

    #[test]
    fn an_incomplete_frame_reports_its_length() {
        let data = frame(0, &[7; 100]);
        let len = |frames: &[&[u8]]| after(frames).partial_frame_len;
        assert_eq!(len(&[&data[..HEADER_LEN]]), 0);
        assert_eq!(len(&[&data[..HEADER_LEN + 42]]), 42);
        assert_eq!(len(&[&data, &data[..3]]), 0);
    }

    proptest! {
        #[test]
        fn payloads_are_followed_across_any_cuts(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 1..6),
            cuts in prop::collection::vec(1..40_usize, 1..20),
        ) {
            let mut bytes = vec![7; PREFACE_LEN];
            for (kind, payload) in payloads.iter().enumerate() {
                bytes.extend(frame(u8::try_from(kind).unwrap(), payload));
            }
            let (mut frames, mut seen) = (Frames::from_client(), vec![Vec::new(); payloads.len()]);
            let (mut rest, mut cuts) = (&mut bytes[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, left) = rest.split_at_mut(rest.len().min(*cuts.next().unwrap()));
                frames.follow(piece, |part| {
                    let seen = &mut seen[usize::from(part.kind)];
                    assert_eq!((part.at, part.flags), (seen.len(), 5));
                    assert_eq!(part.len, payloads[usize::from(part.kind)].len());
                    seen.extend_from_slice(part.bytes);
                });
                rest = left;
            }
            prop_assert_eq!(seen, payloads);
        }
    }
}
