//! The body of a request that is one message: its last frame says that it is the last.
//!
//! tonic's body of a stream learns its end behind its last message, so that each unary call would
//! end with an empty DATA frame. A server counts small DATA frames that are not the last of their
//! stream, and h2 ends a connection with too many of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};
use tonic::Status;

use super::call::IsAsked;

/// gRPC's prefix: a flag, and the length of the message.
const PREFIX_LEN: usize = 5;

/// A body of one message.
#[derive(Debug)]
pub(super) struct MessageBody {
    framed: Option<Bytes>,
    is_asked: IsAsked,
}

impl MessageBody {
    /// # Errors
    ///
    /// If the message is longer than gRPC's prefix can say.
    pub(super) fn new(message: &Bytes, is_asked: IsAsked) -> Result<Self, Status> {
        let len = u32::try_from(message.len());
        let len = len.map_err(|_| Status::resource_exhausted("the message is over 4 GiB long"))?;
        let mut framed = BytesMut::with_capacity(PREFIX_LEN + message.len());
        // No message of a client is compressed.
        framed.put_u8(0);
        framed.put_u32(len);
        framed.put_slice(message);
        Ok(Self { framed: Some(framed.freeze()), is_asked })
    }
}

impl Body for MessageBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.is_asked.set();
        Poll::Ready(self.framed.take().map(|framed| Ok(Frame::data(framed))))
    }

    // The length stays unsaid: hyper would make a `content-length` of it, which gRPC has not.
    fn is_end_stream(&self) -> bool {
        self.framed.is_none()
    }
}
