//! Frames of HTTP/2 in the bytes of one direction, followed as they pass.
//!
//! h2 keeps some frames to itself: the settings of a client, and a GOAWAY before an error of the
//! socket. A follower of the bytes sees them, and holds nothing but a frame's header.

/// Length of the preface that a client's bytes begin with.
const PREFACE_LEN: usize = 24;

/// Length of a frame's header: length (3), type, flags, stream (4).
const HEADER_LEN: usize = 9;

pub(crate) const HEADERS: u8 = 1;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GO_AWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

/// A part of a frame's payload.
#[derive(Debug)]
pub(crate) struct FramePart<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Length of the whole payload in bytes.
    pub(crate) len: usize,
    /// Place in the payload where this part begins.
    pub(crate) at: usize,
    pub(crate) bytes: &'a mut [u8],
}

/// The place in a sequence of frames.
#[derive(Debug)]
pub(crate) struct Frames {
    preface_left: usize,
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// Bytes of the payload that have passed.
    at: usize,
}

impl Frames {
    /// Follows what a client sends.
    pub(crate) fn from_client() -> Self {
        Self { preface_left: PREFACE_LEN, header: [0; HEADER_LEN], header_len: 0, at: 0 }
    }

    /// Follows what a server sends.
    pub(crate) fn from_server() -> Self {
        Self { preface_left: 0, ..Self::from_client() }
    }

    /// Follows the next bytes, and visits the payloads in them. A payload without bytes is not
    /// visited.
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
            let (part, left) = rest.split_at_mut((len - self.at).min(rest.len()));
            let (at, part_len) = (self.at, part.len());
            if part_len > 0 {
                visit(FramePart { kind, flags, len, at, bytes: part });
            }
            self.at += part_len;
            if self.at == len {
                self.header_len = 0;
            }
            rest = left;
        }
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

    proptest! {
        #[test]
        fn payloads_are_followed_in_pieces_of_any_length(
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
