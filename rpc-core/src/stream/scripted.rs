//! tonic's `Streaming` over a stream of messages that never were bytes: what a test answers with.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::BoxStream;
use http::StatusCode;
use http_body::{Body, Frame};
use prost::Message;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic::{Status, Streaming};

use super::body::{EMPTY_MESSAGE, Stage, success};

/// Where the body leaves a message for the decoder, as for what arrives from a peer.
type Place<M> = Arc<Mutex<Option<Result<M, Status>>>>;

/// A stream as a response that arrives.
pub(crate) fn scripted_response<M: Message + 'static>(
    messages: BoxStream<'static, Result<M, Status>>,
) -> Streaming<M> {
    let body = ScriptedBody { messages, place: Place::default(), stage: Stage::Open };
    let decoder = ScriptedDecoder { place: Arc::clone(&body.place), message: PhantomData };
    Streaming::new_response(decoder, body, StatusCode::OK, None, None)
}

struct ScriptedBody<M> {
    messages: BoxStream<'static, Result<M, Status>>,
    place: Place<M>,
    stage: Stage,
}

impl<M: Message> Body for ScriptedBody<M> {
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
            Some(message) => {
                if message.is_err() {
                    self.stage = Stage::Failed;
                }
                *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
                Frame::data(Bytes::from_static(EMPTY_MESSAGE))
            }
            None => {
                self.stage = Stage::Over;
                Frame::trailers(success())
            }
        };
        Poll::Ready(Some(Ok(frame)))
    }
}

struct ScriptedDecoder<M> {
    place: Place<M>,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + 'static> Decoder for ScriptedDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take().transpose()
    }

    fn buffer_settings(&self) -> BufferSettings {
        // The buffer never holds more than one empty message.
        BufferSettings::new(EMPTY_MESSAGE.len(), EMPTY_MESSAGE.len())
    }
}
