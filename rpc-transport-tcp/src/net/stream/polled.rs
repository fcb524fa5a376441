//! A polled stream in the form of a socket with attempts.
//!
//! It buffers nothing. A read goes directly to the driver's memory, and unwritten bytes stay in the
//! driver's queue. A stream therefore costs a connection no memory beyond that of any socket and
//! its own buffer.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use futures::FutureExt as _;
use futures::future::lazy;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::unconstrained;

use super::readiness::{Direction, Readiness};
use crate::connection::socket::{Moved, Socket};

/// A stream and its readiness.
pub(crate) struct PolledStream<IO> {
    /// Held while the stream is polled, never while waiting.
    halves: Mutex<Halves<IO>>,
    readiness: Arc<Readiness>,
    /// The waker that forwards to `readiness`.
    waker: Waker,
}

/// The stream and its pending work.
struct Halves<IO> {
    /// Taken when the connection ends. Only dropping the stream closes it for the peer.
    stream: Option<IO>,
    reading: Reading,
    /// True if the stream may still buffer written bytes.
    is_flush_owed: bool,
}

/// The state of reading.
enum Reading {
    Open,
    Ended,
    /// Failed after the same attempt had read bytes.
    Failed(io::Error),
}

/// The result of polling with several buffers.
struct Polled {
    len: usize,
    /// True if the stream had fewer bytes, or accepted fewer, than requested.
    is_refused: bool,
}

impl Polled {
    /// Converts to the result of an attempt. A refusal without a byte is an error.
    fn moved(self) -> io::Result<Moved> {
        match self {
            Self { len: 0, is_refused: true } => Err(io::ErrorKind::WouldBlock.into()),
            Self { len, is_refused } => Ok(Moved { len, is_exhausted: is_refused }),
        }
    }
}

impl<IO> PolledStream<IO> {
    pub(crate) fn new(stream: IO) -> Self {
        let readiness = Arc::new(Readiness::default());
        let halves = Halves { stream: Some(stream), reading: Reading::Open, is_flush_owed: false };
        let waker = Waker::from(Arc::clone(&readiness));
        Self { halves: Mutex::new(halves), readiness, waker }
    }

    fn lock(&self) -> MutexGuard<'_, Halves<IO>> {
        // A stream that panicked is responsible for its own state.
        self.halves.lock()
    }

    /// Returns the stream to its only owner.
    fn stream_mut(&mut self) -> io::Result<Pin<&mut IO>>
    where
        IO: Unpin,
    {
        let halves = self.halves.get_mut();
        halves.stream.as_mut().map(Pin::new).ok_or_else(ended)
    }
}

fn ended() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Halves<IO> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> io::Result<Polled> {
        // The last attempt moved bytes and then failed. It reported the bytes, so this one reports
        // the failure.
        match std::mem::replace(&mut self.reading, Reading::Open) {
            Reading::Open => {}
            Reading::Ended => {
                self.reading = Reading::Ended;
                return Ok(Polled { len: 0, is_refused: false });
            }
            Reading::Failed(error) => return Err(error),
        }
        let stream = self.stream.as_mut().ok_or_else(ended)?;
        let mut len = 0;
        for buffer in buffers.iter_mut().filter(|buffer| !buffer.is_empty()) {
            let mut to = ReadBuf::new(buffer);
            match Pin::new(&mut *stream).poll_read(cx, &mut to) {
                Poll::Pending => return Ok(Polled { len, is_refused: true }),
                Poll::Ready(Err(error)) if len == 0 => return Err(error),
                Poll::Ready(Err(error)) => {
                    self.reading = Reading::Failed(error);
                    break;
                }
                Poll::Ready(Ok(())) if to.filled().is_empty() => {
                    self.reading = Reading::Ended;
                    break;
                }
                // A short read ends the attempt. The next one finds out if there is more.
                Poll::Ready(Ok(())) => {
                    len += to.filled().len();
                    if to.remaining() > 0 {
                        break;
                    }
                }
            }
        }
        Ok(Polled { len, is_refused: false })
    }

    /// Writes, then flushes if any bytes were written. A buffering stream, such as TLS, would hold
    /// them back otherwise.
    fn poll_write(&mut self, cx: &mut Context<'_>, buffers: &[IoSlice<'_>]) -> io::Result<Polled> {
        let stream = self.stream.as_mut().ok_or_else(ended)?;
        let mut polled = write_all(stream, cx, buffers)?;
        self.is_flush_owed |= polled.len > 0;
        polled.is_refused |= self.poll_flush(cx)?.is_pending();
        Ok(polled)
    }

    /// Flushes written bytes, if there are any.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.stream.as_mut().ok_or_else(ended)?;
        if self.is_flush_owed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.is_flush_owed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.stream.as_mut().ok_or_else(ended)?;
        Pin::new(stream).poll_shutdown(cx)
    }
}

