//! A received stream as the HTTP body that tonic's `Streaming` reads.
//!
//! `Streaming` takes its bytes from a body and copies them into a buffer of its own, which would
//! cost every message a copy. So the body gives it the five bytes of an empty message instead, and
//! leaves the real one in a cell that it shares with the decoder: the message is decoded from the
//! memory it arrived in, and its `bytes` fields alias that. The messages of a frame are left
//! together, since polling a body costs more than decoding a small message.
//!
//! A `Streaming` may also have encoded messages that no peer of ours sends: those of a mock, and of
//! servers that are called by another protocol.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame};
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use tokio::time::Sleep;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

use super::io::{Inflated, Receiving, SessionIo, grant, inflated};
use super::{End, Next, RecvStream};
use crate::Deadline;
use crate::call::options::MessageLimit;
use crate::call::refusal;
use crate::calls::window::{Counts, Window};
use crate::limits::memory::MemoryCharge;
use crate::wire::messages::{message_lens, split_message};
use crate::wire::outcome::Outcome;

/// A message of no bytes, as gRPC frames it.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

/// The most messages that the decoder is called for at a time.
const CALLS_MAX: usize = 32;

/// Messages of no bytes for one poll.
const EMPTY_MESSAGES: &[u8] = &[0; CALLS_MAX * EMPTY_MESSAGE.len()];

/// The cell in which the body leaves messages for the decoder, or the status of a response that
/// fails on this side. In trailers that status would lose its source, which marks whether the call
/// may have been executed.
#[derive(Debug, Default)]
pub(super) struct Handoff {
    /// The received stream, to which messages of a frame count when the decoder takes them. Absent
    /// where nothing counts them.
    source: Option<Source>,
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Source {
    recv_stream: Arc<RecvStream>,
    io: Arc<dyn SessionIo>,
    call: u64,
}

/// The things that wait for the decoder.
#[derive(Debug, Default)]
struct Left {
    alone: Option<Result<Bytes, Status>>,
    /// Messages that share a frame, each behind its length.
    frame: Bytes,
    /// The messages of the frame that the decoder took, as far as the stream has not counted them.
    read: Counts,
    /// The counts of `read` that make a grant due.
    due: Window,
}

impl Left {
    /// Counts the messages of the frame for which the decoder is called next. One that is longer
    /// than the stub or the service allows fails the stream once those before it are decoded.
    fn calls(&self, limit: MessageLimit) -> Result<usize, Status> {
        let mut count = 0;
        // The lengths were looked through when the frame was accepted.
        for len in message_lens(&self.frame).take(CALLS_MAX).map_while(Result::ok) {
            match limit.check(len) {
                Ok(()) => count += 1,
                Err(status) if count == 0 => return Err(status),
                Err(_) => break,
            }
        }
        Ok(count)
    }
}

impl Handoff {
    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock()
    }

    /// Leaves a message or a failure, and returns the frame of the body that calls the decoder.
    /// `Streaming` calls it once more after a failure: nothing else is left then.
    pub(super) fn leave(&self, message: Result<Bytes, Status>) -> Frame<Bytes> {
        let mut left = self.left();
        if message.is_err() {
            left.frame = Bytes::new();
        }
        left.alone = Some(message);
        drop(left);
        Frame::data(Bytes::from_static(EMPTY_MESSAGE))
    }

    /// Takes the next message.
    fn take(&self) -> Option<Result<Bytes, Status>> {
        let mut left = self.left();
        if let Some(message) = left.alone.take() {
            return Some(message);
        }
        if left.frame.is_empty() {
            return None;
        }
        let message = split_message(&mut left.frame);
        left.read.add(message.len());
        let is_due = left.read.messages >= left.due.messages || left.read.bytes >= left.due.bytes;
        if is_due && let Some(Source { recv_stream, io, call }) = &self.source {
            let (granted, due) = recv_stream.consume(std::mem::take(&mut left.read));
            left.due = due;
            drop(left);
            if let Some(granted) = granted {
                grant(&**io, *call, granted);
            }
        }
        Some(Ok(message))
    }
}

/// The progress of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Open,
    /// The status is given, and trailers that end the stream are not.
    Failed,
    Over,
}

/// A client's cleanup after a response stream has ended or was dropped: drops everything that keeps
/// the call.
pub(crate) trait OnComplete: Send + 'static {
    /// The stream was read to its end, so there is nothing to cancel.
    fn complete(&mut self);

    /// Records that the stream ends with this status.
    fn fail(&mut self, _status: &Status) {}

    /// The status of a call that is over its time.
    fn over_time(&self) -> Status {
        refusal::deadline_exceeded()
    }
}

/// The messages of one direction of a call. Dropped, it drops what keeps the call.
pub(crate) struct MessageBody<E> {
    pub(crate) deadline: Option<Pin<Box<Sleep>>>,
    pub(crate) end: Option<E>,
    /// This side's limits on each message.
    receiving: Receiving,
    /// The message that is being inflated.
    inflating: Option<BoxFuture<'static, Result<Inflated, Status>>>,
    /// The memory of the message that was inflated last. It counts until the next one is asked for.
    inflated: MemoryCharge,
    pub(super) handoff: Arc<Handoff>,
    stage: Stage,
}

