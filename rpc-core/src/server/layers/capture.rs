//! The answer of a handler under layers, on its way out through them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::Status;
use tonic::metadata::MetadataMap;

use super::ServerResponse;
use super::response::Body;

/// Where a handler's answer waits until the layers have seen it.
#[derive(Debug, Default)]
pub(in crate::server) struct Capture {
    /// That of the layers around these, if there are any. They may end the call while a stream is
    /// being sent, and then have to know how far it has come.
    outer: Option<Arc<Self>>,
    state: Mutex<Captured>,
}

#[derive(Debug, Default)]
struct Captured {
    /// What these layers add to the metadata of a response.
    metadata: MetadataMap,
    seq: u64,
    result: Option<Result<ServerResponse, Status>>,
}

impl Capture {
    /// Where the answer waits for layers that are inside of others: those of `outer`.
    pub(super) fn inside(outer: Option<Arc<Self>>) -> Self {
        Self { outer, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, Captured> {
        // Every change is a single assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the answer. A response that has not begun gets the metadata of these layers.
    pub(in crate::server) fn set(&self, mut result: Result<ServerResponse, Status>) {
        let mut state = self.state();
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
