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

use prost::Message;

use super::ProtocolError;
use crate::Limits;

/// The length of the prefix in bytes.
pub const PREFIX_LEN: usize = 16;

/// The longest body accepted: a method table of 10,000 paths of 100 bytes fits.
pub const BODY_LEN_MAX: u32 = 1 << 20;

const MAGIC: [u8; 8] = *b"farcall\n";
const VERSION_MIN: u16 = 1;
const VERSION_MAX: u16 = 1;

/// What a side says of itself when a connection opens.
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
}

/// One side's part of an upgrade: the upgrade's name and what it needs to be told.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Offer {
    /// The upgrade's name, for example `rdma`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What only the upgrade understands.
    #[prost(bytes = "bytes", tag = "2")]
    pub blob: bytes::Bytes,
}

/// Why an upgrade was not accepted.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Declined {
    /// The upgrade's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The reason, for people.
    #[prost(string, tag = "2")]
    pub reason: String,
}

/// The client's word on the accepted upgrade, after it tried the new path.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Verdict {
    /// Why the path is not used; empty when it is.
    #[prost(string, tag = "1")]
    pub failure: String,
}

impl Hello {
    /// A Hello that says `limits` and nothing else.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            message_len_max: limits.message_len_max,
            metadata_len_max: limits.metadata_len_max,
            calls_max: limits.calls_max,
            receiving_bytes_max: limits.receiving_bytes_max,
            stream_messages_max: limits.stream_messages_max,
            stream_bytes_max: limits.stream_bytes_max,
            ..Self::default()
        }
    }

    /// The limits that the sender of this Hello keeps.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            message_len_max: self.message_len_max,
            metadata_len_max: self.metadata_len_max,
            calls_max: self.calls_max,
            receiving_bytes_max: self.receiving_bytes_max,
            stream_messages_max: self.stream_messages_max,
            stream_bytes_max: self.stream_bytes_max,
        }
    }
}

/// The bytes of a handshake message, prefix included.
///
/// # Errors
///
/// When the body is longer than [`BODY_LEN_MAX`].
pub fn encode(body: &impl Message) -> Result<Vec<u8>, ProtocolError> {
    let len = body.encoded_len() as u64;
    let body_len = u32::try_from(len).ok().filter(|len| *len <= BODY_LEN_MAX);
    let body_len = body_len.ok_or(too_long(len))?;
    let mut out = Vec::with_capacity(PREFIX_LEN + body.encoded_len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION_MIN.to_le_bytes());
    out.extend_from_slice(&VERSION_MAX.to_le_bytes());
    out.extend_from_slice(&body_len.to_le_bytes());
    // Writing to a `Vec` cannot run out of room.
    body.encode_raw(&mut out);
    Ok(out)
}

/// The length of the body that follows `prefix`.
///
/// # Errors
///
/// When the magic is not ours, no version is spoken by both, or the body is too long.
pub fn decode_prefix(prefix: &[u8; PREFIX_LEN]) -> Result<usize, ProtocolError> {
    let [m0, m1, m2, m3, m4, m5, m6, m7, a0, a1, b0, b1, l0, l1, l2, l3] = *prefix;
    let found = [m0, m1, m2, m3, m4, m5, m6, m7];
    if found != MAGIC {
        return Err(ProtocolError::Magic { found });
    }
    let peer_min = u16::from_le_bytes([a0, a1]);
    let peer_max = u16::from_le_bytes([b0, b1]);
    if peer_min > VERSION_MAX || peer_max < VERSION_MIN {
        let (our_min, our_max) = (VERSION_MIN, VERSION_MAX);
        return Err(ProtocolError::Version { peer_min, peer_max, our_min, our_max });
    }
    let len = u32::from_le_bytes([l0, l1, l2, l3]);
    if len > BODY_LEN_MAX { Err(too_long(len.into())) } else { Ok(len as usize) }
}

/// Reads a handshake message's body.
///
/// # Errors
///
/// When it does not decode; `what` names it in the error.
pub fn decode_body<M: Message + Default>(
    what: &'static str,
    body: &[u8],
) -> Result<M, ProtocolError> {
    M::decode(body).map_err(|error| ProtocolError::Undecodable { what, detail: error.to_string() })
}

fn too_long(len: u64) -> ProtocolError {
    ProtocolError::TooLong { what: "handshake message", len, max: BODY_LEN_MAX.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(bytes: &[u8]) -> [u8; PREFIX_LEN] {
        *bytes.first_chunk().unwrap()
    }

    #[test]
    fn a_hello_survives() {
        let mut hello = Hello::new(&Limits::default());
        hello.methods.push("/a.B/C".into());
        hello.offers.push(Offer { name: "rdma".into(), blob: vec![1, 2, 3].into() });
        let bytes = encode(&hello).unwrap();
        let len = decode_prefix(&prefix(&bytes)).unwrap();
        assert_eq!(len, bytes.len() - PREFIX_LEN);
        let back: Hello = decode_body("Hello", &bytes[PREFIX_LEN..]).unwrap();
        assert_eq!(back, hello);
        assert_eq!(back.limits(), Limits::default());
    }

    #[test]
    fn a_foreign_magic_a_future_version_and_a_long_body_are_told_apart() {
        let good = encode(&Hello::default()).unwrap();
        let mut bytes = prefix(&good);
        bytes[0] = b'G';
        assert!(matches!(decode_prefix(&bytes), Err(ProtocolError::Magic { .. })));
        let mut bytes = prefix(&good);
        bytes[8..12].copy_from_slice(&[9, 0, 12, 0]);
        let expected = ProtocolError::Version { peer_min: 9, peer_max: 12, our_min: 1, our_max: 1 };
        assert_eq!(decode_prefix(&bytes), Err(expected));
        let mut bytes = prefix(&good);
        bytes[12..16].copy_from_slice(&(BODY_LEN_MAX + 1).to_le_bytes());
        assert!(matches!(decode_prefix(&bytes), Err(ProtocolError::TooLong { .. })));
    }

    #[test]
    fn a_newer_peer_that_still_speaks_our_version_is_welcome() {
        let mut bytes = prefix(&encode(&Hello::default()).unwrap());
        bytes[10..12].copy_from_slice(&[9, 0]);
        assert!(decode_prefix(&bytes).is_ok());
    }

    proptest! {
        #[test]
        fn decoding_never_panics(
            prefix: [u8; PREFIX_LEN],
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = decode_prefix(&prefix);
            let _ = decode_body::<Hello>("Hello", &body);
            let _ = decode_body::<Verdict>("Verdict", &body);
        }
    }
}