impl<E> MessageBody<E> {
    pub(crate) fn new(
        recv_stream: Arc<RecvStream>,
        io: Arc<dyn SessionIo>,
        call: u64,
        receiving: Receiving,
        deadline: Option<Pin<Box<Sleep>>>,
        end: Option<E>,
    ) -> Self {
        let source = Some(Source { recv_stream, io, call });
        Self {
            deadline,
            end,
            receiving,
            inflating: None,
            inflated: MemoryCharge::default(),
            handoff: Arc::new(Handoff { source, left: Mutex::default() }),
            stage: Stage::Open,
        }
    }
}

impl<E: OnComplete + Unpin> MessageBody<E> {
    fn end(&mut self, end: End) -> Option<Result<Frame<Bytes>, Status>> {
        self.stage = Stage::Over;
        let mut kept = self.end.take();
        if let Some(kept) = &mut kept {
            kept.complete();
        }
        match end {
            End::HalfClose => None,
            End::Outcome { code, block, .. } => {
                let trailers = trailers(code, block).or_else(|status| {
                    let status = self.by_this_side(status, kept.as_ref());
                    if let Some(kept) = &mut kept {
                        kept.fail(&status);
                    }
                    failure(&status)
                });
                Some(trailers.map(Frame::trailers))
            }
        }
    }

    /// Leaves a message, unless it is longer than the stub or the service allows.
    fn take(&mut self, message: Bytes) -> Option<Result<Frame<Bytes>, Status>> {
        match self.receiving.limit.check(message.len()) {
            Ok(()) => Some(Ok(self.handoff.leave(Ok(message)))),
            Err(status) => self.fail(status),
        }
    }

    /// Calls the decoder for messages of a frame, or fails the stream.
    fn call_decoder(
        &mut self,
        calls: Result<usize, Status>,
    ) -> Option<Result<Frame<Bytes>, Status>> {
        match calls {
            Ok(count) => {
                let empty = &EMPTY_MESSAGES[..count * EMPTY_MESSAGE.len()];
                Some(Ok(Frame::data(Bytes::from_static(empty))))
            }
            Err(status) => self.fail(status),
        }
    }

    /// Inflates a message in the reader's task: a connection's task has others to serve.
    fn inflate(&mut self, message: Bytes) {
        let Some(Source { io, .. }) = &self.handoff.source else { return };
        let (io, receiving) = (Arc::clone(io), self.receiving.clone());
        self.inflating = Some(Box::pin(async move { inflated(&*io, message, receiving).await }));
    }

    fn poll_inflating(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(inflating) = &mut self.inflating else { return Poll::Ready(None) };
        let result = ready!(inflating.as_mut().poll(cx));
        self.inflating = None;
        Poll::Ready(match result {
            Ok(Inflated { message, charge }) => {
                self.inflated = charge;
                self.take(message)
            }
            Err(status) => self.fail(status),
        })
    }

    /// The status with which the stream ends. A peer that keeps the deadline, too, may say so a
    /// moment before the timer of this side.
    fn by_this_side(&self, status: Status, end: Option<&E>) -> Status {
        let deadline = self.deadline.as_ref().map(|timer| Deadline(timer.deadline()));
        match (deadline, end) {
            (Some(deadline), Some(end)) if deadline.is_cause_of(&status) => end.over_time(),
            _ => status,
        }
    }

    fn fail(&mut self, status: Status) -> Option<Result<Frame<Bytes>, Status>> {
        self.stage = Stage::Over;
        let Some(mut kept) = self.end.take() else {
            // Requests have no trailers to end with. `Streaming` gives an error of the body twice.
            return Some(Err(status));
        };
        kept.fail(&status);
        drop(kept);
        self.stage = Stage::Failed;
        Some(Ok(self.handoff.leave(Err(status))))
    }
}

impl<E: OnComplete + Unpin> Body for MessageBody<E> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.stage {
            Stage::Open => {}
            Stage::Failed => {
                self.stage = Stage::Over;
                return Poll::Ready(Some(Ok(Frame::trailers(success()))));
            }
            Stage::Over => return Poll::Ready(None),
        }
        // Before the messages: a peer that always has one ready could hold the stream open past it.
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            let over = self.end.as_ref().map_or_else(refusal::deadline_exceeded, E::over_time);
            return Poll::Ready(self.fail(over));
        }
        if self.inflating.is_some() {
            return self.poll_inflating(cx);
        }
        let limit = self.receiving.limit;
        let read = {
            let mut left = self.handoff.left();
            if !left.frame.is_empty() {
                let calls = left.calls(limit);
                drop(left);
                return Poll::Ready(self.call_decoder(calls));
            }
            std::mem::take(&mut left.read)
        };
        let Some(Source { recv_stream, io, call }) = &self.handoff.source else {
            return Poll::Ready(None);
        };
        let next = ready!(recv_stream.poll_next(cx, read));
        // The grant is given once, so that it is sent before anything below can end the stream or
        // return early.
        if let Next::Deflated(_, Some(granted)) = &next {
            grant(&**io, *call, *granted);
        }
        Poll::Ready(match next {
            Next::Messages(frame, due) => {
                let calls = {
                    let mut left = self.handoff.left();
                    (left.frame, left.due) = (frame, due);
                    left.calls(limit)
                };
                self.call_decoder(calls)
            }
            Next::Deflated(message, _) => {
                self.inflated = MemoryCharge::default();
                self.inflate(message);
                return self.poll_inflating(cx);
            }
            Next::End(end) => self.end(end),
            Next::Failed(status) => self.fail(status),
            Next::Headers(_) => self.fail(Status::internal("the server sent its headers twice")),
        })
    }
}

