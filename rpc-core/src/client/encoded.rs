//! Whole calls, encoded, and their replies: for connections that speak another protocol.

use std::fmt;
use std::mem;

use bytes::Bytes;
use futures::stream::BoxStream;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use super::CallDeadline;
use crate::Method;
use crate::call::metadata_names::MetadataNames;
use crate::stream::StreamPart;

/// The request of a call, encoded.
pub enum EncodedBody {
    /// One message.
    Message(Bytes),
    /// A stream of messages. One that ends with an error has broken off.
    Stream(BoxStream<'static, Result<Bytes, Status>>),
}

impl fmt::Debug for EncodedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => write!(f, "a message of {} bytes", message.len()),
            Self::Stream(_) => f.write_str("a stream of messages"),
        }
    }
}

/// A call of any kind with its request encoded.
pub struct EncodedCall {
    /// The method.
    pub method: Method,
    /// The request's metadata, without a timeout.
    pub metadata: MetadataMap,
    /// What the caller tells layers.
    pub extensions: Extensions,
    /// When the call ends at the latest. The channel sees to that; the peer is to be told.
    pub limit: Option<CallDeadline>,
    /// The request.
    pub body: EncodedBody,
}

impl fmt::Debug for EncodedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedCall")
            .field("method", &self.method.path())
            .field("metadata", &MetadataNames(&self.metadata))
            .field("limit", &self.limit)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl EncodedCall {
    /// The same call for one of several attempts. A stream is there for the first one alone.
    pub(super) fn attempt(&mut self) -> Self {
        let body = match &mut self.body {
            EncodedBody::Message(message) => EncodedBody::Message(message.clone()),
            EncodedBody::Stream(_) => {
                let nothing = EncodedBody::Message(Bytes::new());
                mem::replace(&mut self.body, nothing)
            }
        };
        let (metadata, extensions) = (self.metadata.clone(), self.extensions.clone());
        Self { method: self.method.clone(), metadata, extensions, limit: self.limit, body }
    }

    /// Returns the length of the request's one message; 0 where it is a stream.
    pub(super) fn message_len(&self) -> usize {
        match &self.body {
            EncodedBody::Message(message) => message.len(),
            EncodedBody::Stream(_) => 0,
        }
    }

    /// Whether its request is one message, which can be sent again.
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self.body, EncodedBody::Message(_))
    }
}

/// The reply to an encoded call.
pub enum EncodedReply {
    /// One message.
    Message {
        /// The metadata that came first.
        initial: MetadataMap,
        /// What came last.
        trailers: MetadataMap,
        /// The message's encoding.
        message: Bytes,
    },
    /// A stream of messages.
    Stream {
        /// The metadata that came first.
        initial: MetadataMap,
        /// The messages, and trailers at their end.
        parts: BoxStream<'static, Result<StreamPart, Status>>,
    },
}

impl fmt::Debug for EncodedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { message, .. } => write!(f, "a message of {} bytes", message.len()),
            Self::Stream { .. } => f.write_str("a stream of messages"),
        }
    }
}
