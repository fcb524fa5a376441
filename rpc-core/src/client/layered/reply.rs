//! The answer to a call, as a client's layers see it.

use std::fmt;

use bytes::Bytes;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Response, Status, Streaming};

use crate::client::download::StreamGuard;
use crate::client::reply::undecodable;
use crate::stream::{MessageBody, response_streaming};

/// The answer to a call that has succeeded so far: the message of a unary answer, not decoded yet,
/// or the beginning of a stream, whose messages pass by.
pub struct ClientReply {
    pub(super) metadata: MetadataMap,
    pub(super) extensions: Extensions,
    pub(super) body: ReplyBody,
}

/// What the server sends.
pub(super) enum ReplyBody {
    /// One message, in the memory that it was received into.
    Message(Bytes),
    /// A stream of messages.
    Stream(Box<MessageBody<StreamGuard>>),
}

impl ClientReply {
    /// The response's metadata; trailing metadata is among it unless the response is a stream.
    #[must_use]
    pub fn metadata(&self) -> &MetadataMap {
        &self.metadata
    }

    /// The response's metadata, to be changed before the caller sees it.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.metadata
    }

    /// What the caller finds in its response's extensions, [`crate::Trailers`] among it.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// What the caller finds in its response's extensions.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// The encoding of the one message; `None` when the response is a stream.
    #[must_use]
    pub fn message(&self) -> Option<&Bytes> {
        match &self.body {
            ReplyBody::Message(message) => Some(message),
            ReplyBody::Stream(_) => None,
        }
    }

    /// The response of a call with one response.
    pub(super) fn into_message<M: Message + Default>(self) -> Result<Response<M>, Status> {
        let ReplyBody::Message(message) = self.body else { return Err(mismatch()) };
        let message = M::decode(message).map_err(|error| undecodable("message", &error))?;
        Ok(Response::from_parts(self.metadata, message, self.extensions))
    }

    /// The response of a call with a stream of responses.
    pub(super) fn into_stream<M>(self) -> Result<Response<Streaming<M>>, Status>
    where
        M: Message + Default + 'static,
    {
        let ReplyBody::Stream(body) = self.body else { return Err(mismatch()) };
        let stream = response_streaming(*body);
        Ok(Response::from_parts(self.metadata, stream, self.extensions))
    }
}

/// Only a layer that mixes up its calls' answers gets here.
fn mismatch() -> Status {
    Status::internal("a layer answered the call with the reply of another kind of call")
}

impl fmt::Debug for ClientReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientReply")
            .field("metadata", &self.metadata)
            .field("message_len", &self.message().map(Bytes::len))
            .finish_non_exhaustive()
    }
}
