//! The status of a call whose response has no valid `grpc-status`.
//!
//! A proxy or a web server answers in plain HTTP, and gRPC defines a mapping for such a status
//! (<https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>). The message quotes
//! a bounded, escaped excerpt of the response, which usually identifies the proxy.

use std::fmt::Write as _;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Body;
use rpc_core::wire::PeerText;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

pub(super) const GRPC_STATUS: &str = "grpc-status";
pub(super) const GRPC_MESSAGE: &str = "grpc-message";
pub(super) const GRPC_DETAILS: &str = "grpc-status-details-bin";
const GRPC_DETAILS_NAME: HeaderName = HeaderName::from_static(GRPC_DETAILS);

/// Maximum length of a quoted excerpt in bytes, before escapes.
const PIECE_LEN_MAX: usize = 256;

/// Maximum length of a body that is read for its trailers, in bytes: several times the error page
/// of any proxy.
const BODY_LEN_MAX: usize = 64 << 10;

/// Maximum wait for the rest of a body that is not gRPC's. The call then fails with the part that
/// has arrived.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Maps an HTTP status to gRPC's code.
pub(super) fn code(status: StatusCode) -> Code {
    match status {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// Returns true if `fields` contain a valid `grpc-status`.
pub(super) fn has_status(fields: &HeaderMap) -> bool {
    let value = fields.get(GRPC_STATUS).map(HeaderValue::as_bytes);
    // tonic parses any invalid code as `UNKNOWN`, which is 2.
    value.is_some_and(|it| it == b"2" || Code::from_bytes(it) != Code::Unknown)
}

/// Repairs the fields that accompany a status, so that tonic can read them.
///
/// Removes details that are not valid base64, because tonic panics on them. Replaces invalid UTF-8
/// in a message, because tonic would turn the whole status into `UNKNOWN`.
pub(super) fn mend_end(fields: &mut HeaderMap) {
    if let Some(message) = fields.get(GRPC_MESSAGE)
        && let Err(bytes) = String::from_utf8(percent_decoded(message.as_bytes()))
    {
        let text = String::from_utf8_lossy(bytes.as_bytes()).into_owned();
        let mut mended = HeaderMap::new();
        // A percent-encoded message always fits a header.
        let _ = Status::unknown(text).add_header(&mut mended);
        mended.remove(GRPC_MESSAGE).map(|text| fields.insert(GRPC_MESSAGE, text));
    }
    if let Some(value) = fields.get(GRPC_DETAILS) {
        let details = HeaderMap::from_iter([(GRPC_DETAILS_NAME, value.clone())]);
        let details = MetadataMap::from_headers(details);
        if details.get_bin(GRPC_DETAILS).is_none_or(|it| it.to_bytes().is_err()) {
            fields.remove(GRPC_DETAILS);
        }
    }
}

/// Decodes percent-escapes. Leaves malformed ones unchanged.
fn percent_decoded(mut text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        // `from_str_radix` also accepts a sign.
        let digits = digits.filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()));
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (byte, len) = match escaped.filter(|_| *first == b'%') {
            Some(byte) => (byte, 3),
            None => (*first, 1),
        };
        decoded.push(byte);
        text = &text[len..];
    }
    decoded
}

/// A response without a valid `grpc-status`, up to the point where that is certain.
#[derive(Debug, Clone)]
pub(super) struct HttpError {
    server: Arc<str>,
    status: StatusCode,
    content_type: Option<HeaderValue>,
}

impl HttpError {
    pub(super) fn new(server: &Arc<str>, status: StatusCode, headers: &HeaderMap) -> Self {
        let content_type = headers.get(CONTENT_TYPE).cloned();
        Self { server: Arc::clone(server), status, content_type }
    }

