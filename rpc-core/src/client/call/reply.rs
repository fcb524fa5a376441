//! The answer to a call, as layers see it, and how it is decoded for the stub.

use std::fmt;

use bytes::Bytes;
use futures::stream::BoxStream;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Response, Status, Streaming};

use crate::Trailers;
use crate::call::message_limits::MessageLimit;
use crate::client::Reply;
use crate::client::begun::EndLog;
use crate::client::download::StreamGuard;
use crate::stream::{MessageBody, response_streaming, scripted_streaming};
use crate::wire::outcome::Outcome;

/// The answer to a call that has succeeded so far: the message of a unary answer, not decoded yet,
/// or the beginning of a stream, whose messages pass by.
pub struct ClientReply {
    metadata: MetadataMap,
    extensions: Extensions,
    body: ReplyBody,
    /// Where a message that does not decode is logged; absent where no line will be written.
    log: Option<EndLog>,
}

/// What the server sends.
pub(in crate::client) enum ReplyBody {
    /// One message, in the memory that it was received into.
    Message(Bytes),
    /// A stream of messages.
    Stream(Box<MessageBody<StreamGuard>>),
    /// A stream of encoded messages that a mock makes.
    Scripted(BoxStream<'static, Result<Bytes, Status>>),
}

impl ClientReply {
    pub(in crate::client) fn new(
        metadata: MetadataMap,
        extensions: Extensions,
        body: ReplyBody,
    ) -> Self {
        Self { metadata, extensions, body, log: None }
    }

    /// An answer that is one message, or the status that came instead.
    pub(in crate::client) fn of_message(
        reply: Reply,
        limit: MessageLimit,
        log: Option<EndLog>,
    ) -> Result<Self, Status> {
        let Reply { code, block, message, .. } = reply;
        let (mut metadata, mut extensions) = (MetadataMap::new(), Extensions::new());
        if code != 0 || !block.is_empty() {
            let outcome = Outcome::decode(code, block);
            let outcome = outcome.map_err(|error| undecodable("block", &error))?;
            let trailers = outcome.result?;
            metadata = outcome.metadata;
            if !trailers.is_empty() {
                metadata = merge(metadata, trailers.clone());
                extensions.insert(Trailers(trailers));
            }
        }
        limit.check(message.len())?;
        Ok(Self { metadata, extensions, body: ReplyBody::Message(message), log })
    }

    /// An answer that is a stream.
    pub(in crate::client) fn of_stream(
        metadata: MetadataMap,
        stream: MessageBody<StreamGuard>,
    ) -> Self {
        Self::new(metadata, Extensions::new(), ReplyBody::Stream(Box::new(stream)))
    }

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
            ReplyBody::Stream(_) | ReplyBody::Scripted(_) => None,
        }
    }

    /// The response of a call with one response.
    pub(super) fn into_message<M: Message + Default>(self) -> Result<Response<M>, Status> {
        let ReplyBody::Message(message) = self.body else { return Err(mismatch("a stream")) };
        match M::decode(message) {
            Ok(message) => Ok(Response::from_parts(self.metadata, message, self.extensions)),
            Err(error) => {
                let status = undecodable("message", &error);
                self.log.inspect(|log| log.log_failure(&status));
                Err(status)
            }
        }
    }

    /// The response of a call with a stream of responses.
    pub(super) fn into_stream<M>(self) -> Result<Response<Streaming<M>>, Status>
    where
        M: Message + Default + 'static,
    {
        let stream = match self.body {
            ReplyBody::Stream(body) => response_streaming(*body),
            ReplyBody::Scripted(messages) => scripted_streaming(messages),
            ReplyBody::Message(_) => return Err(mismatch("one message")),
        };
        Ok(Response::from_parts(self.metadata, stream, self.extensions))
    }
}

/// The status of a call to a method that is described as of another kind, and of one whose layers
/// mix up the answers.
fn mismatch(what: &str) -> Status {
    Status::internal(format!("the answer is {what}, which belongs to another kind of call"))
}

/// The status of an answer of which a part does not decode.
fn undecodable(what: &str, error: &dyn fmt::Display) -> Status {
    Status::internal(format!("the response's {what} does not decode: {error}"))
}

/// Joins initial and trailing metadata as tonic's client does for a unary call.
fn merge(initial: MetadataMap, trailing: MetadataMap) -> MetadataMap {
    let mut headers = initial.into_headers();
    headers.extend(trailing.into_headers());
    MetadataMap::from_headers(headers)
}

impl fmt::Debug for ClientReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientReply")
            .field("metadata", &self.metadata)
            .field("message_len", &self.message().map(Bytes::len))
            .finish_non_exhaustive()
    }
}
