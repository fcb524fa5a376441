//! The byte stream of an HTTP connection, with counters.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rpc_core::connect::Replayed;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::client_frames::ClientFrames;
use super::flow::Flowing;

/// A stream that counts its bytes. For HTTP/2 it reads in turns. On drop it returns the inner
/// stream.
pub(super) struct CountedStream {
    /// Absent only in `drop`.
    left: Option<LeftStream>,
    returned: Option<oneshot::Sender<LeftStream>>,
    flowing: Arc<Flowing>,
    /// Present for HTTP/2.
    frames: Option<Box<ClientFrames>>,
}

/// The stream that is left after HTTP has ended.
pub(super) struct LeftStream {
    pub(super) stream: Replayed,
    /// True if this side has shut down its direction.
    pub(super) is_shut_down: bool,
}

impl CountedStream {
    /// Wraps a stream. The receiver yields the inner stream once HTTP has dropped it.
    pub(super) fn new(
        stream: Replayed,
        flowing: Arc<Flowing>,
    ) -> (Self, oneshot::Receiver<LeftStream>) {
        let (returned, left) = oneshot::channel();
        let stream = LeftStream { stream, is_shut_down: false };
        (Self { left: Some(stream), returned: Some(returned), flowing, frames: None }, left)
    }

    /// Reads in turns that the connection's task begins, and follows the client's frames.
    pub(super) fn with_frames(mut self, frames: ClientFrames) -> Self {
        self.frames = Some(Box::new(frames));
        self
    }

    fn stream(&mut self) -> io::Result<Pin<&mut Replayed>> {
        let left = self.left.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(&mut left.stream))
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(len)) => self.flowing.written(Some(*len)),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.flowing.written(None),
        }
        written
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        if let (Some(left), Some(returned)) = (self.left.take(), self.returned.take()) {
            // Fails if the connection's task is gone. The stream then closes here.
            let _ = returned.send(left);
        }
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.frames.is_some() && !self.flowing.may_read() {
            // Registers no waker. The task sees that the turn is over and begins the next one
            // itself.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(self.stream()?.poll_read(cx, buf))?;
        let read = &mut buf.filled_mut()[before..];
        let Self { flowing, frames, .. } = &mut *self;
        flowing.read(read.len());
        if let Some(frames) = frames {
            frames.follow(read, &flowing.header_list);
            flowing.set_unfinished(frames.unfinished());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.flowing.look_for_limit(buf);
        let written = self.stream()?.poll_write(cx, buf);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(last) = buffers.iter().rfind(|buffer| !buffer.is_empty()) {
            self.flowing.look_for_limit(last);
        }
        let written = self.stream()?.poll_write_vectored(cx, buffers);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream()?.poll_shutdown(cx))?;
        if let Some(left) = &mut self.left {
            left.is_shut_down = true;
        }
        Poll::Ready(Ok(()))
    }
}
