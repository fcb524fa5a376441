//! Memory of a connection and its calls that no buffer accounts for.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use rpc_core::memory::MemoryCharge;

use crate::frames::Unfinished;

/// Memory of an idle HTTP/2 connection in bytes: h2's 16 KiB write buffer and 8 KiB read buffer,
/// and the in-process session.
const HTTP2_HELD: u64 = 26 << 10;

/// The part of [`HTTP2_HELD`] that can hold a partial frame, in bytes.
const READ_BUFFER_LEN: u64 = 8 << 10;

/// Minimum length of a header as HTTP/2 counts it, in bytes: 32, and a name.
const HEADER_LISTED_MIN: u64 = 33;

/// Memory of a call beside its headers and messages, in bytes: its tasks, its streams, and its
/// entries in the tables on both sides of the in-process link.
pub(super) const CALL_HELD: u64 = 7 << 10;

/// Memory of an ended call whose last frame is still unwritten, in bytes: h2's state of the stream.
pub(super) const ENDED_HELD: u64 = 1 << 10;

/// Memory of a header beside its name and value, in bytes: its entries in the map's list and index,
/// and two allocations.
const HEADER_HELD: u64 = 160;

/// Returns the memory of a header map in bytes. HTTP/2 counts 32 bytes of overhead per header, and
/// h2 limits that sum. In memory, many short headers take five times as much.
pub(super) fn headers_held(headers: &HeaderMap) -> u64 {
    let len = |(name, value): (&http::HeaderName, &HeaderValue)| {
        (name.as_str().len() + value.len()) as u64 + HEADER_HELD
    };
    headers.iter().map(len).sum()
}

/// Returns the memory of an HTTP/2 connection beside its calls, in bytes.
///
/// An incomplete header block counts as the most that h2 decodes of one: `header_list_max` bytes,
/// as HTTP/2 counts them.
pub(super) fn connection_held(unfinished: Unfinished, header_list_max: u32) -> u64 {
    let frame = (unfinished.partial_frame_len as u64).saturating_sub(READ_BUFFER_LEN);
    let list = u64::from(header_list_max);
    let block_max = list + list / HEADER_LISTED_MIN * HEADER_HELD;
    HTTP2_HELD + frame + if unfinished.is_header_block_open { block_max } else { 0 }
}

/// The text of a header that owns a charge. h2 drops it once the frame is written or the stream is
/// reset.
struct ChargedText {
    text: Bytes,
    _charge: MemoryCharge,
}

impl AsRef<[u8]> for ChargedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Ties `charge` to `headers` until h2 has written them. Sets it to their memory.
pub(super) fn keep(headers: &mut HeaderMap, mut charge: MemoryCharge) {
    charge.set(ENDED_HELD + headers_held(headers));
    // Prefers `grpc-status`: every complete response has it, and its value is short to copy.
    let has_status = headers.contains_key("grpc-status");
    let value = match has_status {
        true => headers.get_mut("grpc-status"),
        false => headers.values_mut().next(),
    };
    // Without headers there is nothing to tie the charge to. It ends here.
    let Some(value) = value else { return };
    let text = Bytes::copy_from_slice(value.as_bytes());
    let charged = Bytes::from_owner(ChargedText { text, _charge: charge });
    if let Ok(mut charged) = HeaderValue::from_maybe_shared(charged) {
        // HPACK would index the header otherwise. The charge would then live as long as the table.
        charged.set_sensitive(true);
        *value = charged;
    }
}

#[cfg(test)]
mod tests {
    use rpc_core::memory::MemoryShare;

    use super::*;

    #[test]
    fn headers_keep_their_charge_until_dropped() {
        let memory = MemoryShare::whole(1 << 20);
        for name in ["grpc-status", "content-type"] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("12"));
            keep(&mut headers, memory.take(5));
            assert_eq!(headers[name], "12");
            // A single holder may take 7 / 16 of the budget.
            assert!(memory.check(448 << 10).is_err(), "it counts");
            drop(headers);
            assert!(memory.check(448 << 10).is_ok());
        }
    }
}
