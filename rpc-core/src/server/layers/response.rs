//! The outcome of a call that ended well, as a server's layers see it.

use std::fmt;

use tonic::metadata::MetadataMap;
use tonic::{Extensions, Response};

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

/// What of the response is still to be sent.
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

    /// Whether the response was a stream: then its metadata and messages are gone already, and
    /// only trailers can still be added.
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

    /// What the handler tells layers, [`Trailers`] among it.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Where [`Trailers`] are added, to a stream too.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}
