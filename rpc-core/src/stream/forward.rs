//! Forwarding a user's stream into frames, within the receiver's window; small messages share one.

use std::pin::Pin;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use tonic::Status;

use super::{SendStream, StreamWriter};
use crate::call::options::{MessageLimit, MessageLimits};
use crate::call::refusal;
use crate::compression::{Deflated, is_due};
use crate::payload::encode::{Encode, Split};
use crate::payload::tail_field::{Detach, Detacher};
use crate::wire::{FrameKind, MESSAGE_LEN_LEN};

/// One direction of a call: names for error messages, and the method's tail-field accessor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Direction {
    what: &'static str,
    whose: &'static str,
    /// Limit of the stub or the service.
    limit: MessageLimit,
    detacher: Option<Detacher>,
    /// From which length on messages are compressed; absent where the peer accepts none.
    compress_from: Option<u32>,
}

impl Direction {
    /// From a client.
    pub(crate) fn requests(detach: Detach, limits: MessageLimits) -> Self {
        let (limit, detacher) = (limits.requests(), detach.request);
        Self { what: "request", whose: "server's", limit, detacher, compress_from: None }
    }

    /// From a server.
    pub(crate) fn responses(detach: Detach, limits: MessageLimits) -> Self {
        let (limit, detacher) = (limits.service_responses(), detach.response);
        Self { what: "response", whose: "client's", limit, detacher, compress_from: None }
    }

    /// The same, with messages compressed from that length on.
    pub(crate) fn compressed_from(mut self, from: Option<u32>) -> Self {
        self.compress_from = from;
        self
    }
}

/// Messages that share a frame.
#[derive(Debug)]
struct Batch<M> {
    messages: Vec<Split<M>>,
    len: usize,
    /// The frame is filled up to this length; a longer message has a frame of its own.
    len_max: usize,
}

impl<M: Message + 'static> Batch<M> {
    pub(super) fn new(len_max: usize) -> Self {
        Self { messages: Vec::new(), len: 0, len_max }
    }

    /// Adds a message, however long.
    pub(super) fn push(&mut self, message: Split<M>) {
        self.len += MESSAGE_LEN_LEN + message.len();
        self.messages.push(message);
    }

    /// Returns true if a message of `len` bytes may share the frame.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.messages.is_empty() || self.len + MESSAGE_LEN_LEN + len <= self.len_max
    }

    pub(super) fn clear(&mut self) {
        self.messages.clear();
        self.len = 0;
    }
}

impl<M: Message> Encode for Batch<M> {
    fn len(&self) -> usize {
        self.len
    }

    fn tail(&self) -> Option<&Bytes> {
        // What is long enough to have a tail is alone.
        self.messages.last().and_then(Encode::tail)
    }

    fn encode_head(&self, mut out: &mut [u8]) {
        for message in &self.messages {
            let len = message.len();
            let head_len = len - message.tail().map_or(0, Bytes::len);
            let (prefix, rest) = out.split_at_mut(MESSAGE_LEN_LEN);
            // Messages are checked against the peer's limit, and against 4 GiB, when sent.
            prefix.copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
            let (body, rest) = rest.split_at_mut(head_len);
            message.encode_head(body);
            out = rest;
        }
    }
}

/// A message alone in its frame, behind its length.
#[derive(Debug)]
struct Framed<'a>(pub(super) &'a dyn Encode);

impl Encode for Framed<'_> {
    fn len(&self) -> usize {
        MESSAGE_LEN_LEN + self.0.len()
    }

    fn tail(&self) -> Option<&Bytes> {
        self.0.tail()
    }

    fn encode_head(&self, out: &mut [u8]) {
        let (prefix, rest) = out.split_at_mut(MESSAGE_LEN_LEN);
        // It is shorter than the message was before, which was checked against 4 GiB.
        prefix.copy_from_slice(&u32::try_from(self.0.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.0.encode_head(rest);
    }
}

/// Sends the messages of `stream` until it ends. Messages that are ready together share a frame.
///
/// # Errors
///
/// The stream's own error, a message over the peer's limit, or the end of the connection. What
/// came before it has been sent.
pub(crate) async fn forward<M, S>(
    mut stream: Pin<&mut S>,
    window: &SendStream,
    writer: &mut StreamWriter,
    Direction { what, whose, limit, detacher, compress_from }: Direction,
) -> Result<(), Status>
where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>>,
{
    let split = |message: M| {
        refusal::check_nesting(what, &message, detacher)?;
        Ok(Split::new(message, detacher))
    };
    let mut batch = Batch::new(writer.batch_len_max());
    // A message that did not fit the last frame.
    let mut carried: Option<Result<Split<M>, Status>> = None;
    loop {
        let item = match carried.take() {
            Some(item) => Some(item),
            None => stream.next().await.map(|item| item.and_then(split)),
        };
        let Some(message) = item.transpose()? else { return Ok(()) };
        let len = message.len();
        limit.check(len)?;
        refusal::check_stream_message(what, len as u64, whose, writer.peer_limits())?;
        if is_due(compress_from, || len)
            && let Some(deflated) = Box::pin(Deflated::of(&message)).await
        {
            // The batch is empty here, so that this frame overtakes no message.
            window.send(deflated.len()).await;
            let framed = Framed(&deflated);
            writer.send_deflated(&framed).await?;
            continue;
        }
        window.send(len).await;
        batch.push(message);
        let mut is_ended = false;
        // What is ready right now, as far as frame and window reach.
        while let Some(item) = stream.next().now_or_never() {
            let Some(item) = item else {
                is_ended = true;
                break;
            };
            match item.and_then(split) {
                Ok(message) if fits(&batch, &message, window, writer, (limit, compress_from)) => {
                    batch.push(message);
                }
                // An error waits as well: the messages before it are sent first.
                other => {
                    carried = Some(other);
                    break;
                }
            }
        }
        writer.send(FrameKind::Messages, &[], Some(&batch)).await?;
        batch.clear();
        if is_ended {
            return Ok(());
        }
    }
}

/// Returns true if a message may share the frame; the window has then counted it. A message that
/// the peer does not accept may not: it ends the stream in its turn, after the frame has been sent.
/// Nor may a compressed one.
fn fits<M: Message + 'static>(
    batch: &Batch<M>,
    message: &Split<M>,
    window: &SendStream,
    writer: &StreamWriter,
    (limit, compress_from): (MessageLimit, Option<u32>),
) -> bool {
    let len = message.len();
    let is_taken = limit.allows(len) && len as u64 <= writer.peer_limits().max_message_len;
    // `try_send` comes last, since it counts the message: one that is refused after that would be
    // counted again when it is sent.
    is_taken && !is_due(compress_from, || len) && batch.has_room(len) && window.try_send(len)
}
