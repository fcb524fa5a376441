//! tonic's `Streaming` over encoded messages that no peer of ours sends: those of a mock, and of
//! servers that are called by another protocol.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::stream::BoxStream;
use http::StatusCode;
use http_body::{Body, Frame};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

use super::body::{Handoff, HandoffDecoder, Stage, success};

/// A part of a response stream that comes from elsewhere.
#[derive(Debug)]
pub enum StreamPart {
    /// A message's encoding.
    Message(Bytes),
    /// The trailing metadata of a stream that ends well. What follows is not read; a stream may
    /// also end without.
    Trailers(MetadataMap),
}

/// A stream of encoded messages as a response that arrives.
pub(crate) fn scripted_streaming<M: Message + Default + 'static>(
    parts: BoxStream<'static, Result<StreamPart, Status>>,
) -> Streaming<M> {
    let body = ScriptedBody { parts, handoff: Arc::default(), stage: Stage::Open };
    let decoder = HandoffDecoder { handoff: Arc::clone(&body.handoff), message: PhantomData };
    Streaming::new_response(decoder, body, StatusCode::OK, None, None)
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
