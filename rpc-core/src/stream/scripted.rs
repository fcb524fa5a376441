//! tonic's `Streaming` over a stream of messages that are decoded already: those of a mock, and
//! those of a caller whose type is forgotten.

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
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

use super::body::{EMPTY_MESSAGE, Stage, success};

/// Where the body leaves a message for the decoder, as for what arrives from a peer.
type Handoff<M> = Arc<Mutex<Option<Result<M, Status>>>>;

/// A part of a stream of responses.
pub(crate) enum Scripted<M> {
    Message(M),
    /// The trailers of its success, which are its end. Without them it ends with none.
    Trailers(MetadataMap),
}

/// A stream as a response that arrives.
pub(crate) fn scripted_response<M: Message + 'static>(
    parts: BoxStream<'static, Result<Scripted<M>, Status>>,
) -> Streaming<M> {
    let body = ScriptedBody { parts, handoff: Handoff::default(), stage: Stage::Open };
    let decoder = ScriptedDecoder { handoff: Arc::clone(&body.handoff), message: PhantomData };
    Streaming::new_response(decoder, body, StatusCode::OK, None, None)
}

struct ScriptedBody<M> {
    parts: BoxStream<'static, Result<Scripted<M>, Status>>,
    handoff: Handoff<M>,
    stage: Stage,
}

impl<M> ScriptedBody<M> {
    /// Leaves a message, or a failure, for the decoder, and calls it.
    fn leave(&self, message: Result<M, Status>) -> Frame<Bytes> {
        *self.handoff.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
        Frame::data(Bytes::from_static(EMPTY_MESSAGE))
    }
}

impl<M: Message> Body for ScriptedBody<M> {
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
            Some(Ok(Scripted::Message(message))) => self.leave(Ok(message)),
            Some(Err(status)) => {
                self.stage = Stage::Failed;
                self.leave(Err(status))
            }
            Some(Ok(Scripted::Trailers(trailers))) => {
                self.stage = Stage::Over;
                let mut headers = trailers.into_headers();
                headers.insert("grpc-status", http::HeaderValue::from_static("0"));
                Frame::trailers(headers)
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
    handoff: Handoff<M>,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + 'static> Decoder for ScriptedDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        self.handoff.lock().unwrap_or_else(PoisonError::into_inner).take().transpose()
    }

    fn buffer_settings(&self) -> BufferSettings {
        // The buffer never holds more than one empty message.
        BufferSettings::new(EMPTY_MESSAGE.len(), EMPTY_MESSAGE.len())
    }
}
