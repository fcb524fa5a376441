//! The body of a request with one message, whose last frame is marked as the last.
//!
//! tonic's stream body learns of its end only after its last message. Each unary call would
//! therefore end with an empty DATA frame. Servers count small DATA frames that are not the last of
//! their stream, and h2 ends a connection with too many of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};
use tonic::Status;

use super::call::IsAsked;

/// Length of gRPC's prefix in bytes: a flag, and the length of the message.
const PREFIX_LEN: usize = 5;

/// A body of one message.
#[derive(Debug)]
pub(super) struct MessageBody {
    framed: Option<Bytes>,
    is_asked: IsAsked,
}

impl MessageBody {
    /// Creates a body for `message`.
    ///
    /// # Errors
    ///
    /// Returns an error if the message is too long for gRPC's prefix.
    pub(super) fn new(message: &Bytes, is_asked: IsAsked) -> Result<Self, Status> {
        let len = u32::try_from(message.len());
        let len = len.map_err(|_| Status::resource_exhausted("the message is over 4 GiB long"))?;
        let mut framed = BytesMut::with_capacity(PREFIX_LEN + message.len());
        // The client never compresses its messages.
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

    // Leaves `size_hint` at its default: hyper would turn an exact one into a `content-length`,
    // which gRPC does not use.
    fn is_end_stream(&self) -> bool {
        self.framed.is_none()
    }
}
