//! The length of a response's headers and trailers, as the client counts and limits them.
//!
//! A client fails a response with an oversized header list, whatever its status: tonic reports
//! `INTERNAL`, gRPC's core `RESOURCE_EXHAUSTED`. The port therefore truncates a status to the
//! client's limit and preserves its code. Lengths count after percent-encoding and base64.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use tonic::Status;

/// Maximum list length for a client that announces no limit, in bytes: the default of gRPC's core
/// and grpc-java, and of most proxies.
const UNANNOUNCED_LEN_MAX: usize = 8 << 10;

/// Maximum list length for any client, in bytes: the 16 KiB of a status on farcall's own wire,
/// percent-encoded, plus room for the rest.
const LEN_MAX: usize = 64 << 10;

/// Overhead of a field in bytes, beside its name and value (RFC 9113, 6.5.2).
const FIELD_LEN: usize = 32;

/// Length of `:status` and its code in bytes.
const PSEUDO_LEN: usize = 7 + 3 + FIELD_LEN;

/// The identifier of `SETTINGS_MAX_HEADER_LIST_SIZE`.
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The first of the settings that only gRPC's core announces (`GRPC_ALLOW_TRUE_BINARY_METADATA` and
/// its successors).
const CORE_SETTINGS: u16 = 0xfe03;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// One client's limit, as its SETTINGS announce it.
#[derive(Debug)]
pub(super) struct HeaderListLimit {
    /// `u32::MAX` until the client announces a limit.
    announced: AtomicU32,
    is_core: AtomicBool,
}

impl Default for HeaderListLimit {
    fn default() -> Self {
        Self { announced: AtomicU32::new(u32::MAX), is_core: AtomicBool::new(false) }
    }
}

