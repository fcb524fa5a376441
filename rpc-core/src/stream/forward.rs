//! Forwarding a user's stream into frames, within the receiver's window.

use std::pin::Pin;

use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use tonic::Status;

use super::batch::{Batch, Framed};
use super::{SendStream, StreamWriter};
use crate::Detach;
use crate::call::options::{MessageLimit, MessageLimits};
use crate::call::refusal;
use crate::compression::{Deflated, is_due};
use crate::payload::encode::{Encode, Split};
use crate::payload::tail_field::Detacher;
use crate::wire::FrameKind;

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
        let (limit, detacher) = (limits.of_requests(), detach.request);
        Self { what: "request", whose: "server's", limit, detacher, compress_from: None }
    }

    /// From a server.
    pub(crate) fn responses(detach: Detach, limits: MessageLimits) -> Self {
        let (limit, detacher) = (limits.of_service_responses(), detach.response);
        Self { what: "response", whose: "client's", limit, detacher, compress_from: None }
    }

    /// The same, with messages compressed from that length on.
    pub(crate) fn compressed_from(mut self, from: Option<u32>) -> Self {
        self.compress_from = from;
        self
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
