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
//! Each message has a [`Shape`]: how long it may be, and how often its fields may occur. Both are
//! checked before anything of it is decoded, so that decoding allocates at most twice the length of
//! the body and one element for each entry that the shape allows.

use prost::Message;

use super::foreign::MAGIC;
use super::repeats::{self, Repeat};
use super::{PeerText, ProtocolError};

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

/// What a handshake message may be, for the side that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The message's name in errors.
    pub what: &'static str,
    /// The longest body in bytes.
    pub body_len_max: u32,
    repeats: &'static [Repeat],
}

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
    /// What the server says of each method of `methods`: see [`super::method_kinds`]. Empty where
    /// its version does not say.
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
    /// What only the upgrade understands.
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
    /// Whether the reason stays while the server's process runs.
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

    /// Whether this is about the upgrade of that name.
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

/// The beginning of a text that fits so many bytes.
fn cut(text: &str, len_max: usize) -> &str {
    let end = (0..=len_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// The bytes of a handshake message, prefix included.
///
/// # Errors
///
/// When the body is longer than [`BODY_LEN_MAX`].
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
/// When they are not how the magic begins.
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
/// When the magic is not ours, no version is spoken by both, or the body is too long.
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
/// When it does not decode, or has more entries than its shape allows.
pub fn decode_body<M: Message + Default>(shape: &Shape, body: &[u8]) -> Result<M, ProtocolError> {
    let what = shape.what;
    repeats::check(what, shape.repeats, body)?;
    M::decode(body)
        .map_err(|error| ProtocolError::Undecodable { what, detail: error.to_string().into() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Limits;

    fn prefix(bytes: &[u8]) -> [u8; PREFIX_LEN] {
        *bytes.first_chunk().unwrap()
    }

    #[test]
    fn a_hello_survives() {
        let mut hello = Hello::new(&Limits::default());
        hello.methods.push("/a.B/C".into());
        hello.accepted = Some(Offer { name: "rdma".into(), blob: vec![1, 2, 3].into() });
        let bytes = encode(&hello).unwrap();
        let len = decode_prefix(&SERVER_HELLO, &prefix(&bytes)).unwrap();
        assert_eq!(len, bytes.len() - PREFIX_LEN);
        let back: Hello = decode_body(&SERVER_HELLO, &bytes[PREFIX_LEN..]).unwrap();
        assert_eq!(back, hello);
        assert_eq!(back.limits(), Limits::default());
    }

    #[test]
    fn a_foreign_magic_a_future_version_and_a_long_body_are_told_apart() {
        let good = encode(&Hello::default()).unwrap();
        let mut bytes = prefix(&good);
        bytes[0] = b'G';
        assert!(matches!(decode_prefix(&CLIENT_HELLO, &bytes), Err(ProtocolError::Magic { .. })));
        let mut bytes = prefix(&good);
        bytes[8..12].copy_from_slice(&[9, 0, 12, 0]);
        let expected = ProtocolError::Version { peer_min: 9, peer_max: 12, our_min: 1, our_max: 1 };
        assert_eq!(decode_prefix(&CLIENT_HELLO, &bytes), Err(expected));
        let mut bytes = prefix(&good);
        for shape in [CLIENT_HELLO, SERVER_HELLO, VERDICT] {
            bytes[12..16].copy_from_slice(&shape.body_len_max.to_le_bytes());
            assert!(decode_prefix(&shape, &bytes).is_ok());
            bytes[12..16].copy_from_slice(&(shape.body_len_max + 1).to_le_bytes());
            let refused = decode_prefix(&shape, &bytes);
            assert!(matches!(refused, Err(ProtocolError::TooLong { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_newer_peer_that_still_speaks_our_version_is_welcome() {
        let mut bytes = prefix(&encode(&Hello::default()).unwrap());
        bytes[10..12].copy_from_slice(&[9, 0]);
        assert!(decode_prefix(&CLIENT_HELLO, &bytes).is_ok());
    }

    /// What a decoded Hello holds.
    fn held_bytes(hello: &Hello) -> usize {
        let offer = |offer: &Offer| offer.name.capacity() + offer.blob.len();
        hello.methods.capacity() * size_of::<String>()
            + hello.methods.iter().map(String::capacity).sum::<usize>()
            + hello.offers.capacity() * size_of::<Offer>()
            + hello.offers.iter().chain(&hello.accepted).map(offer).sum::<usize>()
            + hello.declined.capacity() * size_of::<Declined>()
            + hello.declined.iter().map(|d| d.name.capacity() + d.reason.capacity()).sum::<usize>()
    }

    #[test]
    fn a_hello_with_too_many_entries_is_refused_unseen() {
        let offer = Offer { name: "rdma".into(), blob: bytes::Bytes::new() };
        for (count, is_taken) in [(OFFERS_MAX, true), (OFFERS_MAX + 1, false), (6_000, false)] {
            let hello = Hello { offers: vec![offer.clone(); count], ..Hello::default() };
            let body = hello.encode_to_vec();
            assert_eq!(decode_body::<Hello>(&CLIENT_HELLO, &body).is_ok(), is_taken, "{count}");
        }
        let hello = Hello { methods: vec![String::new(); METHODS_MAX + 1], ..Hello::default() };
        let refused = decode_body::<Hello>(&SERVER_HELLO, &hello.encode_to_vec());
        let expected =
            ProtocolError::TooMany { what: "methods in a server's Hello", max: METHODS_MAX as u64 };
        assert_eq!(refused, Err(expected));
    }

    #[test]
    fn the_words_of_a_peer_are_cut_and_escaped() {
        let long = "\x1b[2J\n".repeat(100_000);
        let declined = Declined { name: long.clone(), reason: long.clone(), ..Declined::default() };
        let verdict = Verdict { failure: long };
        for text in [Some(declined.name()), Some(declined.reason()), verdict.failure()] {
            let text = text.expect("there are words").to_string();
            assert!(text.len() <= PeerText::LEN_MAX && !text.contains(char::is_control), "{text}");
        }
    }

    /// Peers of other builds rely on them.
    #[test]
    fn messages_may_be_as_long_as_documented() {
        let lens = [CLIENT_HELLO, SERVER_HELLO, VERDICT].map(|shape| shape.body_len_max);
        assert_eq!(lens, [65_536, 1_048_576, 4096]);
        let hello = |len| Hello { methods: vec!["m".repeat(len)], ..Hello::default() };
        // Four bytes beside the path: its tag, and its length in three.
        assert!(encode(&hello(1_048_572)).is_ok());
        assert!(matches!(encode(&hello(1_048_573)), Err(ProtocolError::TooLong { .. })));
    }

    #[test]
    fn a_server_may_have_as_many_methods_as_there_are_ids() {
        let hello = Hello { methods: vec![String::new(); 65_536], ..Hello::default() };
        let decoded = decode_body::<Hello>(&SERVER_HELLO, &hello.encode_to_vec()).unwrap();
        assert_eq!(decoded.methods.len(), 65_536);
    }

    #[test]
    fn magic_is_checked_as_it_comes() {
        for len in 0..=MAGIC_LEN {
            check_magic(&MAGIC[..len]).unwrap();
        }
        check_magic(b"farcall\n and more").unwrap();
        let found = b"farm".to_vec();
        assert_eq!(check_magic(&found), Err(ProtocolError::Magic { found: found.clone() }));
    }

    #[test]
    fn the_version_may_begin_or_end_with_ours() {
        for (peer_min, peer_max, is_spoken) in
            [(0, 0, false), (0, 1, true), (1, 1, true), (1, 2, true), (2, 2, false)]
        {
            let mut bytes = prefix(&encode(&Hello::default()).unwrap());
            bytes[8..10].copy_from_slice(&u16::to_le_bytes(peer_min));
            bytes[10..12].copy_from_slice(&u16::to_le_bytes(peer_max));
            let decoded = decode_prefix(&CLIENT_HELLO, &bytes);
            assert_eq!(decoded.is_ok(), is_spoken, "{peer_min} to {peer_max}");
        }
    }

    #[test]
    fn a_verdict_is_good_or_has_a_reason() {
        assert_eq!(Verdict::good().failure(), None);
        assert_eq!(Verdict::failed("no answer").failure(), Some("no answer".into()));
        assert_eq!(Verdict::failed("").failure(), Some("no reason given".into()));
    }

    #[test]
    fn a_declined_offer_is_known_by_its_name() {
        let declined = Declined::new("rdma", "no device");
        assert!(declined.is_about("rdma") && !declined.is_about("other"));
        assert_eq!((declined.name(), declined.reason()), ("rdma".into(), "no device".into()));
        // Cut where a character ends: 21 of three bytes fit 64.
        let long = Declined::new(&"€".repeat(30), "");
        assert!(long.is_about(&"€".repeat(21)));
    }

    proptest! {
        #[test]
        fn decoding_never_panics(
            prefix: [u8; PREFIX_LEN],
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            for shape in [CLIENT_HELLO, SERVER_HELLO, VERDICT] {
                let _ = decode_prefix(&shape, &prefix);
                let _ = decode_body::<Hello>(&shape, &body);
                let _ = decode_body::<Verdict>(&shape, &body);
            }
        }

        /// Fields of two bytes each, as many as fit: the dearest there are.
        #[test]
        fn decoding_allocates_a_stated_multiple_of_the_bytes(
            tags in prop::collection::vec(4..8u8, 1..4),
            count in 1..30_000usize,
            text in ".{0,40}",
        ) {
            let mut body = vec![];
            for tag in tags.iter().cycle().take(count) {
                body.extend_from_slice(&[tag << 3 | 2, 0]);
            }
            let offer = Offer { name: text.clone(), blob: text.clone().into() };
            Hello { offers: vec![offer], methods: vec![text], ..Hello::default() }
                .encode(&mut body)
                .unwrap();
            for (shape, entries_max) in
                [(CLIENT_HELLO, OFFERS_MAX), (SERVER_HELLO, METHODS_MAX + OFFERS_MAX)]
            {
                let Ok(hello) = decode_body::<Hello>(&shape, &body) else { continue };
                let entries_max = entries_max.min(body.len() + 8);
                let bound = 2 * body.len() + 2 * entries_max * size_of::<Offer>();
                let held = held_bytes(&hello);
                prop_assert!(held <= bound, "{held} bytes, where {bound} are the most");
            }
        }
    }
}
