//! Metadata that crosses in a block, and metadata that is refused.

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

fn header(name: &'static str, value: &[u8]) -> MetadataMap {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_bytes(value).unwrap());
    MetadataMap::from_headers(headers)
}

fn raw(metadata: &MetadataMap, key: &str) -> Vec<Bytes> {
    metadata.get_all_bin(key).iter().map(|value| value.to_bytes().unwrap()).collect()
}

#[test]
fn joined_binary_values_cross_one_by_one() {
    let (one, two) = (&[0, 1][..], &[0, 2][..]);
    for (value, expected) in [
        (&b"AAE=,AAI"[..], &[one, two][..]),
        (b"AAE, AAI=", &[one, two]),
        (b"AAE=", &[one]),
        (b"AAE,", &[one, &[]]),
        (b"", &[&[]]),
        (b",", &[&[], &[]]),
    ] {
        let metadata = header("x-bin", value);
        assert_eq!(raw(&round_trip(&metadata), "x-bin"), expected, "{value:?}");
        let apart = from_http(metadata.clone()).unwrap();
        assert_eq!(raw(&apart, "x-bin"), expected, "{value:?}");
        check_binary(&metadata).unwrap();
    }
}

#[test]
fn binary_values_that_are_not_base64_are_refused_by_name() {
    let values = [&b"!"[..], b"A", b"AAE=AAI", b"AA=E", b"AAE,!", b"AB==", b"_-8=", b"AAE AAI"];
    for value in values {
        let metadata = header("x-broken-bin", value);
        let errors = [
            encode(&metadata, &mut Vec::new()).unwrap_err(),
            check_binary(&metadata).unwrap_err(),
            from_http(metadata).unwrap_err(),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("`x-broken-bin` is not base64"), "{value:?}: {text}");
        }
    }
}

#[test]
fn joined_values_count_as_entries() {
    let joined = vec![b','; ENTRIES_MAX - 1];
    let mut block = Vec::new();
    encode(&header("x-bin", &joined), &mut block).unwrap();
    assert_eq!(decode(block.into()).unwrap().len(), ENTRIES_MAX);
    let joined = vec![b','; ENTRIES_MAX];
    let refused = encode(&header("x-bin", &joined), &mut Vec::new()).unwrap_err();
    assert!(matches!(refused, ProtocolError::TooLong { .. }), "{refused}");
}

/// A value, and a text of base64 for it.
fn binary_value() -> impl Strategy<Value = (Vec<u8>, String)> {
    (prop::collection::vec(any::<u8>(), 0..12), any::<bool>()).prop_map(|(raw, is_padded)| {
        let value = BinaryMetadataValue::from_bytes(&raw);
        let mut text = String::from_utf8(value.as_encoded_bytes().to_vec()).unwrap();
        while is_padded && !text.len().is_multiple_of(4) {
            text.push('=');
        }
        (raw, text)
    })
}

proptest! {
    /// Padded or not, joined or not, with spaces or without.
    #[test]
    fn binary_values_cross_as_they_are(
        values in prop::collection::vec((binary_value(), any::<bool>(), any::<bool>()), 1..8),
    ) {
        let mut fields: Vec<String> = Vec::new();
        for ((_, text), is_joined, has_space) in &values {
            match fields.last_mut().filter(|_| *is_joined) {
                Some(last) => *last = format!("{last},{}{text}", if *has_space { " " } else { "" }),
                None => fields.push(text.clone()),
            }
        }
        let mut headers = HeaderMap::new();
        for field in &fields {
            headers.append("x-bin", field.parse().unwrap());
        }
        let metadata = MetadataMap::from_headers(headers);
        let expected: Vec<_> = values.into_iter().map(|((raw, _), ..)| raw).collect();
        prop_assert_eq!(raw(&round_trip(&metadata), "x-bin"), expected.clone());
        prop_assert_eq!(raw(&from_http(metadata).unwrap(), "x-bin"), expected);
    }

    /// ASCII values too are whatever HTTP allows.
    #[test]
    fn values_cross_as_they_are_or_are_refused(
        name in "[a-z][a-z0-9._-]{0,6}(-bin)?",
        value in prop::collection::vec(
            prop::sample::select(vec![b'A', b'E', b'=', b',', b' ', b'!', b'\t', 0x80, 0xff]),
            0..12,
        ),
    ) {
        let mut headers = HeaderMap::new();
        let key = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.insert(key.clone(), HeaderValue::from_bytes(&value).unwrap());
        let metadata = MetadataMap::from_headers(headers);
        let mut block = Vec::new();
        match encode(&metadata, &mut block) {
            Err(error) => {
                prop_assert!(error.to_string().contains(&name), "{}", error);
                prop_assert!(from_http(metadata).is_err());
            }
            Ok(()) if is_reserved(&name) => prop_assert!(block.is_empty()),
            Ok(()) => {
                let crossed = decode(block.into()).unwrap();
                let apart = from_http(metadata).unwrap();
                if name.ends_with("-bin") {
                    prop_assert_eq!(raw(&crossed, &name), raw(&apart, &name));
                } else {
                    prop_assert_eq!(crossed.get(&name).unwrap().as_encoded_bytes(), &value);
                    prop_assert_eq!(crossed.into_headers(), apart.into_headers());
                }
            }
        }
    }

    #[test]
    fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(bytes.into());
    }
}
