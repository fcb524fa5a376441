//! Metadata as bytes: a sequence of entries, each `name_len: u16, value_len: u32, name, value`.
//!
//! Values of `-bin` keys travel raw; tonic's `MetadataMap` holds them base64-encoded, so both ends
//! convert. The keys that HTTP/2 gRPC keeps to itself never cross.

use bytes::Bytes;
use tonic::metadata::{
    AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue, KeyAndValueRef,
    MetadataMap,
};

use super::ProtocolError;

const ENTRY_LEN: usize = 6;

/// The most entries. The map that tonic keeps them in panics when it cannot grow: beyond 24,576,
/// and beyond 6,553 if a peer has chosen their names so that they collide.
const ENTRIES_MAX: usize = 4096;

/// What an entry of a decoded block takes beside its name and its value, in bytes: an element of a
/// `HeaderMap` (104 bytes) in a vector with twice the room that it needs, its places in the index
/// of the map, and a name of its own.
const ENTRY_HELD: u64 = 260;

/// Keys that do not cross, since each says something of one hop over HTTP. Behind a gateway the
/// next hop would take them for its own: a `grpc-encoding` that crossed makes a client inflate what
/// was never compressed, and HTTP/2 refuses a request with a `connection`.
///
/// Of the names that gRPC reserves these are left to its applications, and cross: `user-agent`,
/// `grpc-previous-rpc-attempts`, `grpc-retry-pushback-ms`, `grpc-trace-bin` and `grpc-tags-bin`.
const RESERVED: [&str; 19] = [
    // gRPC's own: what farcall's header and block say in its place, and how one hop compresses.
    "te",
    "content-type",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-internal-encoding-request",
    "grpc-message",
    "grpc-message-type",
    "grpc-status",
    "grpc-status-details-bin",
    "grpc-timeout",
    // HTTP's: about one connection, or about the one body that a hop sends.
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a key stays on its hop. Every other key is the application's.
fn is_reserved(key: &str) -> bool {
    RESERVED.contains(&key)
}

/// The entries that are not about a single hop: what an application sees of an answer of HTTP.
#[must_use]
pub fn without_reserved(mut metadata: MetadataMap) -> MetadataMap {
    if !metadata.is_empty() {
        let mut headers = metadata.into_headers();
        for key in RESERVED {
            headers.remove(key);
        }
        metadata = MetadataMap::from_headers(headers);
    }
    metadata
}

/// Appends `metadata` to `out`. Nothing is appended for empty metadata.
///
/// # Errors
///
/// When there are too many entries, or one's value is longer than its length field can say.
pub fn encode(metadata: &MetadataMap, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    check_count(metadata.len())?;
    for entry in metadata.iter() {
        match entry {
            KeyAndValueRef::Ascii(key, _) if is_reserved(key.as_str()) => {}
            KeyAndValueRef::Binary(key, _) if is_reserved(key.as_str()) => {}
            KeyAndValueRef::Ascii(key, value) => {
                encode_entry(key.as_str(), value.as_encoded_bytes(), out)?;
            }
            // A value that is not base64 cannot have been made by a `MetadataMap` of binary keys.
            KeyAndValueRef::Binary(key, value) => {
                encode_entry(key.as_str(), &value.to_bytes().unwrap_or_default(), out)?;
            }
        }
    }
    Ok(())
}

fn encode_entry(name: &str, value: &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    let name_len = u16::try_from(name.len()).map_err(|_| ProtocolError::TooLong {
        what: "metadata key",
        len: name.len() as u64,
        max: u16::MAX.into(),
    })?;
    let value_len = u32::try_from(value.len()).map_err(|_| ProtocolError::TooLong {
        what: "metadata value",
        len: value.len() as u64,
        max: u32::MAX.into(),
    })?;
    out.extend_from_slice(&name_len.to_le_bytes());
    out.extend_from_slice(&value_len.to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value);
    Ok(())
}

/// Reads metadata from `block`, which it must fill. Values of ASCII keys alias `block`.
///
/// # Errors
///
/// When an entry is cut short, when a key or a value is not one that gRPC allows, and when there
/// are too many entries.
pub fn decode(mut block: Bytes) -> Result<MetadataMap, ProtocolError> {
    let mut metadata = MetadataMap::new();
    while !block.is_empty() {
        let (name, value) = split_entry(&mut block)?;
        check_count(metadata.len() + 1)?;
        let invalid = |what| ProtocolError::Invalid { what, value: name.len() as u64 };
        if name.ends_with(b"-bin") {
            let key = BinaryMetadataKey::from_bytes(&name)
                .map_err(|_| invalid("binary metadata key of that length"))?;
            metadata.append_bin(key, BinaryMetadataValue::from_bytes(&value));
        } else {
            let key = AsciiMetadataKey::from_bytes(&name)
                .map_err(|_| invalid("metadata key of that length"))?;
            let value = AsciiMetadataValue::try_from(value)
                .map_err(|_| invalid("metadata value under a key of that length"))?;
            metadata.append(key, value);
        }
    }
    Ok(metadata)
}

/// The most bytes that a block of `block_len_max` bytes takes, as it came and decoded. A name is
/// copied; a binary value is too, in base64, which is a third longer.
pub(crate) fn held_bytes_max(block_len_max: u32) -> u64 {
    let block_len_max = u64::from(block_len_max);
    // The shortest entry has a name of one byte and no value.
    let entry_count = (block_len_max / (ENTRY_LEN as u64 + 1)).min(ENTRIES_MAX as u64);
    3 * block_len_max + entry_count * ENTRY_HELD
}

fn check_count(count: usize) -> Result<(), ProtocolError> {
    if count <= ENTRIES_MAX {
        return Ok(());
    }
    let (len, max) = (count as u64, ENTRIES_MAX as u64);
    Err(ProtocolError::TooLong { what: "metadata's number of entries", len, max })
}

fn split_entry(block: &mut Bytes) -> Result<(Bytes, Bytes), ProtocolError> {
    let truncated = |len: usize, needed: usize| ProtocolError::Truncated {
        what: "metadata entry",
        len: len as u64,
        needed: needed as u64,
    };
    let Some((prefix, _)) = block.split_first_chunk::<ENTRY_LEN>() else {
        return Err(truncated(block.len(), ENTRY_LEN));
    };
    let [n0, n1, v0, v1, v2, v3] = *prefix;
    let name_len = usize::from(u16::from_le_bytes([n0, n1]));
    let value_len = u32::from_le_bytes([v0, v1, v2, v3]) as usize;
    let needed = ENTRY_LEN + name_len + value_len;
    if block.len() < needed {
        return Err(truncated(block.len(), needed));
    }
    let mut entry = block.split_to(needed);
    let mut name_value = entry.split_off(ENTRY_LEN);
    let value = name_value.split_off(name_len);
    Ok((name_value, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(metadata: &MetadataMap) -> MetadataMap {
        let mut block = Vec::new();
        encode(metadata, &mut block).unwrap();
        decode(block.into()).unwrap()
    }

    #[test]
    fn ascii_binary_and_repeated_entries_survive() {
        let mut metadata = MetadataMap::new();
        metadata.insert("x-request", "abc".parse().unwrap());
        metadata.append("x-request", "def".parse().unwrap());
        let raw = [0, 255, 10, 13, 0];
        metadata.insert_bin("trace-bin", BinaryMetadataValue::from_bytes(&raw));
        let back = round_trip(&metadata);
        let values: Vec<_> = back.get_all("x-request").iter().collect();
        assert_eq!(values, ["abc", "def"]);
        assert_eq!(back.get_bin("trace-bin").unwrap().to_bytes().unwrap()[..], raw);
        assert_eq!(back.len(), 3);
    }

    #[test]
    fn what_belongs_to_one_hop_does_not_cross() {
        let mut headers = http::HeaderMap::new();
        for key in [
            "te",
            "content-type",
            "grpc-accept-encoding",
            "grpc-encoding",
            "grpc-internal-encoding-request",
            "grpc-message",
            "grpc-message-type",
            "grpc-status",
            "grpc-status-details-bin",
            "grpc-timeout",
            "connection",
            "content-length",
            "host",
            "http2-settings",
            "keep-alive",
            "proxy-connection",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ] {
            headers.insert(key, http::HeaderValue::from_static("gzip"));
        }
        let metadata = MetadataMap::from_headers(headers);
        let crossed = round_trip(&metadata);
        assert!(crossed.is_empty(), "{crossed:?}");
        assert!(without_reserved(metadata).is_empty());
    }

    #[test]
    fn what_grpc_leaves_to_applications_crosses() {
        let mut metadata = MetadataMap::new();
        for key in ["user-agent", "grpc-previous-rpc-attempts", "grpc-retry-pushback-ms"] {
            metadata.insert(key, "7".parse().unwrap());
        }
        for key in ["grpc-trace-bin", "grpc-tags-bin"] {
            metadata.insert_bin(key, BinaryMetadataValue::from_bytes(&[7]));
        }
        assert_eq!(round_trip(&metadata).len(), metadata.len());
    }

    #[test]
    fn binary_values_travel_raw() {
        let mut metadata = MetadataMap::new();
        metadata.insert_bin("a-bin", BinaryMetadataValue::from_bytes(&[7; 100]));
        let mut block = Vec::new();
        encode(&metadata, &mut block).unwrap();
        assert_eq!(block.len(), ENTRY_LEN + 5 + 100);
    }

    /// Whatever a limit allows in bytes: the map panics when it cannot grow.
    #[test]
    fn entries_beyond_the_most_are_refused_by_both_sides() {
        let mut block = Vec::new();
        let mut metadata = MetadataMap::new();
        for number in 0..ENTRIES_MAX {
            let key: AsciiMetadataKey = format!("k{number}").parse().unwrap();
            metadata.insert(key, "v".parse().unwrap());
        }
        encode(&metadata, &mut block).unwrap();
        assert_eq!(decode(block.clone().into()).unwrap().len(), ENTRIES_MAX);
        metadata.insert("one-more", "v".parse().unwrap());
        assert!(encode(&metadata, &mut Vec::new()).is_err());
        for number in 0..30_000 {
            encode_entry(&format!("more{number}"), b"v", &mut block).unwrap();
        }
        assert!(matches!(decode(block.into()), Err(ProtocolError::TooLong { .. })));
    }

    #[test]
    fn one_entry_beyond_the_most_is_refused() {
        let mut block = Vec::new();
        for number in 0..ENTRIES_MAX {
            encode_entry(&format!("k{number}"), b"v", &mut block).unwrap();
        }
        assert!(decode(block.clone().into()).is_ok());
        encode_entry("last", b"v", &mut block).unwrap();
        let (len, max) = (ENTRIES_MAX as u64 + 1, ENTRIES_MAX as u64);
        let what = "metadata's number of entries";
        let refused = decode(block.into()).unwrap_err();
        assert_eq!(refused, ProtocolError::TooLong { what, len, max });
    }

    /// The block, its copies, and an entry for each seven bytes, up to the most there may be.
    #[test]
    fn what_a_block_takes_is_known_from_its_longest_length() {
        assert_eq!(held_bytes_max(0), 0);
        assert_eq!(held_bytes_max(6), 18);
        assert_eq!(held_bytes_max(7), 21 + 260);
        assert_eq!(held_bytes_max(700), 2100 + 100 * 260);
        assert_eq!(held_bytes_max(1 << 20), (3 << 20) + 4096 * 260);
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(bytes.into());
        }
    }
}