    /// Returns the status of the call. `ends` are the fields with the invalid `grpc-status`, if
    /// any. `piece` is the beginning of a body that is not gRPC's.
    pub(super) fn into_status(self, ends: &HeaderMap, piece: &[u8]) -> Status {
        let Self { server, status, content_type } = self;
        let (http, mut message) = (status.as_u16(), String::new());
        // Writing to a `String` cannot fail.
        let _ = write!(message, "the server at {server} answered with HTTP {http} and ");
        let _ = match ends.contains_key(GRPC_STATUS) {
            true => {
                let value = text(ends.get(GRPC_STATUS));
                write!(message, "the invalid gRPC status `{value}`")
            }
            false => write!(message, "no gRPC status"),
        };
        if content_type.is_some() {
            let _ = write!(message, ", content type `{}`", text(content_type.as_ref()));
        }
        if let Some(said) = ends.get(GRPC_MESSAGE) {
            let _ = write!(message, ": {}", text(Some(said)));
        }
        if !piece.is_empty() {
            let piece = &piece[..piece.len().min(PIECE_LEN_MAX)];
            let _ = write!(message, ": {}", PeerText::new(&String::from_utf8_lossy(piece)));
        }
        Status::new(code(status), message)
    }

    /// Reads the rest of a response that is not gRPC's, within limits, and returns the status of
    /// the call: from the trailers, else from `headers`, else from HTTP.
    pub(super) async fn read<B>(self, mut headers: HeaderMap, body: B) -> Status
    where
        B: Body<Data = Bytes, Error = Status>,
    {
        let (mut piece, mut len, mut body) = (Vec::new(), 0, pin!(body));
        let reading = async {
            // Bounded in bytes and in time. A hostile or broken peer could otherwise hold the call
            // with an endless page.
            while len <= BODY_LEN_MAX {
                let frame = poll_fn(|cx| body.as_mut().poll_frame(cx)).await;
                // A body that fails tells no more than one that ends.
                let Some(Ok(frame)) = frame else { break };
                match frame.into_data() {
                    Ok(data) => {
                        len += data.len();
                        let room = PIECE_LEN_MAX - piece.len();
                        piece.extend_from_slice(&data[..data.len().min(room)]);
                    }
                    Err(frame) => return frame.into_trailers().ok(),
                }
            }
            None
        };
        let trailers = timeout(BODY_TIMEOUT, reading).await.ok().flatten();
        let mut trailers = trailers.unwrap_or_default();
        for fields in [&mut trailers, &mut headers] {
            mend_end(fields);
            // `OK` without a readable message is not a success.
            if has_status(fields)
                && let Some(status) = Status::from_header_map(fields)
                && status.code() != Code::Ok
            {
                return status;
            }
        }
        let ends = if trailers.contains_key(GRPC_STATUS) { &trailers } else { &headers };
        self.into_status(ends, &piece)
    }
}

fn text(value: Option<&HeaderValue>) -> PeerText {
    let text = value.map(|value| String::from_utf8_lossy(value.as_bytes()));
    PeerText::new(&text.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    #[test]
    fn every_http_status_maps_to_the_code_of_the_table() {
        for status in 100..=999 {
            let expected = match status {
                400 => Code::Internal,
                401 => Code::Unauthenticated,
                403 => Code::PermissionDenied,
                404 => Code::Unimplemented,
                429 | 502 | 503 | 504 => Code::Unavailable,
                _ => Code::Unknown,
            };
            assert_eq!(code(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }

    #[test]
    fn only_listed_codes_are_valid() {
        let has = |value: &str| {
            let fields = [(GRPC_STATUS.parse().unwrap(), value.parse().unwrap())];
            has_status(&fields.into_iter().collect())
        };
        assert!((0..=16).all(|code: u8| has(&code.to_string())));
        for value in ["17", "-1", "+1", "02", "2 ", "", "x", "1e1", "18446744073709551616"] {
            assert!(!has(value), "{value:?}");
        }
        assert!(!has_status(&HeaderMap::new()));
    }

    /// A body that never ends, with or without more bytes, does not hold its call.
    #[tokio::test(start_paused = true)]
    async fn endless_bodies_are_abandoned() {
        let headers = HeaderMap::new();
        let bytes =
            || Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(&[b'<'; 999])));
        let endless = StreamBody::new(futures::stream::repeat_with(bytes));
        let stalled = futures::stream::iter([bytes()]);
        let stalled =
            StreamBody::new(futures::StreamExt::chain(stalled, futures::stream::pending()));
        let error = HttpError::new(&"grpc://a".into(), StatusCode::BAD_GATEWAY, &headers);
        for status in [
            error.clone().read(headers.clone(), endless.map_err(|it| match it {})).await,
            error.clone().read(headers.clone(), stalled.map_err(|it| match it {})).await,
        ] {
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().ends_with(&"<".repeat(PIECE_LEN_MAX)), "{status}");
        }
    }
}
