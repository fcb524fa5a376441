//! The handshake that opens a connection, as bytes.
//!
//! Each handshake message is a fixed prefix and a protobuf body, so that fields can be added
//! without a new version:
//!
//! | offset | size | field |
//! |--:|--:|---|
//! | 0 | 8 | magic `farcall\n` |
//! | 8 | 2 | oldest protocol version spoken |
//! | 10 | 2 | newest protocol version spoken |
//! | 12 | 4 | length of the body |
//!
//! The client sends its [`Hello`], the server answers with its own, and when that accepts an
//! upgrade offer the client ends with a [`Verdict`].
//!
//! The methods of a server are a list of paths, and a byte for each of them:
//!
//! | bits | field |
//! |--:|---|
//! | 0 | the requests are a stream |
//! | 1 | the responses are a stream |
//! | 2 to 3 | `idempotency_level`: 0 unknown, 1 no side effects, 2 idempotent |
//! | 4 to 7 | zero; a reader ignores them |
//!
//! A generated stub knows its methods. A client of gRPC that calls over farcall knows a path alone.
//!
//! Each message has a [`Shape`]: how long it may be, and how often its fields may occur. Both are
//! checked before anything of it is decoded, so that decoding allocates at most twice the length of
//! the body and one element for each entry that the shape allows. Two bytes of an encoded message
//! can become an element of a `Vec`, of 24 bytes and more in memory; a decoder that has only the
//! length of its input to go by holds many times of it. The scan allocates nothing, and reads no
//! field's contents.

use bytes::Bytes;
use prost::Message;

use super::error::MAGIC;
use super::{PeerText, ProtocolError};
use crate::{CallKind, Idempotency, MethodDescriptor};

/// The length of the prefix in bytes.
pub const PREFIX_LEN: usize = 16;

/// The longest body of any message: a method table of 10,000 paths of 100 bytes fits.
pub const BODY_LEN_MAX: u32 = 1 << 20;

/// The most upgrades that a client may offer, and a server decline: there is one today, and a
/// client of a later version may have a few more.
pub const OFFERS_MAX: usize = 8;

/// The longest name of an upgrade, in bytes. Offers with a longer one are declined unseen.
pub const OFFER_NAME_LEN_MAX: usize = 64;

/// The most methods that a server may have: as many as there are method ids.
pub const METHODS_MAX: usize = 1 << 16;

/// A client's [`Hello`]. 64 KiB: eight offers of 8 KiB, of which RDMA's take 0.3 KiB.
///
/// A server reads it before it knows anything of the peer.
pub const CLIENT_HELLO: Shape = Shape {
    what: "a client's Hello",
    body_len_max: 64 << 10,
    repeats: &[
        Repeat { tag: 4, what: "methods in a client's Hello", max: 0 },
        Repeat { tag: 5, what: "offers in a client's Hello", max: OFFERS_MAX },
        Repeat { tag: 6, what: "accepted offers in a client's Hello", max: 0 },
        Repeat { tag: 7, what: "declined offers in a client's Hello", max: 0 },
    ],
};

/// A server's [`Hello`], with its method table.
pub const SERVER_HELLO: Shape = Shape {
    what: "a server's Hello",
    body_len_max: BODY_LEN_MAX,
    repeats: &[
        Repeat { tag: 4, what: "methods in a server's Hello", max: METHODS_MAX },
        Repeat { tag: 5, what: "offers in a server's Hello", max: 0 },
        Repeat { tag: 6, what: "accepted offers in a server's Hello", max: 1 },
        Repeat { tag: 7, what: "declined offers in a server's Hello", max: OFFERS_MAX },
    ],
};

/// A [`Verdict`]. 4 KiB: eight times the longest reason that is shown.
pub const VERDICT: Shape = Shape { what: "a Verdict", body_len_max: 4 << 10, repeats: &[] };

/// The length of the magic in bytes.
pub const MAGIC_LEN: usize = MAGIC.len();

const VERSION_MIN: u16 = 1;
const VERSION_MAX: u16 = 1;

/// The bit of deflate in a Hello's `encodings`: the peer may send frames with bit 2 of their flags,
/// as [`super::header`] has it.
pub const DEFLATE: u32 = 1;

const REQUEST_STREAM: u8 = 1;
const RESPONSE_STREAM: u8 = 2;
const IDEMPOTENCY_SHIFT: u32 = 2;
const IDEMPOTENCY_MASK: u8 = 3;

/// The shape of a handshake message, for the side that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The message's name in errors.
    pub what: &'static str,
    /// The longest body in bytes.
    pub body_len_max: u32,
    repeats: &'static [Repeat],
}

