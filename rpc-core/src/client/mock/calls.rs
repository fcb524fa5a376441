//! The calls that a mock has received.

use bytes::Bytes;
use prost::{DecodeError, Message};
use tonic::metadata::MetadataMap;

use crate::{Deadline, Method};

/// A call that a client made through a [`super::MockChannel`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The method.
    pub method: Method,
    /// The request's metadata.
    pub metadata: MetadataMap,
    /// The deadline in the request's extensions, or the one that the call inherits.
    pub deadline: Option<Deadline>,
    /// The encoding of the one request; `None` when the requests are a stream, which the script
    /// reads.
    pub message: Option<Bytes>,
}

impl RecordedCall {
    /// The one request; the default message when the requests are a stream.
    ///
    /// # Errors
    ///
    /// When it is not an `M`.
    pub fn request<M: Message + Default>(&self) -> Result<M, DecodeError> {
        M::decode(self.message.clone().unwrap_or_default())
    }
}
