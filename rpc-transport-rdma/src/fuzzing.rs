//! What fuzz targets reach into, and nobody else should: what a peer says, as bytes.

use crate::blob::Blob;
use crate::message::{MessageHeader, MessageKind, Offer};

/// Reads a message as a connection does.
///
/// # Panics
///
/// When a property does not hold: what was read says the same when it is written again, and the
/// segments of an offer are there.
pub fn message(bytes: &[u8]) {
    let Ok((header, body)) = MessageHeader::parse(bytes) else { return };
    let again = header.to_bytes();
    assert_eq!(MessageHeader::parse(&again), Ok((header, &[][..])));
    if matches!(header.kind, MessageKind::Offer { .. })
        && let Ok(offer) = Offer::parse(body)
    {
        assert!(offer.segments.iter().all(|segment| segment.len > 0));
        assert!(!offer.segments.is_empty());
    }
}

/// Reads a peer's part of the handshake.
///
/// # Panics
///
/// When what was read says something else once it is written again.
pub fn blob(bytes: &[u8]) {
    if let Ok(blob) = Blob::decode(bytes) {
        assert_eq!(Blob::decode(&blob.encode()), Ok(blob));
    }
}
