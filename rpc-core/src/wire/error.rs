//! Protocol violations of a peer. Each closes the connection.

use std::borrow::Cow;

use thiserror::Error;

use super::PeerText;
use super::foreign::Spoken;

/// Describes a peer by its first bytes.
fn first_words(found: &[u8]) -> Cow<'static, str> {
    match Spoken::of(found) {
        Some(spoken) => spoken.words().into(),
        None => format!("its first bytes are {found:02x?}").into(),
    }
}

/// A violation of the wire format or of the call protocol by the peer.
#[derive(Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The connection does not open with farcall's magic.
    #[error("the peer does not speak farcall: {}", first_words(found))]
    Magic {
        /// The bytes where the magic was expected; fewer than eight if no more came.
        found: Vec<u8>,
    },
    /// No version of the protocol is spoken by both sides.
    #[error(
        "no common protocol version: the peer speaks {peer_min} to {peer_max}, \
         we speak {our_min} to {our_max}"
    )]
    Version {
        /// The oldest version that the peer speaks.
        peer_min: u16,
        /// The newest version that the peer speaks.
        peer_max: u16,
        /// The oldest version that we speak.
        our_min: u16,
        /// The newest version that we speak.
        our_max: u16,
    },
    /// Something is longer than its limit.
    #[error("{what} of {len} bytes is over the limit of {max}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// Something is shorter than its parts need.
    #[error("{what} is cut short: {len} bytes where {needed} are needed")]
    Truncated {
        /// What is cut short.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The length that its parts need.
        needed: u64,
    },
    /// A field holds a value that means nothing.
    #[error("{what} holds {value}, which means nothing")]
    Invalid {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A protobuf-encoded part of the handshake does not decode.
    #[error("{what} does not decode: {detail}")]
    Undecodable {
        /// The part.
        what: &'static str,
        /// The decoder's words.
        detail: PeerText,
    },
    /// A list has more entries than its limit.
    #[error("the peer sent more than {max} {what}")]
    TooMany {
        /// The entries.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// A frame of a kind that the peer's role may not send.
    #[error("a {role} may not send a {kind:?} frame")]
    UnexpectedFrame {
        /// The kind of the frame.
        kind: super::FrameKind,
        /// The peer's role, `client` or `server`.
        role: &'static str,
    },
    /// A frame with a part that frames of its kind do not have.
    #[error("a {kind:?} frame carries no {part}, and this one has {len} bytes of it")]
    UnexpectedPart {
        /// The kind of the frame.
        kind: super::FrameKind,
        /// The part.
        part: &'static str,
        /// Its length in bytes.
        len: u64,
    },
    /// A compressed frame that this side has not said it accepts.
    #[error("a {kind:?} frame is compressed, which was not agreed on in the handshake")]
    NotNegotiated {
        /// The kind of the frame.
        kind: super::FrameKind,
    },
    /// A frame that cannot stand where it does among the frames of its call.
    #[error("{what} at place {place} of its call: {rule}")]
    Misplaced {
        /// What the frame is.
        what: &'static str,
        /// Its place, from 0.
        place: u64,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A request whose call id is already in use.
    #[error("call {id:#x} was started twice")]
    DuplicateCall {
        /// The id.
        id: u64,
    },
    /// Pings at a rate that no keepalive has.
    #[error("the peer sent more pings than {burst} at once and {per_second} a second")]
    TooManyPings {
        /// How many may come at once.
        burst: u32,
        /// How many may come each second.
        per_second: u32,
    },
    /// More calls in flight than the Hello allowed.
    #[error("the peer started more than the {max} calls allowed (limits.max_calls)")]
    TooManyCalls {
        /// The limit.
        max: u32,
    },
}

crate::readable_debug!(ProtocolError);

impl ProtocolError {
    /// Returns what the peer speaks in place of farcall, if that is known.
    pub(crate) fn spoken(&self) -> Option<Spoken> {
        match self {
            Self::Magic { found } => Spoken::of(found),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_speaks_something_else_is_described_by_its_first_bytes() {
        let words = |found: &[u8]| ProtocolError::Magic { found: found.to_vec() }.to_string();
        assert_eq!(words(b"GET /"), "the peer does not speak farcall: this is HTTP/1.1");
        let unknown = "the peer does not speak farcall: its first bytes are [07, ff]";
        assert_eq!(words(&[7, 255]), unknown);
    }
}
