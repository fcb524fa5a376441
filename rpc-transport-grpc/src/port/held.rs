//! What a connection and its calls hold in memory, as far as it has no bytes of its own to count.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use rpc_core::memory::MemoryCharge;

use crate::frames::Unfinished;

/// What a connection of HTTP/2 holds when nothing happens on it, in bytes: h2's buffers of 16 KiB
/// to write from and 8 KiB to read into, and the session in the process.
const HTTP2_HELD: u64 = 26 << 10;

/// What of [`HTTP2_HELD`] is there to read a frame into, in bytes.
const READ_BUFFER_LEN: u64 = 8 << 10;

/// The least that HTTP/2 counts for a header, in bytes: 32, and a name.
const HEADER_LISTED_MIN: u64 = 33;

/// What a call holds beside its headers and its messages, in bytes: its tasks, its streams and its
/// place in the tables on either side of the link in the process.
pub(super) const CALL_HELD: u64 = 7 << 10;

/// What is left of a call when it has ended and its last frame waits to be written, in bytes: h2's
/// state of the stream.
pub(super) const ENDED_HELD: u64 = 1 << 10;

/// What one header takes beside the bytes of its name and its value: its place in the map's list
/// and in the map's index, and two allocations.
const HEADER_HELD: u64 = 160;

/// What headers take in memory, in bytes. HTTP/2 counts 32 bytes for each header, and so h2 limits
/// them: decoded, many short ones are five times as much.
pub(super) fn headers_held(headers: &HeaderMap) -> u64 {
    let len = |(name, value): (&http::HeaderName, &HeaderValue)| {
        (name.as_str().len() + value.len()) as u64 + HEADER_HELD
    };
    headers.iter().map(len).sum()
}

/// What a connection of HTTP/2 holds beside its calls, in bytes. A block of headers that has not
/// ended counts as the most that h2 decodes of one: `header_list_max` bytes as HTTP/2 counts them.
pub(super) fn connection_held(unfinished: Unfinished, header_list_max: u32) -> u64 {
    let frame = (unfinished.partial_frame_len as u64).saturating_sub(READ_BUFFER_LEN);
    let list = u64::from(header_list_max);
    let block_max = list + list / HEADER_LISTED_MIN * HEADER_HELD;
    HTTP2_HELD + frame + if unfinished.is_header_block_open { block_max } else { 0 }
}

/// The text of a header that has what its frame counts. h2 drops it when the frame is written, or
/// its stream is reset.
struct ChargedText {
    text: Bytes,
    _charge: MemoryCharge,
}

impl AsRef<[u8]> for ChargedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Has `headers` keep the charge until h2 has written them. They count what they take from now on.
pub(super) fn keep(headers: &mut HeaderMap, mut charge: MemoryCharge) {
    charge.set(ENDED_HELD + headers_held(headers));
    let has_status = headers.contains_key("grpc-status");
    let value = match has_status {
        true => headers.get_mut("grpc-status"),
        false => headers.values_mut().next(),
    };
    let Some(value) = value else { return };
    let text = Bytes::copy_from_slice(value.as_bytes());
    let charged = Bytes::from_owner(ChargedText { text, _charge: charge });
    if let Ok(mut charged) = HeaderValue::from_maybe_shared(charged) {
        // A header that HPACK remembers would live as long as its table.
        charged.set_sensitive(true);
        *value = charged;
    }
}

#[cfg(test)]
mod tests {
    use rpc_core::memory::MemoryShare;

    use super::*;

    #[test]
    fn headers_keep_their_charge_until_they_are_dropped() {
        let memory = MemoryShare::of_budget(1 << 20);
        for name in ["grpc-status", "content-type"] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("12"));
            keep(&mut headers, memory.take(5));
            assert_eq!(headers[name], "12");
            // A holder alone may have 7 / 16.
            assert!(memory.check(448 << 10).is_err(), "it counts");
            drop(headers);
            assert!(memory.check(448 << 10).is_ok());
        }
    }
}
