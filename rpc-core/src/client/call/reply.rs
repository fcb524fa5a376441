//! The answer to a call, as layers see it, and how it is decoded for the stub. A response stream
//! begins with its headers.

use std::fmt;
use std::sync::LazyLock;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use prost::Message;
use tokio_util::task::AbortOnDropHandle;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Response, Status, Streaming};

use crate::call::metadata::{MetadataNames, merge};
use crate::call::options::MessageLimit;
use crate::call::refusal;
use crate::call::server_times;
use crate::client::Reply;
use crate::client::call::CallMeter;
use crate::client::call::begun::{BegunWithin, EndLog};
use crate::client::connection::refused;
use crate::client::established::{CallGuard, Started};
use crate::stream::{
    End, MessageBody, Next, OnComplete, StreamPart, response_streaming, scripted_streaming,
};
use crate::transport::received::ReceivedMessage;
use crate::wire::metadata;
use crate::wire::outcome::Outcome;
use crate::{Deadline, Explain, Trailers};

/// The parts of an answer without any.
static NO_PARTS: LazyLock<ReplyParts> = LazyLock::new(ReplyParts::default);

/// The answer to a call that has succeeded so far: the message of a unary answer, not decoded yet,
/// or the beginning of a stream, whose messages pass by.
pub struct ClientReply {
    /// Parts that come with the body. Most answers of one message have none, and an answer moves
    /// several times on its way to the stub.
    parts: Option<Box<ReplyParts>>,
    body: ReplyBody,
    /// Log of a message that does not decode. Absent if no line will be written.
    log: Option<EndLog>,
}

#[derive(Debug, Default)]
struct ReplyParts {
    metadata: MetadataMap,
    /// The metadata without trailers, where there are some and the two were joined.
    initial: Option<MetadataMap>,
    extensions: Extensions,
}

/// The body of the server's answer.
pub(in crate::client) enum ReplyBody {
    /// One message, in the memory that it was received into.
    Message(ReceivedMessage),
    /// A stream of messages.
    Stream(Box<MessageBody<StreamGuard>>),
    /// A stream of encoded messages that comes from elsewhere: a mock, or a server of gRPC.
    Scripted(BoxStream<'static, Result<StreamPart, Status>>),
}

impl ClientReply {
    pub(in crate::client) fn new(
        metadata: MetadataMap,
        extensions: Extensions,
        body: ReplyBody,
    ) -> Self {
        let parts = ReplyParts { metadata, initial: None, extensions };
        Self { parts: Some(Box::new(parts)), body, log: None }
    }

    /// The answer of a caller that makes its calls elsewhere, where the answer is one message.
    pub(in crate::client) fn with_message(
        initial: MetadataMap,
        trailers: MetadataMap,
        message: Bytes,
    ) -> Self {
        Self::with_received(initial, trailers, message.into())
    }

    fn with_received(
        initial: MetadataMap,
        trailers: MetadataMap,
        message: ReceivedMessage,
    ) -> Self {
        let body = ReplyBody::Message(message);
        if trailers.is_empty() {
            return Self::new(initial, Extensions::new(), body);
        }
        let mut extensions = Extensions::new();
        extensions.insert(Trailers(trailers.clone()));
        let metadata = merge(initial.clone(), trailers);
        let parts = ReplyParts { metadata, initial: Some(initial), extensions };
        Self { parts: Some(Box::new(parts)), body, log: None }
    }

    /// The answer of a caller that makes its calls elsewhere, where the answer is a stream.
    pub(in crate::client) fn with_stream(
        initial: MetadataMap,
        parts: impl Stream<Item = Result<StreamPart, Status>> + Send + 'static,
    ) -> Self {
        Self::new(initial, Extensions::new(), ReplyBody::Scripted(parts.boxed()))
    }

    /// An answer that is one message, or the status that came instead.
    #[inline(always)]
    pub(in crate::client) fn from_message(
        reply: Reply,
        limit: MessageLimit,
        log: Option<EndLog>,
    ) -> Result<Self, Status> {
        let Reply { code, block, message, .. } = reply;
        // Most replies have no metadata: no map is made for them, and nothing is allocated.
        if code == 0 && block.is_empty() {
            limit.check(message.len())?;
            return Ok(Self { parts: None, body: ReplyBody::Message(message), log });
        }
        let outcome = Outcome::decode(code, block);
        let Outcome { metadata, result } = outcome.map_err(|error| undecodable("block", &error))?;
        // Before the length: a status comes without a message, and says more than a limit.
        let trailers = result?;
        limit.check(message.len())?;
        Ok(Self { log, ..Self::with_received(metadata, trailers, message) })
    }

