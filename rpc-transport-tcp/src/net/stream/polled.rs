//! A stream with polls as a socket that can be tried.
//!
//! It keeps no bytes: what a read brings goes to where the driver wants it, and what a write does
//! not take stays in the driver's queue. So a stream costs a connection no memory beyond what any
//! socket does, and what the stream itself buffers.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use futures::FutureExt as _;
use futures::future::lazy;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::unconstrained;

use super::readiness::{Direction, Readiness};
use crate::connection::socket::{Moved, Socket};

/// A stream, and when it can be tried.
pub(crate) struct PolledStream<IO> {
    /// Held while the stream is polled, never while waiting.
    halves: Mutex<Halves<IO>>,
    readiness: Arc<Readiness>,
    /// The waker that `readiness` is.
    waker: Waker,
}

/// The stream with what it still owes.
struct Halves<IO> {
    /// Gone when the connection has ended: only then does the peer hear of it.
    stream: Option<IO>,
    reading: Reading,
    /// Whether something was written that the stream may still hold.
    is_flush_owed: bool,
}

/// How reading stands.
enum Reading {
    Open,
    Ended,
    /// It failed behind bytes that came with the same attempt.
    Failed(io::Error),
}

/// What a poll of several buffers did.
struct Polled {
    len: usize,
    /// Whether the stream has less, or takes less, than there was to move.
    is_refused: bool,
}

impl Polled {
    /// What an attempt makes of it: refused without a byte, it has failed.
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
        // A stream that panicked answers for its own state.
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream, for its only owner.
    fn stream_mut(&mut self) -> io::Result<Pin<&mut IO>>
    where
        IO: Unpin,
    {
        let halves = self.halves.get_mut().unwrap_or_else(PoisonError::into_inner);
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

    /// Writes and, if anything was written, flushes: a stream that gathers, as TLS streams do,
    /// would keep it otherwise.
    fn poll_write(&mut self, cx: &mut Context<'_>, buffers: &[IoSlice<'_>]) -> io::Result<Polled> {
        let stream = self.stream.as_mut().ok_or_else(ended)?;
        let mut polled = write_all(stream, cx, buffers)?;
        self.is_flush_owed |= polled.len > 0;
        polled.is_refused |= self.poll_flush(cx)?.is_pending();
        Ok(polled)
    }

    /// Flushes what is owed.
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

/// Writes until the stream takes less than a buffer.
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
        if so_far.is_refused || len < all {
            return Ok(so_far);
        }
    }
    Ok(Polled { len, is_refused: false })
}

/// How far a write is that had written `before` bytes, and was polled for up to `max` more.
fn written(before: usize, polled: Poll<usize>, max: usize) -> io::Result<Polled> {
    match polled {
        Poll::Pending => Ok(Polled { len: before, is_refused: true }),
        // It would take nothing for ever.
        Poll::Ready(0) => Err(io::ErrorKind::WriteZero.into()),
        Poll::Ready(len) if len > max => {
            Err(io::Error::other("the stream says that it wrote more than it was given"))
        }
        Poll::Ready(len) => Ok(Polled { len: before + len, is_refused: false }),
    }
}

impl<IO: AsyncRead + AsyncWrite + Send + Unpin + 'static> Socket for PolledStream<IO> {
    const NAME: &'static str = "stream";
    const WAKES: bool = true;
    // It may lead to another host.
    const CARRIES_COMPRESSED: bool = true;

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.readiness.poll(Direction::Read, cx).map(Ok)
    }

    /// Also waits until what was written is flushed.
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

    /// A stream cannot be asked; it says when something may have come.
    fn has_unread(&self) -> bool {
        self.readiness.is_ready(Direction::Read)
    }

    fn poll_end_writing(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_attempts(cx, Halves::poll_shutdown)
    }

    fn end(&self) {
        let stream = self.lock().stream.take();
        // Dropping it may wake tasks, which must not happen under the lock.
        drop(stream);
    }
}

impl<IO> PolledStream<IO> {
    /// Attempts what concerns writing, once when it may succeed, and again after each refusal.
    fn poll_attempts(
        &self,
        cx: &mut Context<'_>,
        poll: impl Fn(&mut Halves<IO>, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.readiness.poll(Direction::Write, cx));
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

    /// Polls the stream with its own waker. A stream that panics has failed, and its connection
    /// with it.
    ///
    /// The poll has no part in the budget of the task that makes it. With that used up, tokio's
    /// streams refuse, and wake only when the thread of that task goes on with others: never, as
    /// long as the task blocks it.
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
            // The driver would try again, and again.
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
