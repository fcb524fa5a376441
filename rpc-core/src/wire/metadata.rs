//! Metadata as bytes: a sequence of entries, each `name_len: u16, value_len: u32, name, value`.
//!
//! Values of `-bin` keys travel raw; tonic's `MetadataMap` holds them base64-encoded, so both ends
//! convert. The keys that HTTP/2 gRPC keeps to itself never cross. Every other entry crosses as it
//! is, or its message is refused by the name of its key.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tonic::metadata::{
    AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue, KeyAndValueRef,
    MetadataMap,
};

use super::ProtocolError;

const ENTRY_LEN: usize = 6;

/// The most entries. The map that tonic keeps them in panics when it cannot grow: beyond 24,576,
/// and beyond 6,553 if a peer has chosen their names so that they collide.
const ENTRIES_MAX: usize = 4096;

/// Memory of a decoded block's entry besides its name and its value, in bytes: an element of a
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

/// Returns true if a key stays on its hop. Every other key is the application's.
fn is_reserved(key: &str) -> bool {
    RESERVED.contains(&key)
}

/// Returns metadata that came over HTTP as an application sees it: without the entries about a
/// single hop, and with each value of a `-bin` key by itself, where a proxy has joined several.
///
/// # Errors
///
/// Returns `Undecodable`, which names the key, for a value of a `-bin` key that is not base64.
pub fn from_http(metadata: MetadataMap) -> Result<MetadataMap, ProtocolError> {
    let metadata = without_reserved(metadata);
    let is_joined = |entry| match entry {
        KeyAndValueRef::Ascii(..) => false,
        KeyAndValueRef::Binary(_, value) => value.as_encoded_bytes().contains(&b','),
    };
    if !metadata.iter().any(is_joined) {
        check_binary(&metadata)?;
        return Ok(metadata);
    }
    let mut apart = MetadataMap::with_capacity(metadata.len());
    for entry in metadata.iter() {
        match entry {
            KeyAndValueRef::Ascii(key, value) => drop(apart.append(key, value.clone())),
            KeyAndValueRef::Binary(key, value) => {
                for_each_raw(key, value, |raw| {
                    apart.append_bin(key, BinaryMetadataValue::from_bytes(&raw));
                    Ok(())
                })?;
            }
        }
    }
    Ok(apart)
}

/// Checks that every value of a `-bin` key is base64, or several that are joined by commas.
///
/// # Errors
///
/// Returns `Undecodable`, which names the key, for the first that is not.
pub fn check_binary(metadata: &MetadataMap) -> Result<(), ProtocolError> {
    for entry in metadata.iter() {
        if let KeyAndValueRef::Binary(key, value) = entry {
            for_each_raw(key, value, |_| Ok(()))?;
        }
    }
    Ok(())
}

/// Decodes a value of a `-bin` key: one of base64, with padding or without, or several of these.
/// HTTP allows whatever passes a message on to join the values of one key by commas.
fn for_each_raw(
    key: &BinaryMetadataKey,
    value: &BinaryMetadataValue,
    mut visit: impl FnMut(Bytes) -> Result<(), ProtocolError>,
) -> Result<(), ProtocolError> {
    let undecodable = || ProtocolError::Undecodable {
        what: "binary metadata",
        detail: format!("the value of `{}` is not base64", key.as_str()).into(),
    };
    let encoded = value.as_encoded_bytes();
    if !encoded.contains(&b',') {
        return visit(value.to_bytes().map_err(|_| undecodable())?);
    }
    for one in encoded.split(|byte| *byte == b',') {
        visit(decode_one(one).ok_or_else(undecodable)?)?;
    }
    Ok(())
}

/// Decodes one of several values, around which HTTP allows spaces.
fn decode_one(encoded: &[u8]) -> Option<Bytes> {
    const KEY: &str = "one-bin";
    let value = HeaderValue::from_bytes(encoded.trim_ascii()).ok()?;
    let one = HeaderMap::from_iter([(http::HeaderName::from_static(KEY), value)]);
    MetadataMap::from_headers(one).get_bin(KEY)?.to_bytes().ok()
}

/// Returns the entries that are not about a single hop.
fn without_reserved(mut metadata: MetadataMap) -> MetadataMap {
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
/// Returns `TooLong` if there are too many entries, or if one's value is longer than its length
/// field can say, and `Undecodable` for a value of a `-bin` key that is not base64.
pub fn encode(metadata: &MetadataMap, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
    check_count(metadata.len())?;
    let mut binary_count = 0;
    for entry in metadata.iter() {
        match entry {
            KeyAndValueRef::Ascii(key, _) if is_reserved(key.as_str()) => {}
            KeyAndValueRef::Binary(key, _) if is_reserved(key.as_str()) => {}
            KeyAndValueRef::Ascii(key, value) => {
                encode_entry(key.as_str(), value.as_encoded_bytes(), out)?;
            }
            KeyAndValueRef::Binary(key, value) => {
                for_each_raw(key, value, |raw| {
                    // One that was joined may be more entries than the map has.
                    binary_count += 1;
                    check_count(binary_count)?;
                    encode_entry(key.as_str(), &raw, out)
                })?;
            }
        }
    }
    Ok(())
}

/// Appends one entry, whose value is not that of a `-bin` key.
///
/// # Errors
///
/// Returns `TooLong` if its name or its value is longer than its length field can say.
pub(crate) fn encode_entry(
    name: &str,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), ProtocolError> {
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

/// Returns the place of the first entry with this key in a block. Looks at the names alone, up to
/// the first entry that is cut short.
pub(crate) fn find(block: &[u8], key: &str) -> Option<Range<usize>> {
    let mut at = 0;
    while let Some(([n0, n1, v0, v1, v2, v3], rest)) = block[at..].split_first_chunk::<ENTRY_LEN>()
    {
        let name_len = usize::from(u16::from_le_bytes([*n0, *n1]));
        let value_len = u32::from_le_bytes([*v0, *v1, *v2, *v3]) as usize;
        let len = name_len.checked_add(value_len).filter(|len| *len <= rest.len())?;
        let end = at + ENTRY_LEN + len;
        if &rest[..name_len] == key.as_bytes() {
            return Some(at..end);
        }
        at = end;
    }
    None
}

/// Reads metadata from `block`, which it must fill. Values of ASCII keys alias `block`.
///
/// # Errors
///
/// Returns `ProtocolError` if an entry is cut short, if a key or a value is not one that gRPC
/// allows, or if there are too many entries.
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

/// Returns the keys of a block's entries, as they came, up to the first entry that is cut short.
pub(crate) fn keys(mut block: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let entry = if block.is_empty() { None } else { split_entry(&mut block).ok() };
        entry.map(|(key, _)| key)
    })
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
#[path = "metadata_tests.rs"]
mod tests;
