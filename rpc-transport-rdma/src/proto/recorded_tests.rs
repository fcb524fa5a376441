//! The bytes of every message, field by field, against those that a released version sent.
//!
//! `tests/recorded` of this crate has a file for each version. `FARCALL_WRITE_GOLDEN=1` writes the
//! one of this version.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use rpc_core::wire::HEADER_LEN;

use super::conn_params::{Capabilities, ConnParams};
use super::wire::{
    AtsStatus, Grant, MESSAGE_HEADER_LEN, MessageHeader, MessageKind, RTS_LEN_MAX, Rts, RtsSegment,
};
use crate::proto::endpoint::{Endpoint, Gid, LinkLayer, Mtu, ReadDepths};
use crate::proto::remote_memory::{RemoteKey, RemoteMemory};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

fn headers() -> Vec<(&'static str, MessageHeader)> {
    let transfer = 0x3132_3334;
    let ats = |outcome| MessageKind::Ats { transfer, outcome };
    let header = |kind, wants_more| MessageHeader {
        kind,
        epoch: 0x0102_0304,
        grant: Grant { count: 0x1112_1314, control_seen: 0x2122, wants_more },
    };
    vec![
        ("frame", header(MessageKind::Frame, false)),
        ("frame, wants more", header(MessageKind::Frame, true)),
        ("RTS", header(MessageKind::Rts { transfer }, false)),
        ("ATS, read", header(ats(AtsStatus::Read), false)),
        ("ATS, refused", header(ats(AtsStatus::Refused), false)),
        ("ATS, stopped", header(ats(AtsStatus::Stopped), false)),
        ("grant", header(MessageKind::Grant, false)),
        ("probe", header(MessageKind::Probe, false)),
        ("probe answer", header(MessageKind::ProbeAnswer, false)),
        ("RNDV_CANCEL", header(MessageKind::Cancel { transfer }, false)),
        ("reclaim", header(MessageKind::Reclaim { keep: transfer }, false)),
        ("return", header(MessageKind::Return { returned: transfer }, false)),
        ("proof", header(MessageKind::Proof { transfer }, false)),
    ]
}

fn rts() -> Rts {
    let segment = |address, len, key| RtsSegment {
        memory: RemoteMemory { address, key: RemoteKey(key) },
        len,
    };
    Rts {
        head: (0..HEADER_LEN).map(|byte| u8::try_from(byte).unwrap()).collect(),
        segments: vec![
            segment(0x4142_4344_4546_4748, 0x5152_5354, 0x6162_6364),
            segment(0x7172_7374_7576_7778, 1, 2),
        ],
    }
}

fn conn_params() -> ConnParams {
    let endpoint = Endpoint {
        queue_pair_number: 0x0001_0203,
        packet_sequence_number: 0x0004_0506,
        gid: Gid([9; 16]),
        lid: 1001,
        mtu: Mtu::B4096,
        reads: ReadDepths::Same(16),
        link_layer: LinkLayer::InfiniBand,
        partition_key: None,
        needs_global_route: false,
    };
    let read_end =
        Endpoint { queue_pair_number: 0x0007_0809, reads: ReadDepths::Same(8), ..endpoint };
    ConnParams {
        endpoint,
        epoch: 1002,
        grant: 1003,
        slot_len: 1004,
        has_memory_windows: true,
        read_ends: vec![read_end],
        traffic_class: None,
        capabilities: Capabilities(0),
    }
}

/// The parameters of a peer that knows more.
fn capable_conn_params() -> ConnParams {
    let params = conn_params();
    let partition_key = Some(0x8182);
    ConnParams {
        endpoint: Endpoint { partition_key, needs_global_route: true, ..params.endpoint },
        read_ends: params
            .read_ends
            .iter()
            .map(|end| Endpoint { partition_key, needs_global_route: true, ..*end })
            .collect(),
        traffic_class: Some(106),
        capabilities: Capabilities(0x0102_0304),
        ..params
    }
}

/// The parameters of a peer that tells the READs of each way apart.
fn apart_conn_params() -> ConnParams {
    let reads = ReadDepths::Apart { responder: 16, initiator: 128 };
    let params = capable_conn_params();
    let read_ends = params.read_ends.iter().map(|end| Endpoint { reads, ..*end }).collect();
    ConnParams { endpoint: Endpoint { reads, ..params.endpoint }, read_ends, ..params }
}

/// Everything that is recorded, as today's encoder makes it.
fn encoded() -> BTreeMap<&'static str, Vec<u8>> {
    let headers = headers().into_iter().map(|(name, header)| (name, header.to_bytes().to_vec()));
    let mut encoded: BTreeMap<_, _> = headers.collect();
    let mut body = [0; RTS_LEN_MAX];
    let len = rts().write(&mut body);
    encoded.insert("body of an RTS", body[..len].to_vec());
    encoded.insert("connection parameters", conn_params().encode());
    encoded.insert("connection parameters, capabilities", capable_conn_params().encode());
    encoded.insert("connection parameters, READs apart", apart_conn_params().encode());
    encoded
}

fn check_decoded(name: &str, bytes: &[u8]) {
    match name {
        "body of an RTS" => assert_eq!(Rts::parse(bytes), Ok(rts())),
        "connection parameters" => assert_eq!(ConnParams::decode(bytes), Ok(conn_params())),
        "connection parameters, capabilities" => {
            assert_eq!(ConnParams::decode(bytes), Ok(capable_conn_params()));
        }
        "connection parameters, READs apart" => {
            assert_eq!(ConnParams::decode(bytes), Ok(apart_conn_params()));
        }
        _ => {
            let header = headers().into_iter().find(|(header, _)| *header == name).unwrap().1;
            assert_eq!(MessageHeader::parse(bytes), Ok((header, &[][..])), "{name}");
            assert_eq!(bytes.len(), MESSAGE_HEADER_LEN);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
fn messages_have_their_recorded_bytes() {
    let today = encoded();
    if std::env::var_os("FARCALL_WRITE_GOLDEN").is_some() {
        let mut text = String::new();
        for (name, bytes) in &today {
            let _ = writeln!(text, "{name}: {}", hex(bytes));
        }
        let version = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap().0;
        fs::create_dir_all(folder()).unwrap();
        fs::write(folder().join(format!("{version}.txt")), text).unwrap();
        return;
    }
    let versions: Vec<_> = fs::read_dir(folder()).unwrap().collect();
    assert!(!versions.is_empty(), "nothing is recorded");
    for version in versions {
        let path = version.unwrap().path();
        for line in fs::read_to_string(&path).unwrap().lines() {
            let (name, bytes) = line.split_once(": ").unwrap();
            let bytes = unhex(bytes);
            assert_eq!(today.get(name), Some(&bytes), "{}: {name}", path.display());
            check_decoded(name, &bytes);
        }
    }
}
