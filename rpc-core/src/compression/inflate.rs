//! Inflating a message, in pieces, to exactly the length that it says.

use std::cell::Cell;

use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use tokio::task::yield_now;

use super::{PIECE_LEN, RATIO_MAX, moved};

thread_local! {
    /// The inflater that the thread used last: making one takes 43 KiB.
    static KEPT: Cell<Option<Decompress>> = const { Cell::new(None) };
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
        return Err("no deflate as short as this can have the length that it says");
    }
    // Taken out of the cell, since other tasks inflate on this thread while this one yields. A
    // future that is dropped meanwhile takes the inflater along, and the next call makes one.
    let mut inflater = KEPT.take().unwrap_or_else(|| Decompress::new(true));
    let result = inflate_with(&mut inflater, deflated, len).await;
    inflater.reset(true);
    KEPT.set(Some(inflater));
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
            return Err("it is longer than it says");
        }
        match inflated {
            Err(_) => return Err("it is not deflate in the format of zlib"),
            Ok(Status::StreamEnd) => break,
            Ok(_) if read == 0 && written == 0 => return Err("it is cut short"),
            Ok(_) => {}
        }
        if out.len() - begin == PIECE_LEN {
            yield_now().await;
        }
    }
    if read_len < deflated.len() {
        return Err("something follows its end");
    }
    if out.len() < len { Err("it is shorter than it says") } else { Ok(out) }
}

#[cfg(test)]
#[path = "inflate_tests.rs"]
mod tests;
