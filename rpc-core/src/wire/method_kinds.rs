//! What a server's Hello says of its methods beside their paths: one byte each.
//!
//! | bits | field |
//! |--:|---|
//! | 0 | the requests are a stream |
//! | 1 | the responses are a stream |
//! | 2 to 3 | `idempotency_level`: 0 unknown, 1 no side effects, 2 idempotent |
//! | 4 to 7 | zero; a reader ignores them |
//!
//! A generated stub knows its methods. A client of gRPC that calls over farcall knows a path alone.

use bytes::Bytes;

use crate::{CallKind, Idempotency, MethodDescriptor};

const REQUEST_STREAM: u8 = 1;
const RESPONSE_STREAM: u8 = 2;
const IDEMPOTENCY_SHIFT: u32 = 2;
const IDEMPOTENCY_MASK: u8 = 3;

/// The bytes of methods, in the order of the Hello's paths.
#[must_use]
pub fn encode<'a>(methods: impl IntoIterator<Item = &'a MethodDescriptor>) -> Bytes {
    methods.into_iter().map(|method| byte(method.kind, method.idempotency)).collect()
}

fn byte(kind: CallKind, idempotency: Idempotency) -> u8 {
    let requests = if kind.has_request_stream() { REQUEST_STREAM } else { 0 };
    let responses = if kind.has_response_stream() { RESPONSE_STREAM } else { 0 };
    let level = match idempotency {
        Idempotency::Unknown => 0,
        Idempotency::NoSideEffects => 1,
        Idempotency::Idempotent => 2,
    };
    requests | responses | level << IDEMPOTENCY_SHIFT
}

/// What the byte of a method says.
#[must_use]
pub fn decode(byte: u8) -> (CallKind, Idempotency) {
    let kind = match (byte & REQUEST_STREAM != 0, byte & RESPONSE_STREAM != 0) {
        (false, false) => CallKind::Unary,
        (true, false) => CallKind::ClientStreaming,
        (false, true) => CallKind::ServerStreaming,
        (true, true) => CallKind::Streaming,
    };
    let idempotency = match byte >> IDEMPOTENCY_SHIFT & IDEMPOTENCY_MASK {
        1 => Idempotency::NoSideEffects,
        2 => Idempotency::Idempotent,
        // A level of a later version promises nothing to this one.
        _ => Idempotency::Unknown,
    };
    (kind, idempotency)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [CallKind; 4] = [
        CallKind::Unary,
        CallKind::ClientStreaming,
        CallKind::ServerStreaming,
        CallKind::Streaming,
    ];
    const LEVELS: [Idempotency; 3] =
        [Idempotency::Unknown, Idempotency::NoSideEffects, Idempotency::Idempotent];

    #[test]
    fn every_kind_and_level_survives() {
        for kind in KINDS {
            for level in LEVELS {
                assert_eq!(decode(byte(kind, level)), (kind, level));
            }
        }
    }

    /// Servers of other builds rely on them.
    #[test]
    fn the_bytes_stay() {
        assert_eq!(byte(CallKind::Unary, Idempotency::Unknown), 0);
        assert_eq!(byte(CallKind::ClientStreaming, Idempotency::NoSideEffects), 5);
        assert_eq!(byte(CallKind::ServerStreaming, Idempotency::Idempotent), 10);
        assert_eq!(byte(CallKind::Streaming, Idempotency::Unknown), 3);
    }

    #[test]
    fn what_a_later_version_says_promises_nothing() {
        assert_eq!(decode(0xff), (CallKind::Streaming, Idempotency::Unknown));
    }
}
