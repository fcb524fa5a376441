//! Decoders of the wire format: nothing panics, and what decodes survives being encoded again.

use bytes::Bytes;
use rpc_core::wire::hello::{self, Hello, Offer, PREFIX_LEN, Verdict};
use rpc_core::wire::outcome::Outcome;
use rpc_core::wire::{FrameHeader, FrameKind, PeerText, metadata as metadata_block};
use rpc_core::{Code, Limits, Status};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};

/// A frame's header, alone and with the rest of the frame.
pub(crate) fn header(bytes: &[u8]) {
    if let Ok(header) = FrameHeader::parse(bytes) {
        assert_eq!(FrameHeader::parse(&header.to_bytes()), Ok(header));
        let len = bytes.len() as u64;
        assert_eq!(FrameHeader::parse_whole(bytes).is_ok(), header.frame_len() == len);
    }
}

pub(crate) fn header_seeds() -> Vec<Vec<u8>> {
    let bare =
        FrameKind::ALL.iter().map(|kind| FrameHeader::bare(*kind, 0x0102_0304).to_bytes().to_vec());
    let mut full = FrameHeader::bare(FrameKind::Request, 7);
    (full.is_streaming, full.selector, full.argument) = (true, 3, 1_000_000);
    (full.metadata_len, full.message_len) = (5, 9);
    let mut whole = full.to_bytes().to_vec();
    whole.extend_from_slice(&[1; 14]);
    bare.chain([whole]).collect()
}

/// Metadata of a request.
pub(crate) fn metadata(bytes: &[u8]) {
    let Ok(map) = metadata_block::decode(Bytes::copy_from_slice(bytes)) else { return };
    let mut block = Vec::new();
    if metadata_block::encode(&map, &mut block).is_err() {
        return;
    }
    // Keys that gRPC keeps to itself are left out by the encoder, once and for all.
    let again = metadata_block::decode(block.clone().into());
    let again = again.expect("what was encoded decodes");
    let mut block_again = Vec::new();
    metadata_block::encode(&again, &mut block_again).expect("what decoded encodes");
    assert_eq!(block_again, block);
}

pub(crate) fn metadata_seeds() -> Vec<Vec<u8>> {
    let encode = |map: &MetadataMap| {
        let mut block = Vec::new();
        metadata_block::encode(map, &mut block).expect("short metadata encodes");
        block
    };
    let mut ascii = MetadataMap::new();
    ascii.insert("x-request", "abc".parse().expect("ASCII"));
    ascii.append("x-request", "a second value".parse().expect("ASCII"));
    let mut binary = MetadataMap::new();
    binary.insert_bin("trace-bin", BinaryMetadataValue::from_bytes(&[0, 255, 10, 13]));
    let mut both = ascii.clone();
    both.insert_bin("empty-bin", BinaryMetadataValue::from_bytes(&[]));
    vec![Vec::new(), encode(&ascii), encode(&binary), encode(&both)]
}

/// A code in two bytes, and the block of a response.
pub(crate) fn outcome(bytes: &[u8]) {
    let Some((code, block)) = bytes.split_first_chunk::<2>() else { return };
    let code = u16::from_le_bytes(*code);
    let Ok(outcome) = Outcome::decode(code, Bytes::copy_from_slice(block)) else { return };
    assert_eq!(outcome.code(), code);
    let mut block = Vec::new();
    if outcome.encode(&mut block).is_err() {
        return;
    }
    let again = Outcome::decode(code, block.into()).expect("what was encoded decodes");
    let text = |outcome: &Outcome| match &outcome.result {
        Ok(_) => (0, String::new(), Vec::new()),
        Err(status) => {
            (status.code() as u16, status.message().to_owned(), status.details().to_vec())
        }
    };
    assert_eq!(text(&again), text(&outcome));
}

pub(crate) fn outcome_seeds() -> Vec<Vec<u8>> {
    let mut map = MetadataMap::new();
    map.insert("k", "v".parse().expect("ASCII"));
    let details = Bytes::from_static(&[8, 3, 18, 1, 65]);
    let status = Status::with_details_and_metadata(Code::Aborted, "nö\n", details, map.clone());
    let outcomes = [
        Outcome { metadata: MetadataMap::new(), result: Ok(MetadataMap::new()) },
        Outcome { metadata: map.clone(), result: Ok(map.clone()) },
        Outcome { metadata: MetadataMap::new(), result: Err(status) },
        Outcome { metadata: map, result: Err(Status::new(Code::NotFound, "no")) },
    ];
    let encode = |outcome: &Outcome| {
        let mut out = outcome.code().to_le_bytes().to_vec();
        outcome.encode(&mut out).expect("a short outcome encodes");
        out
    };
    // The parts' lengths stand at the beginning of what `encode` is given, wherever that is.
    outcomes.iter().map(encode).collect()
}

/// Parses the Hello that opens a connection.
pub(crate) fn hello(bytes: &[u8]) {
    let Some((prefix, body)) = bytes.split_first_chunk::<PREFIX_LEN>() else { return };
    for shape in [hello::CLIENT_HELLO, hello::SERVER_HELLO, hello::VERDICT] {
        if let Ok(len) = hello::decode_prefix(&shape, prefix) {
            assert!(len <= shape.body_len_max as usize);
        }
    }
    if let Ok(verdict) = hello::decode_body::<Verdict>(&hello::VERDICT, body) {
        check_text(verdict.failure());
    }
    for shape in [hello::CLIENT_HELLO, hello::SERVER_HELLO] {
        let Ok(hello) = hello::decode_body::<Hello>(&shape, body) else { continue };
        assert!(hello.offers.len() <= hello::OFFERS_MAX);
        assert!(hello.declined.len() <= hello::OFFERS_MAX);
        for declined in &hello.declined {
            check_text([declined.name(), declined.reason()]);
        }
        let Ok(bytes) = hello::encode(&hello) else { continue };
        let again = hello::decode_body::<Hello>(&shape, &bytes[PREFIX_LEN..]);
        assert_eq!(again, Ok(hello));
    }
}

/// Checks that each text of a peer is one bounded line.
fn check_text(texts: impl IntoIterator<Item = PeerText>) {
    for text in texts {
        assert!(text.as_str().len() <= PeerText::LEN_MAX, "{text}");
        assert!(!text.as_str().contains(char::is_control), "{text}");
    }
}

pub(crate) fn hello_seeds() -> Vec<Vec<u8>> {
    let mut server = Hello::new(&Limits::default());
    server.methods = vec!["/a.B/C".into(), "/a.B/D".into()];
    let offer = Offer { name: "rdma".into(), blob: Bytes::from_static(&[1; 40]) };
    let mut client = Hello::new(&Limits::default());
    client.offers.push(offer.clone());
    let mut accepting = server.clone();
    accepting.accepted = Some(offer);
    let verdict = Verdict::failed("no path");
    let encoded = [
        hello::encode(&server),
        hello::encode(&client),
        hello::encode(&accepting),
        hello::encode(&verdict),
    ];
    encoded.into_iter().map(|bytes| bytes.expect("short messages encode")).collect()
}
