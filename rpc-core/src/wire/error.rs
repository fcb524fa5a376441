//! Protocol violations of a peer, each of which closes the connection, and a peer's text in logs,
//! errors and statuses.
//!
//! A peer that can put a line break into a log line forges log lines, one that can put an escape
//! sequence there rewrites the terminal of the operator who reads them, and one that can put 500 KB
//! there fills the disk. So text of a peer is escaped and cut where it is parsed, and has a type
//! that says so. What applications send each other (messages, metadata, the text of a status) is
//! theirs and goes through unchanged; only where the runtime itself logs it, it is a `PeerText`.
//!
//! A peer that speaks another protocol is known by the first bytes that it sends, and named.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// First bytes of farcall's handshake messages.
pub const MAGIC: [u8; 8] = *b"farcall\n";

/// Room for the note, with the longest number there is.
const NOTE_LEN_MAX: usize = " [18446744073709551615 bytes left out]".len();

/// A protocol that a connection may begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spoken {
    /// farcall, without TLS around it.
    Farcall,
    /// TLS: a record with a handshake or an alert.
    Tls,
    /// HTTP/2 without TLS: what its client begins with, or its server.
    Http2,
    /// HTTP/1.
    Http1,
    /// SSH.
    Ssh,
    /// The header that a proxy puts before a connection.
    Proxy,
}

impl Spoken {
    /// Returns the protocol that begins with these bytes. `None` if no known protocol does. Eight
    /// bytes are enough.
    #[must_use]
    pub fn of(first: &[u8]) -> Option<Self> {
        let begins: [(&[u8], Self); 13] = [
            (&MAGIC, Self::Farcall),
            (b"PRI * HT", Self::Http2),
            (b"HTTP/1.", Self::Http1),
            (b"GET ", Self::Http1),
            (b"PUT ", Self::Http1),
            (b"HEAD ", Self::Http1),
            (b"POST ", Self::Http1),
            (b"DELETE ", Self::Http1),
            (b"OPTIONS ", Self::Http1),
            (b"CONNECT ", Self::Http1),
            (b"SSH-", Self::Ssh),
            (b"PROXY ", Self::Proxy),
            (b"\r\n\r\n\0\r\nQ", Self::Proxy),
        ];
        if let Some((_, spoken)) = begins.iter().find(|(begin, _)| first.starts_with(begin)) {
            return Some(*spoken);
        }
        match *first {
            // A record of TLS: an alert (21) or a handshake (22).
            [21 | 22, 3, ..] => Some(Self::Tls),
            // What an HTTP/2 server begins with: a SETTINGS frame (type 4) without flags, on
            // stream 0.
            [0, _, _, 4, 0, 0, 0, 0, ..] => Some(Self::Http2),
            _ => None,
        }
    }

