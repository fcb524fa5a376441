//! How far a peer is in a frame of HTTP/2 and in a block of headers.
//!
//! h2 keeps the part of a frame that has come until the rest does, and decodes a block of headers
//! as its frames come. It says nothing of either before the end, which the peer chooses.

/// The length of a client's preface, in bytes.
const PREFACE_LEN: usize = 24;

/// The length of a frame's header, in bytes.
const FRAME_HEADER_LEN: usize = 9;

/// The types of frames that have a part of a block (RFC 9113, sections 6.2 and 6.10).
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The flag of the frame that ends a block.
const END_HEADERS: u8 = 4;

/// What has come of a frame and of a block of headers. It is fed every byte of a connection.
#[derive(Debug)]
pub(super) struct FrameProgress {
    at: At,
    /// A block of headers has begun and not ended.
    is_block_open: bool,
}

/// What of the bytes so far waits for more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfinished {
    /// The bytes that have come of the payload of a frame that has not ended.
    pub(super) partial_frame_len: usize,
    /// A block of headers has begun and not ended.
    pub(super) is_header_block_open: bool,
}

#[derive(Debug)]
enum At {
    /// In the preface, of which so many bytes are left.
    Preface { left: usize },
    /// In the header of a frame, of which so many bytes have come.
    FrameHeader { header: [u8; FRAME_HEADER_LEN], len: usize },
    /// In the payload of a frame.
    Payload { read: usize, left: usize, ends_block: bool },
}

const FRAME_START: At = At::FrameHeader { header: [0; FRAME_HEADER_LEN], len: 0 };

impl Default for FrameProgress {
    fn default() -> Self {
        Self { at: At::Preface { left: PREFACE_LEN }, is_block_open: false }
    }
}

impl FrameProgress {
    /// Follows the next bytes of the peer.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = match &mut self.at {
                At::Preface { left } => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    if *left == 0 {
                        self.at = FRAME_START;
                    }
                    taken
                }
                At::FrameHeader { header, len } => {
                    let taken = bytes.len().min(FRAME_HEADER_LEN - *len);
                    header[*len..*len + taken].copy_from_slice(&bytes[..taken]);
                    *len += taken;
                    if *len == FRAME_HEADER_LEN {
                        let header = *header;
                        self.begin_payload(header);
                    }
                    taken
                }
                At::Payload { read, left, ends_block } => {
                    let taken = bytes.len().min(*left);
                    (*read, *left) = (*read + taken, *left - taken);
                    if *left == 0 {
                        self.is_block_open &= !*ends_block;
                        self.at = FRAME_START;
                    }
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
    }

    fn begin_payload(&mut self, [high, middle, low, kind, flags, ..]: [u8; FRAME_HEADER_LEN]) {
        let left = u32::from_be_bytes([0, high, middle, low]) as usize;
        let is_block = matches!(kind, HEADERS | CONTINUATION);
        let ends_block = is_block && flags & END_HEADERS != 0;
        self.is_block_open |= is_block;
        self.at = if left == 0 {
            self.is_block_open &= !ends_block;
            FRAME_START
        } else {
            At::Payload { read: 0, left, ends_block }
        };
    }

    pub(super) fn unfinished(&self) -> Unfinished {
        let partial_frame_len = match self.at {
            At::Payload { read, .. } => read,
            At::Preface { .. } | At::FrameHeader { .. } => 0,
        };
        Unfinished { partial_frame_len, is_header_block_open: self.is_block_open }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, len: usize) -> Vec<u8> {
        let [.., high, middle, low] = len.to_be_bytes();
        let mut frame = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        frame.resize(FRAME_HEADER_LEN + len, 0xff);
        frame
    }

    fn after(frames: &[Vec<u8>]) -> FrameProgress {
        let mut progress = FrameProgress::default();
        progress.push(&[b'x'; PREFACE_LEN]);
        frames.iter().for_each(|frame| progress.push(frame));
        progress
    }

    #[test]
    fn a_block_is_open_from_its_first_header_to_its_last_byte() {
        let (begin, end) = (frame(HEADERS, 0, 5), frame(CONTINUATION, END_HEADERS, 7));
        assert!(!after(&[]).unfinished().is_header_block_open);
        assert!(after(&[begin[..FRAME_HEADER_LEN].to_vec()]).unfinished().is_header_block_open);
        assert!(
            after(&[begin.clone(), frame(CONTINUATION, 0, 0)]).unfinished().is_header_block_open
        );
        assert!(
            after(&[begin.clone(), end[..end.len() - 1].to_vec()])
                .unfinished()
                .is_header_block_open
        );
        assert!(!after(&[begin.clone(), end]).unfinished().is_header_block_open);
        assert!(
            !after(&[begin, frame(CONTINUATION, END_HEADERS, 0)]).unfinished().is_header_block_open
        );
        assert!(!after(&[frame(HEADERS, END_HEADERS | 1, 3)]).unfinished().is_header_block_open);
        assert!(
            !after(&[frame(0, END_HEADERS, 3)]).unfinished().is_header_block_open,
            "a frame of data"
        );
    }

    #[test]
    fn a_frame_that_has_not_ended_has_a_length() {
        let data = frame(0, 0, 100);
        assert_eq!(after(&[data[..FRAME_HEADER_LEN].to_vec()]).unfinished().partial_frame_len, 0);
        assert_eq!(
            after(&[data[..FRAME_HEADER_LEN + 42].to_vec()]).unfinished().partial_frame_len,
            42
        );
        assert_eq!(after(&[data.clone(), data[..3].to_vec()]).unfinished().partial_frame_len, 0);
    }

    proptest! {
        #[test]
        fn pieces_of_any_length_lead_to_the_same_place(
            frames in proptest::collection::vec((0_u8..12, any::<u8>(), 0_usize..40), 0..8),
            piece_len in 1_usize..20,
        ) {
            let frames: Vec<_> =
                frames.into_iter().map(|(kind, flags, len)| frame(kind, flags, len)).collect();
            let whole = after(&frames);
            let bytes = frames.concat();
            let pieces: Vec<_> = bytes.chunks(piece_len).map(<[u8]>::to_vec).collect();
            let in_pieces = after(&pieces);
            prop_assert_eq!(whole.unfinished(), in_pieces.unfinished());
            prop_assert_eq!(whole.unfinished().partial_frame_len, 0);
        }
    }
}
