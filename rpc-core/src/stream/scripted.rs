//! tonic's `Streaming` over encoded messages that no peer sends: those of a mock.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::BoxStream;
use http::StatusCode;
use http_body::{Body, Frame};
use prost::Message;
use tonic::{Status, Streaming};

use super::body::{EMPTY_MESSAGE, Handoff, HandoffDecoder, Stage, success};

/// A stream of encoded messages as a response that arrives.
pub(crate) fn scripted_streaming<M: Message + Default + 'static>(
    messages: BoxStream<'static, Result<Bytes, Status>>,
) -> Streaming<M> {
    let body = ScriptedBody { messages, handoff: Handoff::default(), stage: Stage::Open };
    let decoder = HandoffDecoder { handoff: Arc::clone(&body.handoff), message: PhantomData };
    Streaming::new_response(decoder, body, StatusCode::OK, None, None)
}

struct ScriptedBody {
    messages: BoxStream<'static, Result<Bytes, Status>>,
    handoff: Handoff,
    stage: Stage,
}

impl ScriptedBody {
    /// Leaves a message, or a failure, for the decoder, and calls it.
    fn leave(&self, message: Result<Bytes, Status>) -> Frame<Bytes> {
        *self.handoff.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
        Frame::data(Bytes::from_static(EMPTY_MESSAGE))
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let next = match self.stage {
            Stage::Open => ready!(self.messages.as_mut().poll_next(cx)),
            Stage::Failed => None,
            Stage::Over => return Poll::Ready(None),
        };
        let frame = match next {
            Some(Ok(message)) => self.leave(Ok(message)),
            Some(Err(status)) => {
                self.stage = Stage::Failed;
                self.leave(Err(status))
            }
            None => {
                self.stage = Stage::Over;
                Frame::trailers(success())
            }
        };
        Poll::Ready(Some(Ok(frame)))
    }
}