    /// The protocol, in words that say what to do about it where farcall was expected.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Farcall => "this is farcall without TLS",
            Self::Tls => "this is TLS, which only one side uses: set `tls` on both",
            Self::Http2 => "this is gRPC over HTTP/2, which farcall speaks with its feature `grpc`",
            Self::Http1 => "this is HTTP/1.1",
            Self::Ssh => "this is SSH",
            Self::Proxy => {
                "this is a PROXY header, which a server accepts only from the networks in \
                 proxy_protocol.from"
            }
        }
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
         this side speaks {our_min} to {our_max}"
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
        /// The part that is too long.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// Something is shorter than its parts need.
    #[error("{what} is cut short: {len} bytes where {needed} are needed")]
    Truncated {
        /// The part that is cut short.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The length that its parts need.
        needed: u64,
    },
    /// A field holds a value that means nothing.
    #[error("{what} has the unknown value {value}")]
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
    #[error("a {kind:?} frame has no {part}, but this one has {len} bytes of it")]
    UnexpectedPart {
        /// The kind of the frame.
        kind: super::FrameKind,
        /// The part.
        part: &'static str,
        /// Its length in bytes.
        len: u64,
    },
    /// A compressed frame that this side has not said it accepts.
    #[error("a {kind:?} frame is compressed, which the handshake did not allow")]
    NotNegotiated {
        /// The kind of the frame.
        kind: super::FrameKind,
    },
    /// A frame that cannot stand where it does among the frames of its call.
    #[error("{what} at place {place} of its call: {rule}")]
    Misplaced {
        /// Noun for the frame.
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
        /// Number that may come at once.
        burst: u32,
        /// Number that may come each second.
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

/// Text of a peer, fit for logs and error messages: one line, without control characters, at most
/// [`PeerText::LEN_MAX`] bytes long.
///
/// Characters that are not printable are escaped as in a Rust string literal (`\n`, `\u{1b}`): all
/// control characters, line and paragraph separators, and the invisible ones that change the
/// direction of text; so is the backslash, so that nothing passes for an escape. What is longer is
/// cut at a character, and says how much was left out.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PeerText(String);

impl PeerText {
    /// The longest text, in bytes, with the note on what was left out: four lines of a terminal,
    /// which any reason of our own fits.
    pub const LEN_MAX: usize = 512;

    /// Escapes and cuts what a peer has sent.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut out = String::new();
        for (at, character) in text.char_indices() {
            let before = out.len();
            match character {
                // Debug escapes these for literals; in a line they do no harm.
                '"' | '\'' => out.push(character),
                _ => out.extend(character.escape_debug()),
            }
            if out.len() > Self::LEN_MAX - NOTE_LEN_MAX {
                out.truncate(before);
                // Not the length of the escapes, which the peer did not send.
                let left_out = text.len() - at;
                out.push_str(&format!(" [{left_out} bytes left out]"));
                break;
            }
        }
        Self(out)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the peer sent nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for PeerText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for PeerText {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

/// Describes a peer by its first bytes.
fn first_words(found: &[u8]) -> Cow<'static, str> {
    match Spoken::of(found) {
        Some(spoken) => spoken.describe().into(),
        None => format!("its first bytes are {found:02x?}").into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn protocols_are_known_by_their_first_bytes() {
        for (first, known) in [
            (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], Spoken::Http2),
            (&[0, 0, 18, 4, 0, 0, 0, 0, 0][..], Spoken::Http2),
            (b"GET / HTTP/1.1\r\n", Spoken::Http1),
            (b"HTTP/1.0 400 Bad Request", Spoken::Http1),
            (&[22, 3, 1, 2, 0, 1, 0, 1][..], Spoken::Tls),
            (&[21, 3, 1, 0, 2, 2, 70][..], Spoken::Tls),
            (b"SSH-2.0-OpenSSH_9.2", Spoken::Ssh),
            (b"PROXY TCP4 10.0.0.1", Spoken::Proxy),
            (b"farcall\n", Spoken::Farcall),
        ] {
            assert_eq!(Spoken::of(first), Some(known), "{first:?}");
        }
        for unknown in [&b"GETX"[..], b"\x00\x01\x02", b"", b"farcall"] {
            assert_eq!(Spoken::of(unknown), None);
        }
    }

    #[test]
    fn a_foreign_peer_is_described_by_its_first_bytes() {
        let message = |found: &[u8]| ProtocolError::Magic { found: found.to_vec() }.to_string();
        assert_eq!(message(b"GET /"), "the peer does not speak farcall: this is HTTP/1.1");
        let unknown = "the peer does not speak farcall: its first bytes are [07, ff]";
        assert_eq!(message(&[7, 255]), unknown);
    }

    #[test]
    fn what_could_forge_a_line_or_steer_a_terminal_is_escaped() {
        let text = "a\nb\r\x1b[2J\u{9b}1m\u{2028}\u{202e}\u{2066}\u{200b}\u{feff}\u{7f}\\n";
        let expected = r"a\nb\r\u{1b}[2J\u{9b}1m\u{2028}\u{202e}\u{2066}\u{200b}\u{feff}\u{7f}\\n";
        assert_eq!(PeerText::new(text).as_str(), expected);
        let plain = r#"can't open "mlx5_0": größer als 2³² (日本)"#;
        assert_eq!(PeerText::new(plain).as_str(), plain);
    }

    #[test]
    fn what_is_long_is_cut_at_a_character_and_says_so() {
        let cut = PeerText::new(&"é".repeat(250_000));
        assert!(cut.as_str().ends_with("é [499526 bytes left out]"), "{cut}");
        assert!(cut.as_str().len() <= PeerText::LEN_MAX);
    }

    #[test]
    fn text_is_shown_as_it_is_held() {
        let text = PeerText::from("a\nb".to_owned());
        assert_eq!((text.to_string(), format!("{text:?}")), (r"a\nb".into(), r#""a\nb""#.into()));
        assert_eq!(text, PeerText::from("a\nb"));
        assert!(!text.is_empty() && PeerText::new("").is_empty());
    }

    proptest! {
        #[test]
        fn it_is_one_bounded_printable_line(text in any::<String>(), times in 1..200usize) {
            for text in [text.clone(), text.repeat(times)] {
                let safe = PeerText::new(&text);
                prop_assert!(safe.as_str().len() <= PeerText::LEN_MAX);
                for shown in [safe.to_string(), format!("{safe:?}")] {
                    let bad = |c: char| {
                        c.is_control()
                            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{61c}')
                            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
                            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
                    };
                    prop_assert!(!shown.contains(bad), "{shown}");
                }
            }
        }

        #[test]
        fn every_character_by_itself(character: char) {
            let safe = PeerText::new(&character.to_string());
            prop_assert!(!safe.as_str().contains(char::is_control));
            prop_assert!(!safe.is_empty());
        }
    }
}
