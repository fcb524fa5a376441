//! Handshake messages, the bytes of methods, and the scan of repeated fields.

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::Limits;
use crate::wire::hello::{Hello, Offer};

const KINDS: [CallKind; 4] =
    [CallKind::Unary, CallKind::ClientStreaming, CallKind::ServerStreaming, CallKind::Streaming];

const LEVELS: [Idempotency; 3] =
    [Idempotency::Unknown, Idempotency::NoSideEffects, Idempotency::Idempotent];

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
fn a_bad_magic_a_new_version_and_a_long_body_are_distinct() {
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

/// Returns the memory of a decoded Hello.
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

#[test]
fn every_kind_and_level_survives() {
    for kind in KINDS {
        for level in LEVELS {
            assert_eq!(decode_method(method_byte(kind, level)), (kind, level));
        }
    }
}

/// Servers of other builds rely on them.
#[test]
fn the_bytes_stay() {
    assert_eq!(method_byte(CallKind::Unary, Idempotency::Unknown), 0);
    assert_eq!(method_byte(CallKind::ClientStreaming, Idempotency::NoSideEffects), 5);
    assert_eq!(method_byte(CallKind::ServerStreaming, Idempotency::Idempotent), 10);
    assert_eq!(method_byte(CallKind::Streaming, Idempotency::Unknown), 3);
}

#[test]
fn what_a_later_version_says_promises_nothing() {
    assert_eq!(decode_method(0xff), (CallKind::Streaming, Idempotency::Unknown));
}

/// A field of each type that there is, the long ones with lengths and numbers of two bytes.
#[test]
fn fields_of_every_type_are_skipped() {
    let mut long = vec![0x82, 0x7d, 0xc8, 0x01];
    long.resize(4 + 200, 0xff);
    let fields: [(&[u8], u64); 5] = [
        (&[0x08, 0xff, 0xff, 0x03], 1),
        (&[0x11, 1, 2, 3, 4, 5, 6, 7, 8], 2),
        (&[0x1a, 3, 0xff, 0xff, 0xff], 3),
        (&[0x25, 1, 2, 3, 4], 4),
        (&long, 2000),
    ];
    for (field, tag) in fields {
        let followed = [field, &[0x38, 1]].concat();
        let mut rest = &followed[..];
        assert_eq!(skip_field(&mut rest), Some(tag));
        assert_eq!(rest, [0x38, 1]);
        let cut = &field[..field.len() - 1];
        assert_eq!(skip_field(&mut &cut[..]), None, "{tag} is cut short");
    }
    assert_eq!(skip_field(&mut &[0x0b, 0x0c][..]), None, "a group");
    assert_eq!(take_varint(&mut &[0x96, 0x01][..]), Some(150));
    assert_eq!(take_varint(&mut &[0xff; 11][..]), None);
}

proptest! {
    /// The scan counts as many bytes as the decoder takes.
    #[test]
    fn it_counts_what_the_decoder_finds(
        methods in prop::collection::vec(".{0,3}", 0..20),
        offers in prop::collection::vec((".{0,3}", any::<[u8; 4]>()), 0..9),
        calls_max: u32,
        max in 0..20usize,
    ) {
        let offers = offers.into_iter();
        let offers = offers.map(|(name, blob)| Offer { name, blob: blob.to_vec().into() });
        let offers = offers.collect();
        let hello = Hello { calls_max, methods, offers, ..Hello::default() };
        let body = hello.encode_to_vec();
        for (tag, count) in [(4, hello.methods.len()), (5, hello.offers.len())] {
            let repeats = [Repeat { tag, what: "entries", max }];
            prop_assert_eq!(check("Hello", &repeats, &body).is_ok(), count <= max);
        }
    }

    #[test]
    fn it_takes_what_the_decoder_takes(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let has_groups = ProtocolError::Undecodable {
            what: "Hello",
            detail: "no protobuf message".into(),
        };
        // Nothing is lost but groups in fields that are not ours, which prost skips.
        let (decoded, checked) = (Hello::decode(&body[..]), check("Hello", &[], &body));
        if let (Ok(hello), Err(error)) = (decoded, checked) {
            prop_assert_eq!(error, has_groups);
            prop_assert!(body.iter().any(|byte| byte & 7 == 3), "{:?}", hello);
        }
    }
}