/// A side's announcement when a connection opens.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    /// The longest message accepted, in bytes.
    #[prost(uint64, tag = "1")]
    pub message_len_max: u64,
    /// The most bytes of metadata accepted with a request or response.
    #[prost(uint32, tag = "2")]
    pub metadata_len_max: u32,
    /// The most calls that the peer may have in flight.
    #[prost(uint32, tag = "3")]
    pub calls_max: u32,
    /// The server's method paths; a method's index is its id on this connection.
    #[prost(string, repeated, tag = "4")]
    pub methods: Vec<String>,
    /// The client's upgrade offers, best first.
    #[prost(message, repeated, tag = "5")]
    pub offers: Vec<Offer>,
    /// The server's answer to the offer that it accepts.
    #[prost(message, optional, tag = "6")]
    pub accepted: Option<Offer>,
    /// Why the server declines the other offers.
    #[prost(message, repeated, tag = "7")]
    pub declined: Vec<Declined>,
    /// The most bytes of large messages that may be under way at once.
    #[prost(uint64, tag = "8")]
    pub receiving_bytes_max: u64,
    /// The window of a stream to this side, in messages.
    #[prost(uint32, tag = "9")]
    pub stream_messages_max: u32,
    /// The window of a stream to this side, in bytes.
    #[prost(uint32, tag = "10")]
    pub stream_bytes_max: u32,
    /// Description of each method of `methods`: see [`super::hello`]. Empty if the server's version
    /// sends none.
    #[prost(bytes = "bytes", tag = "11")]
    pub method_kinds: bytes::Bytes,
    /// The encodings of compressed messages that this side accepts, a bit each: [`DEFLATE`]. A bit
    /// that the reader does not know means nothing to it.
    #[prost(uint32, tag = "12")]
    pub encodings: u32,
    /// Why the client offers no upgrade, although its address asks for one; for people.
    #[prost(string, tag = "13")]
    pub fallback: String,
}

impl Hello {
    /// Says why this side offers no upgrade.
    pub fn set_fallback(&mut self, reason: &str) {
        cut(reason, PeerText::LEN_MAX).clone_into(&mut self.fallback);
    }

    /// Why the client offers no upgrade, as it has it; `None` where it offers one or wants none.
    #[must_use]
    pub fn fallback(&self) -> Option<PeerText> {
        (!self.fallback.is_empty()).then(|| PeerText::new(&self.fallback))
    }
}

/// One side's part of an upgrade: the upgrade's name and what it needs to be told.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Offer {
    /// The upgrade's name, for example `rdma`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Data that only the upgrade understands.
    #[prost(bytes = "bytes", tag = "2")]
    pub blob: bytes::Bytes,
}

/// Why an upgrade was not accepted.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Declined {
    /// The upgrade's name.
    #[prost(string, tag = "1")]
    name: String,
    /// The reason, for people.
    #[prost(string, tag = "2")]
    reason: String,
    /// True if the reason stays while the server's process runs.
    #[prost(bool, tag = "3")]
    is_final: bool,
}

impl Declined {
    /// Declines an offer of that name, which is cut where it is too long for one.
    #[must_use]
    pub fn new(name: &str, reason: &str) -> Self {
        let (name, reason) = (cut(name, OFFER_NAME_LEN_MAX), cut(reason, PeerText::LEN_MAX));
        Self { name: name.to_owned(), reason: reason.to_owned(), is_final: false }
    }

    /// Sets [`is_final`](Self::is_final).
    #[must_use]
    pub fn with_final(self, is_final: bool) -> Self {
        Self { is_final, ..self }
    }

    /// Returns true if the client need not ask again on this connection.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// Returns true if this is about the upgrade of that name.
    #[must_use]
    pub fn is_about(&self, name: &str) -> bool {
        self.name == name
    }

    /// The upgrade's name as the peer has it.
    #[must_use]
    pub fn name(&self) -> PeerText {
        PeerText::new(&self.name)
    }

    /// The reason as the peer has it.
    #[must_use]
    pub fn reason(&self) -> PeerText {
        PeerText::new(&self.reason)
    }
}

/// The client's word on the accepted upgrade, after it tried the new path.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Verdict {
    /// Why the path is not used; empty when it is.
    #[prost(string, tag = "1")]
    failure: String,
}

impl Verdict {
    /// The path works. A server believes it when it has seen so itself.
    #[must_use]
    pub fn good() -> Self {
        Self::default()
    }

    /// The path is not used, for that reason.
    #[must_use]
    pub fn failed(reason: &str) -> Self {
        let failure = if reason.is_empty() { "no reason given" } else { reason };
        Self { failure: cut(failure, PeerText::LEN_MAX).to_owned() }
    }

    /// Why the path is not used, as the peer has it; `None` when it is.
    #[must_use]
    pub fn failure(&self) -> Option<PeerText> {
        (!self.failure.is_empty()).then(|| PeerText::new(&self.failure))
    }
}

/// A field of a message and how often it may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    pub(super) tag: u64,
    pub(super) what: &'static str,
    pub(super) max: usize,
}