    /// An answer that is a stream.
    pub(in crate::client) fn from_stream(
        metadata: MetadataMap,
        stream: MessageBody<StreamGuard>,
    ) -> Self {
        Self::new(metadata, Extensions::new(), ReplyBody::Stream(Box::new(stream)))
    }

    /// Counts the whole call with `meter`: it is over, or ends with the stream.
    pub(in crate::client) fn count_whole(&mut self, mut meter: CallMeter) {
        match &mut self.body {
            ReplyBody::Message(_) => meter.finish(&Ok::<_, Status>(())),
            ReplyBody::Stream(body) => {
                if let Some(guard) = &mut body.end {
                    guard.count_whole(meter);
                }
            }
            ReplyBody::Scripted(parts) if meter.is_on() => {
                // Only where metrics are on: the stream gets a second box.
                let inner = std::mem::replace(parts, stream::empty().boxed());
                *parts = counted(inner, meter).boxed();
            }
            ReplyBody::Scripted(_) => {}
        }
    }

    /// The response's metadata; trailing metadata is among it unless the response is a stream.
    #[must_use]
    pub fn metadata(&self) -> &MetadataMap {
        &self.parts().metadata
    }

    /// The response's metadata, to be changed before the caller sees it.
    pub fn metadata_mut(&mut self) -> &mut MetadataMap {
        &mut self.parts_mut().metadata
    }

    /// Returns the extensions of the caller's response, [`crate::Trailers`] among them.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.parts().extensions
    }

    /// Returns the extensions of the caller's response.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.parts_mut().extensions
    }

    /// Takes the times that a server tells out of the metadata and the trailers.
    pub(in crate::client) fn take_server_times(&mut self, explain: &Explain) {
        let Some(parts) = self.parts.as_deref_mut() else { return };
        explain.take_server_times(&mut parts.metadata);
        if let Some(Trailers(trailers)) = parts.extensions.get_mut::<Trailers>() {
            trailers.remove(server_times::KEY);
            if trailers.is_empty() {
                parts.extensions.remove::<Trailers>();
            }
        }
    }

    fn parts(&self) -> &ReplyParts {
        self.parts.as_deref().unwrap_or(&NO_PARTS)
    }

    fn parts_mut(&mut self) -> &mut ReplyParts {
        self.parts.get_or_insert_default()
    }

    /// The one message as it arrived; `None` when the response is a stream.
    #[must_use]
    pub fn message(&self) -> Option<&ReceivedMessage> {
        match &self.body {
            ReplyBody::Message(message) => Some(message),
            ReplyBody::Stream(_) | ReplyBody::Scripted(_) => None,
        }
    }

    /// The response of a call with one response.
    pub(super) fn into_message<M: Message + Default + 'static>(
        self,
    ) -> Result<Response<M>, Status> {
        let ReplyBody::Message(message) = self.body else { return Err(mismatch("a stream")) };
        match message.decode() {
            Ok(message) => Ok(response(self.parts, message)),
            Err(error) => {
                let status = refusal::undecodable("response", &error);
                // The channel has counted this call as a success, and does not see it any more.
                self.log.inspect(|log| log.log_failure(&status));
                Err(status)
            }
        }
    }

    /// The response of a call with one response: its metadata is what came before the message, and
    /// the trailers are beside the message.
    pub(super) fn into_message_and_trailers<M: Message + Default + 'static>(
        mut self,
    ) -> Result<Response<(M, MetadataMap)>, Status> {
        let trailers = self.split_trailers();
        Ok(self.into_message()?.map(|message| (message, trailers)))
    }

    /// Takes the trailers out, of the extensions and of the metadata.
    fn split_trailers(&mut self) -> MetadataMap {
        let Some(parts) = self.parts.as_deref_mut() else { return MetadataMap::new() };
        // Unary replies of tonic have both in one map. Callers that ask for trailers get them
        // apart.
        if let Some(initial) = parts.initial.take() {
            parts.metadata = initial;
        }
        parts.extensions.remove().map_or_else(MetadataMap::new, |Trailers(trailers)| trailers)
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
        Ok(response(self.parts, stream))
    }

    /// The response of a call of any kind as a stream: one message is a stream of it. The metadata
    /// is what came before the messages, and the trailers end the stream.
    pub(super) fn into_any_stream<M>(mut self) -> Response<Streaming<M>>
    where
        M: Message + Default + 'static,
    {
        let trailers = self.split_trailers();
        let stream = match self.body {
            ReplyBody::Stream(body) => response_streaming(*body),
            ReplyBody::Scripted(parts) => scripted_streaming(parts),
            ReplyBody::Message(message) => {
                let message = message.into_bytes();
                let parts = [StreamPart::Message(message), StreamPart::Trailers(trailers)];
                scripted_streaming(stream::iter(parts).map(Ok).boxed())
            }
        };
        response(self.parts, stream)
    }
}

