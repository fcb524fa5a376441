//! Compressing a message, and inflating it to exactly the length that it says; both in pieces.

use std::cell::Cell;

use bytes::{Bytes, BytesMut};
use flate2::{Compress, Compression as Level, Decompress, FlushCompress, FlushDecompress, Status};
use tokio::task::yield_now;

use super::{PIECE_LEN, RATIO_MAX, moved};
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

thread_local! {
    /// The inflater that the thread used last: making one takes 43 KiB.
    static KEPT_INFLATER: Cell<Option<Decompress>> = const { Cell::new(None) };
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

/// Inflates what was deflated to `deflated`, and has `len` bytes by its own word. Between pieces it
/// yields.
///
/// The memory of the message is made at once, so that it never is more than `len` and one byte; it
/// is touched as it fills.
///
/// # Errors
///
/// In words, when it is not deflate in the format of zlib, when it has another length than it says,
/// and when it ends early or something follows its end.
pub(crate) async fn inflate(deflated: &[u8], len: usize) -> Result<Bytes, &'static str> {
    // Before memory is taken for it.
    if len > deflated.len().saturating_mul(RATIO_MAX) {
        return Err("its announced length is impossible for so few compressed bytes");
    }
    // Taken out of the cell, since other tasks inflate on this thread while this one yields. A
    // future that is dropped meanwhile takes the inflater along, and the next call makes one.
    let mut inflater = KEPT_INFLATER.take().unwrap_or_else(|| Decompress::new(true));
    let result = inflate_with(&mut inflater, deflated, len).await;
    inflater.reset(true);
    KEPT_INFLATER.set(Some(inflater));
    result.map(Bytes::from)
}

async fn inflate_with(
    inflater: &mut Decompress,
    deflated: &[u8],
    len: usize,
) -> Result<Vec<u8>, &'static str> {
    // Cannot overflow: `inflate` has checked `len` against the length of the input.
    let mut out = Vec::with_capacity(len + 1);
    let mut read_len = 0;
    loop {
        let begin = out.len();
        // One byte more than it says, so that one that is longer shows.
        out.resize((begin + PIECE_LEN).min(len + 1), 0);
        let before = (inflater.total_in(), inflater.total_out());
        let rest = &deflated[read_len..];
        let inflated = inflater.decompress(rest, &mut out[begin..], FlushDecompress::None);
        let read = moved(before.0, inflater.total_in());
        let written = moved(before.1, inflater.total_out());
        read_len += read;
        out.truncate(begin + written);
        if out.len() > len {
            return Err("it inflates beyond its announced length");
        }
        match inflated {
            Err(_) => return Err("it is not in zlib format"),
            Ok(Status::StreamEnd) => break,
            Ok(_) if read == 0 && written == 0 => return Err("it is cut short"),
            Ok(_) => {}
        }
        if out.len() - begin == PIECE_LEN {
            yield_now().await;
        }
    }
    if read_len < deflated.len() {
        return Err("data follows its end");
    }
    if out.len() < len { Err("it inflates to less than its announced length") } else { Ok(out) }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
