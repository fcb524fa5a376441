//! The outcome of a call that ended well, as a server's layers see it, and its way out through
//! them.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Response, Status};

use crate::Trailers;
use crate::call::metadata::MetadataNames;
use crate::payload::encode::Encode;

/// A call's outcome when its handler, and the stream that it may have returned, ended well.
pub struct ServerResponse {
    pub(in crate::server) metadata: MetadataMap,
    pub(in crate::server) extensions: Extensions,
    pub(in crate::server) body: Body,
    /// From which length on its service has the message compressed.
    pub(in crate::server) compress_from: Option<u32>,
}

/// The part of the response that is still to be sent.
#[derive(Debug)]
pub(in crate::server) enum Body {
    /// The message, which is encoded when it is sent.
    Message(Box<dyn Encode>),
    /// Nothing but the end: the messages have been sent.
    Streamed,
}

impl fmt::Debug for ServerResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerResponse")
            .field("metadata", &MetadataNames(&self.metadata))
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl ServerResponse {
    pub(in crate::server) fn message<M: Encode + 'static>(
        response: Response<M>,
        compress_from: Option<u32>,
    ) -> Self {
        let (metadata, message, extensions) = response.into_parts();
        Self { metadata, extensions, body: Body::Message(Box::new(message)), compress_from }
    }

    pub(in crate::server) fn streamed(trailers: MetadataMap) -> Self {
        let mut extensions = Extensions::new();
        if !trailers.is_empty() {
            extensions.insert(Trailers(trailers));
        }
        let (metadata, body) = (MetadataMap::new(), Body::Streamed);
        Self { metadata, extensions, body, compress_from: None }
    }

    /// Returns true if the response was a stream. Then its metadata and messages are sent already,
    /// and only trailers can still be added.
    #[must_use]
    pub fn is_streamed(&self) -> bool {
        matches!(self.body, Body::Streamed)
    }

    /// The response's metadata; empty for a stream.
    #[must_use]
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// The response's metadata, to be changed before it is sent. Without effect for a stream,
    /// whose metadata precedes its messages: see
    /// [`ServerRequest::response_metadata_mut`](super::ServerRequest::response_metadata_mut).
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// Returns the handler's extensions for layers, [`Trailers`] among them.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the extensions to which [`Trailers`] are added, for a stream, too.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// The place in which a handler's answer waits until the layers have seen it.
#[derive(Debug, Default)]
pub(in crate::server) struct Capture {
    /// Capture of the layers around these, if there are any. They may end the call while a stream
    /// is being sent, and must then know how many frames have gone.
    outer: Option<Arc<Self>>,
    state: Mutex<Captured>,
}

#[derive(Debug, Default)]
struct Captured {
    /// Metadata that these layers add to a response.
    metadata: MetadataMap,
    seq: u64,
    result: Option<Result<ServerResponse, Status>>,
}

impl Capture {
    /// Makes a capture for layers that are inside of others, which have `outer`.
    pub(super) fn inside(outer: Option<Arc<Self>>) -> Self {
        Self { outer, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, Captured> {
        self.state.lock()
    }

    /// Keeps the answer. A response that has not begun gets the metadata of these layers.
    pub(in crate::server) fn set(&self, mut result: Result<ServerResponse, Status>) {
        let mut state = self.state();
        // The headers of a stream are sent already, with these in them.
        if let Ok(ServerResponse { metadata, body: Body::Message(_), .. }) = &mut result {
            extend(metadata, &state.metadata);
        }
        state.result = Some(result);
    }

    /// Sets what these layers add to the metadata of a response.
    pub(super) fn set_metadata(&self, metadata: MetadataMap) {
        self.state().metadata = metadata;
    }

    /// Adds what these layers, and those around them, have for the headers of a stream that is
    /// about to begin.
    pub(in crate::server) fn extend_headers(&self, metadata: &mut MetadataMap) {
        extend(metadata, &self.state().metadata);
        if let Some(outer) = &self.outer {
            // The lock above is free again: no two captures are locked at once.
            outer.extend_headers(metadata);
        }
    }

    /// Records how many frames of the answer have been sent.
    pub(in crate::server) fn set_seq(&self, seq: u64) {
        self.state().seq = seq;
        if let Some(outer) = &self.outer {
            outer.set_seq(seq);
        }
    }

    pub(super) fn seq(&self) -> u64 {
        self.state().seq
    }

    pub(super) fn take(&self) -> Option<Result<ServerResponse, Status>> {
        self.state().result.take()
    }
}

/// Adds entries; they take the place of those with the same key.
fn extend(metadata: &mut MetadataMap, added: &MetadataMap) {
    if added.is_empty() {
        return;
    }
    let mut headers = std::mem::take(metadata).into_headers();
    headers.extend(added.clone().into_headers());
    *metadata = MetadataMap::from_headers(headers);
}