/// Writes until the stream accepts less than a whole buffer.
fn write_all<IO: AsyncWrite + Unpin>(
    stream: &mut IO,
    cx: &mut Context<'_>,
    buffers: &[IoSlice<'_>],
) -> io::Result<Polled> {
    if stream.is_write_vectored() {
        let max = buffers.iter().map(|buffer| buffer.len()).sum();
        let polled = Pin::new(stream).poll_write_vectored(cx, buffers)?;
        return written(0, polled, max);
    }
    let mut len = 0;
    for buffer in buffers.iter().filter(|buffer| !buffer.is_empty()) {
        let polled = Pin::new(&mut *stream).poll_write(cx, buffer)?;
        let all = len + buffer.len();
        let so_far = written(len, polled, buffer.len())?;
        len = so_far.len;
        // After a short write, the next buffer has to wait. It would overtake the rest of this one.
        if so_far.is_refused || len < all {
            return Ok(so_far);
        }
    }
    Ok(Polled { len, is_refused: false })
}

/// Evaluates a poll for up to `max` bytes, after `before` bytes were written.
fn written(before: usize, polled: Poll<usize>, max: usize) -> io::Result<Polled> {
    match polled {
        Poll::Pending => Ok(Polled { len: before, is_refused: true }),
        // A stream that accepts nothing now would do so forever.
        Poll::Ready(0) => Err(io::ErrorKind::WriteZero.into()),
        Poll::Ready(len) if len > max => {
            Err(io::Error::other("the stream reported more bytes written than it was given"))
        }
        Poll::Ready(len) => Ok(Polled { len: before + len, is_refused: false }),
    }
}

impl<IO: AsyncRead + AsyncWrite + Send + Unpin + 'static> Socket for PolledStream<IO> {
    const NAME: &'static str = "stream";
    const WAKES: bool = true;
    // The stream may lead to another host.
    const CARRIES_COMPRESSED: bool = true;

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.readiness.poll(Direction::Read, cx).map(Ok)
    }

    /// Also waits until written bytes are flushed.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_attempts(cx, Halves::poll_flush)
    }

    fn try_read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<Moved> {
        let mut halves = self.lock();
        self.attempt(Direction::Read, |cx| halves.poll_read(cx, buffers))
    }

    fn try_write(&self, buffers: &[IoSlice<'_>]) -> io::Result<Moved> {
        let mut halves = self.lock();
        self.attempt(Direction::Write, |cx| halves.poll_write(cx, buffers))
    }

    /// A stream has no way to ask, so this reports if data may have arrived.
    fn has_unread(&self) -> bool {
        self.readiness.is_ready(Direction::Read)
    }

    fn poll_end_writing(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_attempts(cx, Halves::poll_shutdown)
    }

    fn end(&self) {
        let stream = self.lock().stream.take();
        // Dropping the stream may wake tasks. Their wakers must not run under the lock.
        drop(stream);
    }
}

impl<IO> PolledStream<IO> {
    /// Polls a write-side operation when it may succeed, and again after each refusal.
    fn poll_attempts(
        &self,
        cx: &mut Context<'_>,
        poll: impl Fn(&mut Halves<IO>, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.readiness.poll(Direction::Write, cx));
            // The lock order is stream, then readiness: a stream may wake within its poll, and its
            // waker locks the readiness.
            let mut halves = self.lock();
            let polled = self.readiness.attempt(
                Direction::Write,
                || self.poll_stream(|cx| Ok(poll(&mut halves, cx)?)),
                |polled| matches!(polled, Ok(Poll::Pending)),
            );
            if polled? == Poll::Ready(()) {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Attempts to move bytes.
    fn attempt(
        &self,
        direction: Direction,
        poll: impl FnOnce(&mut Context<'_>) -> io::Result<Polled>,
    ) -> io::Result<Moved> {
        let polled = self.readiness.attempt(
            direction,
            || self.poll_stream(poll),
            |polled| matches!(polled, Ok(polled) if polled.is_refused),
        );
        polled?.moved()
    }

    /// Polls the stream with its own waker. A stream that panics has failed, and so has its
    /// connection.
    ///
    /// The poll does not use the task's budget. With the budget used up, tokio's streams refuse,
    /// and their wake-up waits for the task's thread to run other tasks. If the task blocks its
    /// thread, that never happens.
    fn poll_stream<T>(
        &self,
        poll: impl FnOnce(&mut Context<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let polling = unconstrained(lazy(|_| poll(&mut Context::from_waker(&self.waker))));
        let polled = AssertUnwindSafe(polling).catch_unwind().now_or_never();
        let Some(Ok(polled)) = polled else {
            return Err(io::Error::other("the stream panicked"));
        };
        polled.map_err(|error| match error.kind() {
            // The driver would retry forever.
            io::ErrorKind::WouldBlock => {
                io::Error::other("the stream failed with WouldBlock in place of Poll::Pending")
            }
            _ => error,
        })
    }
}

impl<IO> fmt::Debug for PolledStream<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolledStream").field("readiness", &self.readiness).finish_non_exhaustive()
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for PolledStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream_mut()?.poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for PolledStream<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream_mut()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream_mut()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream_mut()?.poll_shutdown(cx)
    }
}