/// Decodes the message that the body left, whatever `Streaming` has in its buffer.
struct HandoffDecoder<M> {
    pub(super) handoff: Arc<Handoff>,
    pub(super) message: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Decoder for HandoffDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        let Some(message) = self.handoff.take() else { return Ok(None) };
        let decoded = M::decode(message?);
        decoded.map(Some).map_err(|error| refusal::undecodable("stream", &error))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(EMPTY_MESSAGES.len(), EMPTY_MESSAGE.len())
    }
}

/// A request stream holds nothing that would have to be told of its end.
pub(crate) struct Nothing;

impl OnComplete for Nothing {
    fn complete(&mut self) {}
}

/// A part of a response stream that comes from elsewhere.
#[derive(Debug)]
pub enum StreamPart {
    /// A message's encoding.
    Message(Bytes),
    /// The trailing metadata of a stream that ends well. What follows is not read; a stream may
    /// also end without.
    Trailers(MetadataMap),
}

struct ScriptedBody {
    parts: BoxStream<'static, Result<StreamPart, Status>>,
    handoff: Arc<Handoff>,
    stage: Stage,
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = match self.stage {
            Stage::Open => ready!(self.parts.as_mut().poll_next(cx)),
            Stage::Failed => None,
            Stage::Over => return Poll::Ready(None),
        };
        let frame = match next {
            Some(Ok(StreamPart::Message(message))) => self.handoff.leave(Ok(message)),
            Some(Ok(StreamPart::Trailers(trailers))) => {
                self.stage = Stage::Over;
                let mut headers = trailers.into_headers();
                headers.extend(success());
                Frame::trailers(headers)
            }
            Some(Err(status)) => {
                self.stage = Stage::Failed;
                self.handoff.leave(Err(status))
            }
            None => {
                self.stage = Stage::Over;
                Frame::trailers(success())
            }
        };
        Poll::Ready(Some(Ok(frame)))
    }
}

/// The trailers of a stream that ended well, as gRPC has them, or the status of one that did not.
fn trailers(code: u16, block: Bytes) -> Result<HeaderMap, Status> {
    let outcome = Outcome::decode(code, block).map_err(|error| {
        Status::internal(format!("the response's block does not decode: {error}"))
    })?;
    let mut headers = outcome.result?.into_headers();
    headers.insert("grpc-status", http::HeaderValue::from_static("0"));
    Ok(headers)
}

/// The trailers of a stream that has nothing more to say.
pub(super) fn success() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("grpc-status", http::HeaderValue::from_static("0"));
    headers
}

/// The trailers of a stream that failed. `Streaming` gives the status in them once and ends, while
/// it would give an error of the body twice.
fn failure(status: &Status) -> Result<HeaderMap, Status> {
    let mut headers = HeaderMap::new();
    status.add_header(&mut headers)?;
    Ok(headers)
}

/// The client's messages, for a handler.
pub(crate) fn request_streaming<M: Message + Default + 'static>(
    recv_stream: Arc<RecvStream>,
    io: Arc<dyn SessionIo>,
    call: u64,
    receiving: Receiving,
) -> Streaming<M> {
    let body = MessageBody::<Nothing>::new(recv_stream, io, call, receiving, None, None);
    Streaming::new_request(decoder(&body), body, None, None)
}

/// The server's messages, for a caller.
pub(crate) fn response_streaming<M, E>(body: MessageBody<E>) -> Streaming<M>
where
    M: Message + Default + 'static,
    E: OnComplete + Unpin,
{
    Streaming::new_response(decoder(&body), body, StatusCode::OK, None, None)
}

fn decoder<M, E>(body: &MessageBody<E>) -> HandoffDecoder<M> {
    HandoffDecoder { handoff: Arc::clone(&body.handoff), message: PhantomData }
}

/// A stream of encoded messages as a response that arrives.
pub(crate) fn scripted_streaming<M: Message + Default + 'static>(
    parts: BoxStream<'static, Result<StreamPart, Status>>,
) -> Streaming<M> {
    let body = ScriptedBody { parts, handoff: Arc::default(), stage: Stage::Open };
    let decoder = HandoffDecoder { handoff: Arc::clone(&body.handoff), message: PhantomData };
    Streaming::new_response(decoder, body, StatusCode::OK, None, None)
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
