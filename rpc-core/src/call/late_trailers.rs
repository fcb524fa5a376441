//! Trailing metadata of a response stream that is known only when the stream ends.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tonic::metadata::MetadataMap;

/// Where a response stream leaves its trailing metadata before it ends.
///
/// A handler puts one into `response.extensions_mut()` and keeps a clone for its stream. It is for
/// streams that pass on what another server sends; a handler that knows its trailers when it
/// returns inserts [`crate::Trailers`].
#[derive(Clone, Default)]
pub struct LateTrailers(Arc<Mutex<MetadataMap>>);

impl LateTrailers {
    /// Leaves the trailers. They are sent if the stream ends well after that.
    pub fn set(&self, trailers: MetadataMap) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = trailers;
    }

    /// Takes what was left; empty when nothing was.
    #[must_use]
    pub fn take(&self) -> MetadataMap {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for LateTrailers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LateTrailers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_what_is_left_and_it_is_taken_once() {
        let (stream, sender) = {
            let trailers = LateTrailers::default();
            (trailers.clone(), trailers)
        };
        assert!(sender.take().is_empty());
        let mut left = MetadataMap::new();
        left.insert("checksum", "7".parse().unwrap());
        stream.set(left);
        assert_eq!(sender.take().get("checksum").unwrap(), "7");
        assert!(sender.take().is_empty());
    }
}