/// The beginning of a text that fits so many bytes.
fn cut(text: &str, len_max: usize) -> &str {
    let end = (0..=len_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// The bytes of a handshake message, prefix included.
///
/// # Errors
///
/// Returns `ProtocolError` if the body is longer than [`BODY_LEN_MAX`].
pub fn encode(body: &impl Message) -> Result<Vec<u8>, ProtocolError> {
    let len = body.encoded_len() as u64;
    let body_len = u32::try_from(len).ok().filter(|len| *len <= BODY_LEN_MAX);
    let (what, max) = ("handshake message", BODY_LEN_MAX.into());
    let body_len = body_len.ok_or(ProtocolError::TooLong { what, len, max })?;
    let mut out = Vec::with_capacity(PREFIX_LEN + body.encoded_len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION_MIN.to_le_bytes());
    out.extend_from_slice(&VERSION_MAX.to_le_bytes());
    out.extend_from_slice(&body_len.to_le_bytes());
    // Writing to a `Vec` cannot run out of room.
    body.encode_raw(&mut out);
    Ok(out)
}

/// Looks at the first bytes of a prefix, of which more may come.
///
/// # Errors
///
/// Returns `ProtocolError` if they are not how the magic begins.
pub fn check_magic(found: &[u8]) -> Result<(), ProtocolError> {
    let found = &found[..found.len().min(MAGIC_LEN)];
    if MAGIC.starts_with(found) {
        return Ok(());
    }
    Err(ProtocolError::Magic { found: found.to_vec() })
}

/// The length of the body that follows `prefix`, of a message of that shape.
///
/// # Errors
///
/// Returns `ProtocolError` if the magic is not ours, no version is spoken by both, or the body is
/// too long.
pub fn decode_prefix(shape: &Shape, prefix: &[u8; PREFIX_LEN]) -> Result<usize, ProtocolError> {
    check_magic(&prefix[..MAGIC_LEN])?;
    let [_, _, _, _, _, _, _, _, a0, a1, b0, b1, l0, l1, l2, l3] = *prefix;
    let peer_min = u16::from_le_bytes([a0, a1]);
    let peer_max = u16::from_le_bytes([b0, b1]);
    if peer_min > VERSION_MAX || peer_max < VERSION_MIN {
        let (our_min, our_max) = (VERSION_MIN, VERSION_MAX);
        return Err(ProtocolError::Version { peer_min, peer_max, our_min, our_max });
    }
    let len = u32::from_le_bytes([l0, l1, l2, l3]);
    if len <= shape.body_len_max {
        return Ok(len as usize);
    }
    let max = shape.body_len_max.into();
    Err(ProtocolError::TooLong { what: shape.what, len: len.into(), max })
}

/// Reads the body of a message of that shape.
///
/// # Errors
///
/// Returns `ProtocolError` if it does not decode, or has more entries than its shape allows.
pub fn decode_body<M: Message + Default>(shape: &Shape, body: &[u8]) -> Result<M, ProtocolError> {
    let what = shape.what;
    check(what, shape.repeats, body)?;
    M::decode(body)
        .map_err(|error| ProtocolError::Undecodable { what, detail: error.to_string().into() })
}

/// The bytes of methods, in the order of the Hello's paths.
#[must_use]
pub fn encode_methods<'a>(methods: impl IntoIterator<Item = &'a MethodDescriptor>) -> Bytes {
    methods.into_iter().map(|method| method_byte(method.kind, method.idempotency)).collect()
}

fn method_byte(kind: CallKind, idempotency: Idempotency) -> u8 {
    let requests = if kind.has_request_stream() { REQUEST_STREAM } else { 0 };
    let responses = if kind.has_response_stream() { RESPONSE_STREAM } else { 0 };
    let level = match idempotency {
        Idempotency::Unknown => 0,
        Idempotency::NoSideEffects => 1,
        Idempotency::Idempotent => 2,
    };
    requests | responses | level << IDEMPOTENCY_SHIFT
}

/// Decodes the description byte of a method.
#[must_use]
pub fn decode_method(byte: u8) -> (CallKind, Idempotency) {
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

/// Counts the fields of an encoded message.
///
/// # Errors
///
/// [`ProtocolError::TooMany`] when one occurs too often, and [`ProtocolError::Undecodable`] when
/// the bytes are no message; `what` names it.
pub(super) fn check(
    what: &'static str,
    repeats: &[Repeat],
    mut body: &[u8],
) -> Result<(), ProtocolError> {
    let no_message = || ProtocolError::Undecodable { what, detail: "no protobuf message".into() };
    // No message of the handshake has more fields that are bounded.
    let mut counts = [0; 8];
    while !body.is_empty() {
        let tag = skip_field(&mut body).ok_or_else(no_message)?;
        let known = repeats.iter().zip(&mut counts).find(|(repeat, _)| repeat.tag == tag);
        if let Some((repeat, count)) = known {
            *count += 1;
            if *count > repeat.max {
                return Err(ProtocolError::TooMany { what: repeat.what, max: repeat.max as u64 });
            }
        }
    }
    Ok(())
}

/// Takes a field off the front, and gives its tag. Groups, which proto3 has not, are no fields.
fn skip_field(body: &mut &[u8]) -> Option<u64> {
    let key = take_varint(body)?;
    let len = match key & 7 {
        0 => {
            take_varint(body)?;
            0
        }
        1 => 8,
        2 => take_varint(body)?,
        5 => 4,
        _ => return None,
    };
    *body = body.get(usize::try_from(len).ok()?..)?;
    Some(key >> 3)
}

fn take_varint(body: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = body.split_first()?;
        *body = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[path = "hello_tests.rs"]
mod tests;
