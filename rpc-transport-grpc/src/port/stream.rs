//! The byte stream of a connection of HTTP, which counts what comes and goes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rpc_core::connect::Replayed;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::flow::Flowing;
use super::frame_progress::FrameProgress;

/// A stream that counts.
pub(super) struct CountedStream {
    stream: Replayed,
    flowing: Arc<Flowing>,
    /// Present for HTTP/2, which reads by turns.
    frames: Option<FrameProgress>,
}

impl CountedStream {
    pub(super) fn http1(stream: Replayed, flowing: Arc<Flowing>) -> Self {
        Self { stream, flowing, frames: None }
    }

    /// Reads by turns, which the connection's task begins.
    pub(super) fn http2(stream: Replayed, flowing: Arc<Flowing>) -> Self {
        Self { stream, flowing, frames: Some(FrameProgress::default()) }
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

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, flowing, frames } = &mut *self;
        if frames.is_some() && !flowing.may_read() {
            // Nothing wakes the task for this: it begins the next turn itself.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(stream).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        flowing.read(read.len());
        if let Some(frames) = frames {
            frames.push(read);
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
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
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
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
