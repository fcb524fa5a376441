//! The bytes of every kind of frame and of the handshake's messages, field by field.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use prost::Message as _;
use rpc_core::wire::hello::{self, DEFLATE, Declined, Hello, Offer, PREFIX_LEN, Verdict};
use rpc_core::wire::{FrameHeader, FrameKind};

use crate::tape::{hex, unhex};
use crate::{is_recording, todays_folder, versions};

/// The file of a version. A line is a name and its bytes.
const FILE: &str = "headers.txt";

/// Every frame header that means something else, by a name.
fn frames() -> Vec<(String, FrameHeader)> {
    let mut frames: Vec<_> =
        FrameKind::ALL.iter().map(|&kind| (format!("{kind:?}"), with_parts(kind))).collect();
    let mut streaming = with_parts(FrameKind::Request);
    (streaming.is_streaming, streaming.message_len) = (true, 0);
    frames.push(("Request, streaming".into(), streaming));
    let mut refused = with_parts(FrameKind::Response);
    refused.is_not_executed = true;
    frames.push(("Response, not executed".into(), refused));
    for kind in [FrameKind::Request, FrameKind::Response, FrameKind::Messages] {
        let deflated = FrameHeader { is_deflated: true, ..with_parts(kind) };
        frames.push((format!("{kind:?}, deflated"), deflated));
    }
    frames
}

/// A header of the kind with a value in every field that frames of the kind have.
fn with_parts(kind: FrameKind) -> FrameHeader {
    use FrameKind::{Headers, Messages, Request, Response};
    let mut header = FrameHeader::bare(kind, 0x0102_0304_0506_0708);
    header.argument = 0x1112_1314_1516_1718;
    if let Request | Response = kind {
        header.selector = 0x2122;
    }
    if let Request | Response | Headers = kind {
        header.metadata_len = 0x3132_3334;
    }
    if let Request | Response | Messages = kind {
        header.message_len = 0x4142_4344_4546_4748;
    }
    header
}

/// A Hello with every field. A field that comes later stays absent here and gets an entry of its
/// own, since the entries of earlier versions keep their bytes.
fn full_hello() -> Hello {
    Hello {
        message_len_max: 1001,
        metadata_len_max: 1002,
        calls_max: 1003,
        methods: vec!["/talk.Talk/Ask".into(), "/talk.Talk/Listen".into()],
        offers: vec![Offer { name: "rdma".into(), blob: vec![1, 2, 3].into() }],
        accepted: Some(Offer { name: "rdma".into(), blob: vec![4, 5].into() }),
        declined: vec![Declined::new("rdma", "no device")],
        receiving_bytes_max: 1004,
        stream_messages_max: 1005,
        stream_bytes_max: 1006,
        method_kinds: vec![7, 8].into(),
        encodings: DEFLATE,
        ..Hello::default()
    }
}

/// Everything that is recorded, as today's encoder makes it.
fn encoded() -> BTreeMap<String, Vec<u8>> {
    let frames = frames().into_iter().map(|(name, header)| (name, header.to_bytes().to_vec()));
    let mut encoded: BTreeMap<_, _> = frames.collect();
    let whole = |bytes: Result<Vec<u8>, _>| bytes.expect("it is short");
    encoded.insert("Hello".into(), whole(hello::encode(&full_hello())));
    encoded.insert("Verdict, good".into(), whole(hello::encode(&Verdict::good())));
    encoded.insert("Verdict, failed".into(), whole(hello::encode(&Verdict::failed("no probe"))));
    encoded
}

#[test]
fn headers_have_their_recorded_bytes() {
    let today = encoded();
    if is_recording() {
        let mut text = String::new();
        for (name, bytes) in &today {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}: {}", hex(bytes));
        }
        fs::write(todays_folder().join(FILE), text).expect("the folder takes it");
        return;
    }
    for folder in versions() {
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).expect("each version has the file");
        for line in text.lines() {
            let (name, bytes) = line.split_once(": ").expect("a name and bytes");
            let bytes = unhex(bytes);
            assert_eq!(today.get(name), Some(&bytes), "{}: {name}", path.display());
            check_decoded(name, &bytes);
        }
    }
}

fn check_decoded(name: &str, bytes: &[u8]) {
    let body = bytes.get(PREFIX_LEN..).unwrap_or_default();
    match name {
        "Hello" => assert_eq!(Hello::decode(body), Ok(full_hello())),
        "Verdict, good" => assert_eq!(Verdict::decode(body), Ok(Verdict::good())),
        "Verdict, failed" => assert_eq!(Verdict::decode(body), Ok(Verdict::failed("no probe"))),
        _ => {
            let frame = frames().into_iter().find(|(frame, _)| frame == name);
            let (_, header) = frame.expect("a frame of that name");
            assert_eq!(FrameHeader::parse(bytes), Ok(header), "{name}");
        }
    }
}
