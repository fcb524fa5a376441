//! Compressing a message, in pieces.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use flate2::{Compress, Compression as Level, FlushCompress, Status};
use tokio::task::yield_now;

use super::{PIECE_LEN, moved};
use crate::payload::encode::Encode;

/// After so many bytes a message that has hardly become shorter goes as it is: what follows is
/// likely to be like it, a picture or something compressed already.
const TRIAL_LEN: usize = 1 << 20;

thread_local! {
    /// The compressor that the thread used last: making one takes 300 KiB and longer than it takes
    /// to compress a short message.
    static KEPT: Cell<Option<Compress>> = const { Cell::new(None) };
}

/// A message's encoding and what of it is compressed.
struct Deflating {
    compress: Compress,
    out: Vec<u8>,
    /// The length that the result has to stay below.
    max: usize,
    read_len: usize,
}

impl Deflating {
    fn new(len: usize) -> Self {
        // The least compression: the next level takes twice the time for a tenth less.
        let compress = KEPT.take().unwrap_or_else(|| Compress::new(Level::fast(), true));
        let out = (len as u64).to_le_bytes().to_vec();
        Self { compress, out, max: len, read_len: 0 }
    }

    /// Compresses `piece`; false when the message is not worth it.
    fn push(&mut self, piece: &[u8], flush: FlushCompress) -> bool {
        self.read_len += piece.len();
        let mut rest = piece;
        loop {
            let begin = self.out.len();
            if begin >= self.max {
                return false;
            }
            self.out.resize((begin + PIECE_LEN / 4).min(self.max), 0);
            let before = (self.compress.total_in(), self.compress.total_out());
            let status = self.compress.compress(rest, &mut self.out[begin..], flush);
            self.out.truncate(begin + moved(before.1, self.compress.total_out()));
            rest = &rest[moved(before.0, self.compress.total_in())..];
            match status {
                Ok(Status::StreamEnd) => return self.out.len() < self.max,
                Ok(_) if rest.is_empty() && !matches!(flush, FlushCompress::Finish) => {
                    // Up to two pieces wait inside of the compressor.
                    let is_shorter = self.out.len() + 2 * PIECE_LEN < self.read_len;
                    return self.read_len < TRIAL_LEN || is_shorter;
                }
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Compresses the parts of a message; false when it is not worth it.
    async fn run(&mut self, parts: [&[u8]; 2]) -> bool {
        for part in parts {
            for piece in part.chunks(PIECE_LEN) {
                if !self.push(piece, FlushCompress::None) {
                    return false;
                }
                if self.read_len < self.max && piece.len() == PIECE_LEN {
                    yield_now().await;
                }
            }
        }
        self.push(&[], FlushCompress::Finish)
    }
}

/// Compresses a message; `None` where it does not become smaller. Between pieces it yields.
pub(crate) async fn deflate(message: &dyn Encode) -> Option<Bytes> {
    let (len, tail) = (message.len(), message.tail());
    let mut head = BytesMut::zeroed(len - tail.map_or(0, Bytes::len));
    message.encode_head(&mut head);
    let mut deflating = Deflating::new(len);
    let is_shorter = deflating.run([&head, tail.map_or(&[][..], |tail| tail)]).await;
    let Deflating { mut compress, out, .. } = deflating;
    compress.reset();
    KEPT.set(Some(compress));
    // As long as the result: it is kept while the message waits to be sent.
    is_shorter.then(|| Bytes::from(out.into_boxed_slice()))
}
