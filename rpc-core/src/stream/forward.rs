//! Forwarding a user's stream into frames, within the receiver's window.

use std::pin::Pin;

use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use tonic::Status;

use super::batch::Batch;
use super::{SendStream, StreamWriter};
use crate::MethodDescriptor;
use crate::call::message_limits::{MessageLimit, MessageLimits};
use crate::call::refusal;
use crate::payload::tail_field::Detacher;
use crate::wire::FrameKind;

/// One direction of a call: names for error messages, and the method's tail-field accessor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Direction {
    what: &'static str,
    whose: &'static str,
    /// What the stub or the service allows.
    limit: MessageLimit,
    detacher: Option<Detacher>,
}

impl Direction {
    /// From a client.
    pub(crate) fn requests(method: &MethodDescriptor, limits: MessageLimits) -> Self {
        let (limit, detacher) = (limits.of_requests(), method.detach.request);
        Self { what: "request", whose: "server's", limit, detacher }
    }

    /// From a server.
    pub(crate) fn responses(method: &MethodDescriptor, limits: MessageLimits) -> Self {
        let (limit, detacher) = (limits.of_service_responses(), method.detach.response);
        Self { what: "response", whose: "client's", limit, detacher }
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
    Direction { what, whose, limit, detacher }: Direction,
) -> Result<(), Status>
where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>>,
{
    let mut batch = Batch::new(writer.batch_len_max(), detacher);
    // A message that did not fit the last frame.
    let mut carried: Option<Result<M, Status>> = None;
    loop {
        let item = match carried.take() {
            Some(item) => Some(item),
            None => stream.next().await,
        };
        let Some(message) = item.transpose()? else { return Ok(()) };
        let len = message.encoded_len();
        limit.check(len)?;
        refusal::check_stream_message(what, len as u64, whose, writer.peer_limits())?;
        window.send(len).await;
        batch.push(message);
        let mut is_ended = false;
        // What is ready right now, as far as frame and window reach.
        while let Some(item) = stream.next().now_or_never() {
            let Some(item) = item else {
                is_ended = true;
                break;
            };
            match item {
                Ok(message) if fits(&batch, &message, window, writer, limit) => batch.push(message),
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

/// Whether a message may share the frame; then the window has counted it. One that the peer does
/// not take may not: it ends the stream when its turn comes, after the frame has been sent.
fn fits<M: Message + 'static>(
    batch: &Batch<M>,
    message: &M,
    window: &SendStream,
    writer: &StreamWriter,
    limit: MessageLimit,
) -> bool {
    let len = message.encoded_len();
    let is_taken = limit.allows(len) && len as u64 <= writer.peer_limits().max_message_len;
    is_taken && batch.has_room(len) && window.try_send(len)
}