/// The same stream, with which what `meter` counts ends.
pub(in crate::client) fn counted(
    parts: BoxStream<'static, Result<StreamPart, Status>>,
    mut meter: CallMeter,
) -> impl Stream<Item = Result<StreamPart, Status>> + Send + 'static {
    parts.inspect(move |part| match part {
        Ok(StreamPart::Message(message)) => meter.receive(message.len()),
        Ok(StreamPart::Trailers(_)) => meter.set_code(Code::Ok),
        Err(status) => meter.set_code(status.code()),
    })
}

impl fmt::Debug for ClientReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientReply")
            .field("metadata", &MetadataNames(self.metadata()))
            .field("message_len", &self.message().map(ReceivedMessage::len))
            .finish_non_exhaustive()
    }
}

/// The owners that a response stream keeps alive: the call, the task that sends its requests, and
/// the connection manager, whose last reference closes the connection. Dropped in this order.
pub(in crate::client) struct StreamGuard {
    guard: CallGuard,
    _upload: Option<AbortOnDropHandle<()>>,
    call: BegunWithin,
    /// The metrics of the whole call, which a level above has begun.
    whole: Option<CallMeter>,
}

impl StreamGuard {
    /// Counts the whole call until it ends with the stream.
    fn count_whole(&mut self, meter: CallMeter) {
        self.whole = Some(meter);
    }

    fn set_code(&mut self, code: Code) {
        self.call.meter_mut().set_code(code);
        // The attempt and the whole call end with the same code.
        if let Some(whole) = &mut self.whole {
            whole.set_code(code);
        }
    }
}

impl OnComplete for StreamGuard {
    fn complete(&mut self) {
        self.guard.complete();
        self.set_code(Code::Ok);
    }

    fn fail(&mut self, status: &Status) {
        self.set_code(status.code());
        self.call.log_failure(status);
    }

    fn over_time(&self) -> Status {
        self.call.over_time()
    }
}

/// The response with a body, as the stub is given it.
fn response<T>(parts: Option<Box<ReplyParts>>, body: T) -> Response<T> {
    match parts {
        None => Response::new(body),
        Some(parts) => Response::from_parts(parts.metadata, body, parts.extensions),
    }
}

/// The status of a call to a method that is described as of another kind, and of one whose layers
/// mix up the answers.
fn mismatch(what: &str) -> Status {
    Status::internal(format!(
        "the response is {what}, which the stub's method does not return: generate the stub from \
         the server's .proto, and look at the layers"
    ))
}

/// The status of an answer of which a part does not decode.
fn undecodable(what: &str, error: &dyn fmt::Display) -> Status {
    Status::internal(format!("the response's {what} does not decode: {error}"))
}

/// Waits for the headers of a response stream.
pub(in crate::client) async fn headers(started: &mut Started) -> Result<MetadataMap, Status> {
    let block = match started.first().await {
        Next::Headers(block) => block,
        Next::Failed(status) => return Err(status),
        Next::End(End::Outcome { code, block, is_not_executed }) => {
            // The server has ended the call: dropping the guard must not cancel it.
            started.guard.complete();
            if is_not_executed {
                return Err(refused(code, block));
            }
            let outcome = Outcome::decode(code, block).map_err(|error| {
                Status::internal(format!("the response's block does not decode: {error}"))
            })?;
            outcome.result?;
            // Only a failed call may end without headers: a stream without messages has them, too.
            return Err(Status::internal("the server ended a stream before it began"));
        }
        Next::Messages(..) | Next::Deflated(..) | Next::End(End::HalfClose) => {
            // The caller drops the guard with this error, which cancels the call: none of its later
            // frames is kept.
            return Err(Status::internal("the server sent messages before its headers"));
        }
    };
    metadata::decode(block).map_err(|error| {
        Status::internal(format!("the response's metadata does not decode: {error}"))
    })
}

/// The response stream behind its headers, which keeps the call's channel.
pub(in crate::client) fn download(
    started: Started,
    upload: Option<AbortOnDropHandle<()>>,
    call: BegunWithin,
) -> Result<MessageBody<StreamGuard>, Status> {
    let io = started.io();
    let Started { guard, responses, .. } = started;
    let Some(recv_stream) = responses else {
        // The guard is dropped here, which cancels the call on the server.
        return Err(Status::internal("the answer is one message"));
    };
    // Boxed: a stream without a deadline has no room for it.
    let timer = call.deadline().map(|Deadline(at)| Box::pin(tokio::time::sleep_until(at)));
    let (id, receiving) = (guard.id(), call.receiving());
    let stream_guard = StreamGuard { guard, _upload: upload, call, whole: None };
    Ok(MessageBody::new(recv_stream, io, id, receiving, timer, Some(stream_guard)))
}
