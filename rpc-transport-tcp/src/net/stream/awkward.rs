//! A test stream with every behavior that tokio's traits allow and that trips its user.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// The reaction of a stream to a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Refuses, and wakes within the same poll, like tokio's streams when the task's budget is used
    /// up.
    Refuse,
    /// Refuses, and wakes later from another task.
    RefuseForLater,
    /// Moves at most this many bytes.
    Move(usize),
}

/// The purpose of a poll.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Read,
    Write,
    Flush,
}

/// The behavior of a stream.
#[derive(Debug, Clone)]
pub(super) struct Manners {
    /// Reactions to successive polls of one kind, repeated forever.
    pub(super) deeds: Vec<Deed>,
    /// True if the stream accepts several buffers at a time.
    pub(super) is_vectored: bool,
    /// Number of bytes that the stream collects until a flush.
    pub(super) gathered_max: usize,
}

/// Stores the waker of the last poll in either direction, as a stream with only one slot does.
#[derive(Default)]
struct LastWaker {
    waker: Mutex<Option<Waker>>,
    /// True if a task is about to wake it. With a task per refusal, a runtime of one thread would
    /// be given more tasks than it runs, and the other end's task would wait behind them forever.
    is_due: AtomicBool,
}

impl LastWaker {
    /// Wakes from another task.
    fn wake_later(self: &Arc<Self>) {
        if self.is_due.swap(true, Ordering::Relaxed) {
            return;
        }
        let last = Arc::clone(self);
        tokio::spawn(async move {
            // Before the wake: a refusal from now on needs a task of its own.
            last.is_due.store(false, Ordering::Relaxed);
            last.wake();
        });
    }
}

impl Wake for LastWaker {
    fn wake(self: Arc<Self>) {
        let waker = self.waker.lock().clone();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// An in-memory pipe with bad manners.
pub(super) struct Awkward {
    stream: DuplexStream,
    manners: Manners,
    /// Counts the polls of each kind. With a common counter, one kind could be refused forever.
    poll_counts: [usize; 3],
    gathered: Vec<u8>,
    last: Arc<LastWaker>,
}

impl Awkward {
    pub(super) fn new(stream: DuplexStream, manners: Manners) -> Self {
        Self { stream, manners, poll_counts: [0; 3], gathered: Vec::new(), last: Arc::default() }
    }

    /// Returns the number of bytes to move now.
    fn poll_deed(&mut self, kind: Kind, cx: &mut Context<'_>) -> Poll<usize> {
        *self.last.waker.lock() = Some(cx.waker().clone());
        let count = &mut self.poll_counts[kind as usize];
        let deed = self.manners.deeds[*count % self.manners.deeds.len()];
        *count += 1;
        match deed {
            Deed::Refuse => cx.waker().wake_by_ref(),
            Deed::RefuseForLater => self.last.wake_later(),
            Deed::Move(len) => return Poll::Ready(len),
        }
        Poll::Pending
    }

    /// Writes the collected bytes to the pipe.
    fn poll_drain(&mut self) -> Poll<io::Result<()>> {
        let waker = Waker::from(Arc::clone(&self.last));
        let mut cx = Context::from_waker(&waker);
        while !self.gathered.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(&mut cx, &self.gathered);
            self.gathered.drain(..ready!(written)?);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Awkward {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = ready!(self.poll_deed(Kind::Read, cx)).min(buf.remaining());
        let mut bytes = vec![0; len];
        let mut part = ReadBuf::new(&mut bytes);
        let waker = Waker::from(Arc::clone(&self.last));
        let mut cx = Context::from_waker(&waker);
        ready!(Pin::new(&mut self.stream).poll_read(&mut cx, &mut part))?;
        buf.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Awkward {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len_max = ready!(self.poll_deed(Kind::Write, cx));
        if self.gathered.len() >= self.manners.gathered_max.max(1) {
            ready!(self.poll_drain())?;
        }
        let before = self.gathered.len();
        for buf in bufs {
            let room = before + len_max - self.gathered.len();
            self.gathered.extend_from_slice(&buf[..room.min(buf.len())]);
        }
        let len = self.gathered.len() - before;
        if self.manners.gathered_max == 0 {
            // The next write first drains the rest.
            if let Poll::Ready(Err(error)) = self.poll_drain() {
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        self.manners.is_vectored
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_deed(Kind::Flush, cx));
        self.poll_drain()
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
