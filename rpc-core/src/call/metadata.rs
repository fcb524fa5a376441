//! Trailing metadata of responses, and metadata as it is shown.

use std::sync::Arc;
use std::{fmt, mem};

use futures::{Stream, stream};
use parking_lot::Mutex;
use tonic::metadata::{KeyRef, MetadataMap};
use tonic::{Status, Streaming};

/// Trailing metadata of a successful unary call, which tonic's `Response` has no field for.
///
/// A handler inserts it into `response.extensions_mut()` to send trailing metadata with a success;
/// a client finds it in `response.extensions()`, and, as with tonic, merged into
/// `response.metadata()`.
#[derive(Clone, Default)]
pub struct Trailers(pub MetadataMap);

impl fmt::Debug for Trailers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Trailers").field(&MetadataNames(&self.0)).finish()
    }
}

/// The trailing metadata of a response stream, to be set before the stream ends.
///
/// A handler puts one into `response.extensions_mut()` and keeps a clone for its stream. It is for
/// streams that pass on what another server sends; a handler that knows its trailers when it
/// returns inserts [`crate::Trailers`].
#[derive(Clone, Default)]
pub struct LateTrailers(Arc<Mutex<MetadataMap>>);

impl LateTrailers {
    /// Leaves the trailers. They are sent if the stream ends well after that.
    pub fn set(&self, trailers: MetadataMap) {
        *self.0.lock() = trailers;
    }

    /// Returns the messages of another server's response, whose trailers are set at their end.
    pub fn follow<M: Send + 'static>(
        self,
        messages: Streaming<M>,
    ) -> impl Stream<Item = Result<M, Status>> + Send + 'static {
        stream::unfold((messages, self), |(mut messages, trailers)| async {
            // tonic yields trailers only after the last message.
            let next = messages.message().await.transpose();
            if next.is_none()
                && let Ok(Some(last)) = messages.trailers().await
            {
                trailers.set(last);
            }
            next.map(|next| (next, (messages, trailers)))
        })
    }

    /// Takes what was left; empty when nothing was.
    #[must_use]
    pub fn take(&self) -> MetadataMap {
        std::mem::take(&mut *self.0.lock())
    }
}

impl fmt::Debug for LateTrailers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LateTrailers").finish_non_exhaustive()
    }
}

/// Shows the names of metadata.
pub(crate) struct MetadataNames<'a>(pub(crate) &'a MetadataMap);

impl fmt::Debug for MetadataNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.keys().map(|key| match key {
            KeyRef::Ascii(key) => key.as_str(),
            KeyRef::Binary(key) => key.as_str(),
        });
        f.debug_list().entries(names).finish()
    }
}

/// Joins two pieces of metadata; entries of the second take the place of those with the same key.
pub(crate) fn merge(first: MetadataMap, second: MetadataMap) -> MetadataMap {
    let mut headers = first.into_headers();
    headers.extend(second.into_headers());
    MetadataMap::from_headers(headers)
}

/// Drops metadata. Most calls have none, and to find out that an empty map has nothing to free
/// takes 50 instructions.
#[inline]
pub(crate) fn discard(metadata: MetadataMap) {
    // A map without capacity owns no memory: its parts are allocated together.
    if metadata.capacity() == 0 {
        mem::forget(metadata);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trailers;

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

    #[test]
    fn names_are_shown_and_no_value() {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", "Bearer abc".parse().unwrap());
        metadata.insert_bin("trace-bin", tonic::metadata::MetadataValue::from_bytes(b"secret"));
        let shown = format!("{:?}", Trailers(metadata));
        assert_eq!(shown, r#"Trailers(["authorization", "trace-bin"])"#);
    }
}
