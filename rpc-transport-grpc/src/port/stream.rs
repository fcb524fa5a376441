//! The byte stream of a connection of HTTP, which counts what comes and goes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rpc_core::connect::Replayed;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::flow::Flowing;

/// A stream that counts. That of HTTP/2 reads by turns.
pub(super) struct CountedStream {
    stream: Replayed,
    flowing: Arc<Flowing>,
    has_turns: bool,
}

impl CountedStream {
    pub(super) fn new(stream: Replayed, flowing: Arc<Flowing>) -> Self {
        Self { stream, flowing, has_turns: false }
    }

    /// Reads by turns, which the connection's task begins.
    pub(super) fn with_turns(stream: Replayed, flowing: Arc<Flowing>) -> Self {
        Self { stream, flowing, has_turns: true }
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
        if self.has_turns && !self.flowing.may_read() {
            // Nothing wakes the task for this: it begins the next turn itself.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.flowing.read(buf.filled().len() - before);
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
