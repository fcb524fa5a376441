//! Metadata as a list that can be compared: values as their own bytes, keys under which only the
//! tests put something.

use farcall::Status;
use farcall::metadata::{KeyAndValueRef, MetadataKey, MetadataMap, MetadataValue};

use crate::proto::MetadataEntry;

/// Keys of the tests begin so; the others belong to the runtime.
const PREFIX: &str = "x-";

/// The entries of `metadata` that a test has put there, in order.
///
/// # Errors
///
/// Returns an error if a binary value is not base64.
pub fn entries(metadata: &MetadataMap) -> Result<Vec<MetadataEntry>, Status> {
    let test_entries = metadata.iter().filter_map(|entry| match entry {
        KeyAndValueRef::Ascii(key, value) if key.as_str().starts_with(PREFIX) => {
            Some((key.as_str(), Ok(value.as_bytes().to_vec())))
        }
        KeyAndValueRef::Binary(key, value) if key.as_str().starts_with(PREFIX) => {
            Some((key.as_str(), value.to_bytes().map(|bytes| bytes.to_vec())))
        }
        _ => None,
    });
    test_entries
        .map(|(key, value)| {
            let undecodable = |_| Status::invalid_argument(format!("{key} is not base64"));
            let value = value.map_err(undecodable)?.into();
            Ok(MetadataEntry { key: key.to_owned(), value })
        })
        .collect()
}

/// The metadata that `entries` describe.
///
/// # Errors
///
/// Returns an error if a key or a value cannot be metadata.
pub fn metadata(entries: &[MetadataEntry]) -> Result<MetadataMap, Status> {
    let mut metadata = MetadataMap::new();
    for MetadataEntry { key, value } in entries {
        let unusable = || Status::invalid_argument(format!("{key} is not metadata"));
        if key.ends_with("-bin") {
            let key = MetadataKey::from_bytes(key.as_bytes()).map_err(|_| unusable())?;
            metadata.append_bin(key, MetadataValue::from_bytes(value));
        } else {
            let key = MetadataKey::from_bytes(key.as_bytes()).map_err(|_| unusable())?;
            let value = MetadataValue::try_from(&value[..]).map_err(|_| unusable())?;
            metadata.append(key, value);
        }
    }
    Ok(metadata)
}

/// ASCII, binary with every byte, an empty value of each kind, and keys that occur repeatedly.
#[must_use]
pub fn sample() -> Vec<MetadataEntry> {
    let entry = |key: &str, value: &[u8]| MetadataEntry {
        key: key.to_owned(),
        value: value.to_vec().into(),
    };
    let every_byte: Vec<u8> = (0..=255).collect();
    vec![
        entry("x-plain", b"with spaces, \"quotes\" and ~tilde"),
        entry("x-empty", b""),
        entry("x-repeated", b"first"),
        entry("x-repeated", b"second"),
        entry("x-repeated", b"first"),
        entry("x-every-bin", &every_byte),
        entry("x-empty-bin", b""),
        entry("x-repeated-bin", &[0]),
        entry("x-repeated-bin", &[255, 0]),
    ]
}

/// Keys in order; the values of one key keep the order in which they were added.
#[must_use]
pub fn sorted(mut entries: Vec<MetadataEntry>) -> Vec<MetadataEntry> {
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    entries
}
