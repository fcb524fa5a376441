//! A client's connection, its transport's type erased, and the calls and replies that pass it.
//!
//! A connection that speaks another protocol takes whole calls, encoded, and gives their replies.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Status};

use super::CallDeadline;
use crate::call::metadata::MetadataNames;
use crate::call::options::MessageLimits;
use crate::connect::{ConnectionInfo, Fallback};
use crate::payload::encode::Encode;
use crate::stream::{Inflated, Receiving, SessionIo, StreamPart, inflated};
use crate::transport::received::ReceivedMessage;
use crate::transport::{Addresses, CloseReason};
use crate::wire::hello::Hello;
use crate::wire::outcome::Outcome;
use crate::{BufferSource, Explain, Keepalive, Limits, Method, Negotiated, NotExecuted, Readiness};

/// The parts that a session starts with.
#[derive(Debug)]
pub struct ClientSetup {
    /// Limits of this side.
    pub limits: Limits,
    /// Keepalive, which finds a silent server.
    pub keepalive: Keepalive,
    /// Maximum time for which the server may take nothing of the bytes that wait for it.
    pub progress_timeout: Option<Duration>,
    /// Agreement on compressed messages.
    pub compression: Negotiated,
    /// Hello of the server.
    pub peer: Hello,
    /// The server's address as the user wrote it.
    pub server: Arc<str>,
    /// The connection's two ends.
    pub addresses: Addresses,
    /// Why the connection did not move to an upgraded path.
    pub fallback: Option<Fallback>,
    /// True if the connection moved to an upgraded path.
    pub is_upgraded: bool,
}

/// A call to be started.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    /// The method.
    pub method: &'a Method,
    /// The request's metadata.
    pub metadata: &'a MetadataMap,
    /// Deadline of the call.
    pub deadline: Option<&'a CallDeadline>,
    /// Behavior while the channel has no connection.
    pub readiness: Readiness,
    /// Limits of its stub on its messages.
    pub limits: MessageLimits,
    /// The account of the call that its caller has asked for.
    pub explain: Option<&'a Explain>,
    /// The request's message; absent where the client's messages are a stream.
    pub message: Option<&'a dyn Encode>,
}

impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("method", &self.method.path())
            .field("metadata", &MetadataNames(self.metadata))
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Outgoing<'_> {
    /// Checks the request's message against the limit of the stub.
    pub(super) fn check_message(&self) -> Result<(), Status> {
        let Some(message) = self.message else { return Ok(()) };
        self.limits.requests().check_len_of(|| message.len())
    }
}

/// The client's end of one connection, whatever the protocol of its calls.
pub trait Connection: fmt::Debug + Send + Sync {
    /// Returns true if calls can be started: the connection has not ended, and the server has not
    /// said that it starts no more.
    fn is_open(&self) -> bool;

    /// Returns the reason for which the connection takes no more calls, once it has ended or is
    /// about to. Absent where it only was sent away or retired.
    fn closed(&self) -> Option<CloseReason>;

    /// Counts the calls that the server has answered so far. One that it refused before a handler
    /// saw it is not among them, and a stream counts with its first frame.
    fn answered_count(&self) -> u64;

    /// Returns a token that is set when the connection has ended.
    fn ended(&self) -> CancellationToken;

    /// Starts no more calls, and ends the connection with the last one in flight.
    fn retire(&self);

    /// Ends the connection; calls in flight end with `UNAVAILABLE`.
    fn close(&self);

    /// Returns the source of memory that the connection sends from, if it has any.
    fn buffers(&self) -> Option<Arc<dyn BufferSource>>;

    /// Describes the connection.
    fn info(&self) -> ConnectionInfo;
}

/// A connection that speaks another protocol than farcall's, and takes whole calls, encoded.
pub trait EncodedCalls: Connection {
    /// Makes a call, up to its first answer.
    ///
    /// # Errors
    ///
    /// Returns the status of the call: marked as not executed where the peer has surely not seen
    /// it, and as perhaps executed where the connection ended under it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the call.
    fn call(self: Arc<Self>, call: EncodedCall)
    -> BoxFuture<'static, Result<EncodedReply, Status>>;
}

/// A response frame, where the answer is one message.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The status code.
    pub code: u16,
    /// The block: metadata, trailers, the status's words and details.
    pub block: Bytes,
    /// The message; it aliases the memory that it was received into.
    pub message: ReceivedMessage,
    /// True if the message is compressed.
    pub is_deflated: bool,
    /// True if the server reports that no handler has seen the call.
    pub is_not_executed: bool,
}

impl Reply {
    /// The same answer with its message inflated, in the caller's task.
    pub(super) async fn inflated(
        mut self,
        io: &dyn SessionIo,
        receiving: Receiving,
    ) -> Result<Self, Status> {
        let message = std::mem::take(&mut self.message);
        // A client has no memory budget.
        let Inflated { message, .. } = inflated(io, message.into_bytes(), receiving).await?;
        Ok(Self { message: message.into(), is_deflated: false, ..self })
    }
}

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
    /// The caller's extensions for layers.
    pub extensions: Extensions,
    /// Deadline of the call. The channel enforces it; the peer must be told.
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
            // A stream can be read once. `is_repeatable` prevents the attempt that would send the
            // empty message left here.
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

    /// Returns true if its request is one message, which can be sent again.
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
        /// Trailing metadata.
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

/// The status of a call that the server refused before any handler had seen it.
pub(super) fn refused(code: u16, block: Bytes) -> Status {
    let status = match Outcome::decode(code, block) {
        Ok(Outcome { result: Err(status), .. }) => status,
        Ok(_) => Status::internal("the server refused a call with the status OK"),
        Err(error) => Status::internal(format!("the response's block does not decode: {error}")),
    };
    NotExecuted::mark(status)
}