impl HeaderListLimit {
    /// Records a setting of the client.
    pub(super) fn note(&self, id: u16, value: u32) {
        match id {
            MAX_HEADER_LIST_SIZE => self.announced.store(value, Ordering::Relaxed),
            CORE_SETTINGS.. => self.is_core.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Returns the longest list that the client is certain to accept, in bytes.
    pub(super) fn len_max(&self) -> usize {
        let announced = self.announced.load(Ordering::Relaxed);
        let len = match usize::try_from(announced) {
            _ if announced == u32::MAX => UNANNOUNCED_LEN_MAX,
            // gRPC's core announces its hard limit. It refuses lists at random from half of that
            // on.
            Ok(len) if self.is_core.load(Ordering::Relaxed) => len / 2,
            // h2 accepts only lists shorter than its limit.
            Ok(len) => len.saturating_sub(1),
            Err(_) => LEN_MAX,
        };
        len.min(LEN_MAX)
    }
}

/// A reader of SETTINGS payloads that arrive in parts: entries of an identifier (2) and a value
/// (4).
#[derive(Debug, Default)]
pub(super) struct SettingsReader([u8; 6]);

impl SettingsReader {
    /// Reads the part of a payload that begins at offset `at`, and records its settings.
    pub(super) fn read(&mut self, at: usize, bytes: &[u8], limit: &HeaderListLimit) {
        for (at, byte) in (at..).zip(bytes) {
            let place = at % self.0.len();
            self.0[place] = *byte;
            if place == self.0.len() - 1 {
                let [i0, i1, value @ ..] = self.0;
                limit.note(u16::from_be_bytes([i0, i1]), u32::from_be_bytes(value));
            }
        }
    }
}

/// Returns the length of the fields in bytes, as HTTP/2 counts them.
fn list_len(headers: &HeaderMap) -> usize {
    let field_len =
        |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + FIELD_LEN;
    PSEUDO_LEN + headers.iter().map(field_len).sum::<usize>()
}

/// Truncates headers or trailers to `max` bytes.
///
/// A failure loses its details first, then its metadata, then the end of its message. Metadata is
/// sent whole or not at all: a success whose metadata does not fit becomes a failure.
///
/// Returns false if the headers that began a response are now its only frame.
pub(super) fn fit(headers: &mut HeaderMap, max: usize) -> bool {
    let len = list_len(headers);
    if len <= max {
        return true;
    }
    let has_failed = headers.get(GRPC_STATUS).is_some_and(|code| code != "0");
    let content_type = headers.get(header::CONTENT_TYPE).cloned();
    // The code and the message survive without the details, so those go first.
    headers.remove(GRPC_DETAILS);
    let text = headers.remove(GRPC_MESSAGE);
    if !has_failed {
        *headers = refused(len, max);
    } else if list_len(headers) > max {
        let code = headers.remove(GRPC_STATUS);
        headers.clear();
        code.map(|code| headers.insert(GRPC_STATUS, code));
    }
    // Without a content type, a client would not treat the response as gRPC and would ignore its
    // status.
    if let Some(content_type) = content_type {
        headers.entry(header::CONTENT_TYPE).or_insert(content_type);
    }
    if let Some(text) = text.filter(|_| has_failed) {
        let field = GRPC_MESSAGE.as_str().len() + FIELD_LEN;
        let room = max.saturating_sub(list_len(headers) + field);
        let text = beginning(text.as_bytes(), room);
        if let Ok(text) = HeaderValue::from_bytes(text)
            && !text.is_empty()
        {
            headers.insert(GRPC_MESSAGE, text);
        }
    }
    tracing::debug!(target: "farcall::server", len, max, "cut a response down to its client's \
                             limit");
    has_failed
}

/// Returns the headers of a call whose metadata exceeds the client's limit.
fn refused(len: usize, max: usize) -> HeaderMap {
    let message = format!(
        "the response's metadata of {len} bytes is over the client's limit of {max} \
         (SETTINGS_MAX_HEADER_LIST_SIZE; 8192 for a client that announces none, as over HTTP/1)"
    );
    let mut headers = HeaderMap::new();
    // The message is printable ASCII, so it always fits a header.
    let _ = Status::resource_exhausted(message).add_header(&mut headers);
    headers
}

/// Returns the longest prefix of a percent-encoded text that fits into `room` bytes and ends
/// between two characters.
fn beginning(text: &[u8], room: usize) -> &[u8] {
    if text.len() <= room {
        return text;
    }
    let (mut at, mut end) = (0, 0);
    while at <= room {
        let (byte, len) = match text[at..] {
            [b'%', high, low, ..] => (16 * hex(high) + hex(low), 3),
            [byte, ..] => (byte, 1),
            [] => break,
        };
        // A cut inside a UTF-8 character would leave a message that does not decode, and tonic
        // makes `UNKNOWN` of its status.
        let is_first_of_character = byte & 0xc0 != 0x80;
        if is_first_of_character {
            end = at;
        }
        at += len;
    }
    &text[..end]
}

/// Returns the value of a hexadecimal digit; 0 for any other byte.
fn hex(digit: u8) -> u8 {
    (digit as char).to_digit(16).and_then(|it| u8::try_from(it).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use tonic::Code;
    use tonic::metadata::MetadataMap;

    use super::*;

    fn headers_of(status: &Status) -> HeaderMap {
        let mut headers = HeaderMap::new();
        status.add_header(&mut headers).unwrap();
        headers
    }

    fn limit(settings: &[(u16, u32)]) -> usize {
        let (limit, mut reader) = (HeaderListLimit::default(), SettingsReader::default());
        let entries: Vec<_> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        // Two parts, and the first ends inside an entry.
        let (first, second) = entries.split_at(entries.len() / 2);
        reader.read(0, first, &limit);
        reader.read(first.len(), second, &limit);
        limit.len_max()
    }

    #[test]
    fn lists_fit_the_limits_that_clients_announce() {
        assert_eq!(limit(&[]), 8 << 10);
        assert_eq!(limit(&[(4, 65_535), (6, 16_384)]), 16_383);
        assert_eq!(limit(&[(3, 1), (6, 100), (2, 0)]), 99);
        assert_eq!(limit(&[(6, 10 << 20)]), LEN_MAX);
        // gRPC's core, recognized by its own settings.
        assert_eq!(limit(&[(6, 16_384), (0xfe03, 1)]), 8 << 10);
        assert_eq!(limit(&[(0xfe04, 1), (6, 80 << 10), (2, 0)]), 40 << 10);
    }

    #[test]
    fn details_are_dropped_before_text() {
        let details = Bytes::from(vec![7; 12 << 10]);
        let status = Status::with_details(Code::NotFound, "it is not there", details);
        let mut headers = headers_of(&status);
        assert!(fit(&mut headers, 16_383));
        let status = Status::from_header_map(&headers).unwrap();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "it is not there"));
        assert!(status.details().is_empty());
    }

    #[test]
    fn oversized_metadata_is_refused_and_the_code_is_kept() {
        let mut metadata = MetadataMap::new();
        metadata.insert("x-long", "7".repeat(500).parse().unwrap());
        let status = Status::with_metadata(Code::NotFound, "no", metadata.clone());
        let mut headers = headers_of(&status);
        assert!(fit(&mut headers, 300));
        let status = Status::from_header_map(&headers).unwrap();
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no"));
        assert!(status.metadata().is_empty());
        let mut headers = metadata.into_headers();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        assert!(!fit(&mut headers, 300), "it ends the call");
        let status = Status::from_header_map(&headers).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(headers.contains_key(header::CONTENT_TYPE), "{status}");
    }

    proptest! {
        #[test]
        fn a_truncated_status_fits_and_keeps_whole_characters(
            text in any::<String>(), repeat in 1..40_usize, details in 0..600_usize,
            max in 120..4_000_usize,
        ) {
            let text = text.repeat(repeat);
            let details = Bytes::from(vec![7; details]);
            let status = Status::with_details(Code::Aborted, text.clone(), details.clone());
            let mut headers = headers_of(&status);
            let fits = list_len(&headers) <= max;
            prop_assert!(fit(&mut headers, max));
            prop_assert!(list_len(&headers) <= max);
            let cut = Status::from_header_map(&headers).unwrap();
            prop_assert_eq!(cut.code(), Code::Aborted);
            prop_assert!(text.starts_with(cut.message()), "{}", cut.message());
            if fits {
                prop_assert_eq!((cut.message(), cut.details()), (&*text, &*details));
            } else {
                prop_assert!(cut.details().is_empty());
                // One more character would not have fitted.
                if let Some(next) = text[cut.message().len()..].chars().next() {
                    let longer = Status::aborted(format!("{}{next}", cut.message()));
                    prop_assert!(list_len(&headers_of(&longer)) > max);
                }
            }
        }
    }
}
