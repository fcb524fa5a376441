//! The writing half of the driver.
//!
//! A sender writes, if no other task is writing; so a call on an idle connection reaches the
//! socket in its caller's task, and calls that arrive meanwhile go out with the next write. The
//! connection's task writes when the socket is full, and when large frames take longer than a turn,
//! so that neither a sender nor this thread's other tasks wait for them.

use std::future::poll_fn;
use std::io;
use std::sync::TryLockError;
use std::time::Duration;

use rpc_core::handoff::yield_now;
use rpc_core::transport::{CloseReason, TransportError};

use crate::connection::shared::Shared;
use crate::connection::socket::{Moved, Socket};
use crate::pacing::chunk_len::CHUNK_LEN_MAX;
use crate::send::queue::{Hold, SendQueue};
use crate::send::scheduler::WriteScheduler;

/// How much is written before other tasks have their turn: a long chunk, about 0.2 ms. Shorter
/// turns wake another thread in the midst of most large messages, which costs more than it gives.
const TURN_BYTES: usize = CHUNK_LEN_MAX;

/// How long a closing connection may take to write what it was given.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// A task that has just sent a frame.
    Sender,
    /// The connection's task.
    Driver,
}

/// How far a write got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flushed {
    All,
    /// The connection's task goes on.
    Held,
    /// The connection's task goes on when the peer has read more.
    Unread,
    /// Another task writes, and will see what was queued.
    Elsewhere,
}

impl<S: Socket> Shared<S> {
    /// Queues something, and writes if `queue` says that it is to be written here.
    pub(crate) fn push(
        &self,
        queue: impl FnOnce(&mut SendQueue) -> bool,
    ) -> Result<(), TransportError> {
        let (is_to_write, is_flooded) = {
            let mut locked = self.queue();
            if let Some(reason) = &locked.closed {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
            (queue(&mut locked), locked.is_flooded())
        };
        if is_flooded {
            let words = "the peer goes on and does not read what it is answered";
            self.fail(CloseReason::Failed(words.into()));
        } else if is_to_write {
            self.flush(Writer::Sender);
        }
        Ok(())
    }

    /// Lets out what has gathered while the queue was corked, and says how many frames were queued
    /// meanwhile.
    pub(crate) fn uncork(&self) -> usize {
        let (count, is_to_write) = {
            let mut queue = self.queue();
            (queue.uncork(), queue.is_waiting() && queue.hold != Some(Hold::SocketFull))
        };
        if is_to_write {
            self.flush(Writer::Sender);
        }
        count
    }

    /// Writes what is queued, unless another task is writing and will see it. A task that leaves
    /// something to the connection's task tells it.
    fn flush(&self, writer: Writer) -> Flushed {
        loop {
            let mut scheduler = match self.scheduler.try_lock() {
                Ok(scheduler) => scheduler,
                Err(TryLockError::WouldBlock) => return Flushed::Elsewhere,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            let flushed = self.write(&mut scheduler, writer);
            drop(scheduler);
            match flushed {
                // Another task may have queued more while the lock was still held.
                Ok(Flushed::All | Flushed::Unread) if self.queue().is_waiting() => {}
                Ok(flushed) => {
                    if flushed == Flushed::Held {
                        self.held.notify_one();
                    }
                    return flushed;
                }
                Err(error) => {
                    self.fail(CloseReason::Failed(error.to_string()));
                    return Flushed::All;
                }
            }
        }
    }

    fn write(&self, scheduler: &mut WriteScheduler, writer: Writer) -> io::Result<Flushed> {
        let mut turn_bytes = 0;
        loop {
            if let Some(flushed) = self.take_up(scheduler, writer, turn_bytes) {
                return Ok(flushed);
            }
            self.counters.kernel_calls.add(1);
            let written = self.socket.try_write(&scheduler.slices());
            match written {
                Ok(Moved { len, is_exhausted }) => {
                    scheduler.advance(len);
                    self.counters.sent_bytes.add(len as u64);
                    turn_bytes += len;
                    if is_exhausted {
                        return Ok(self.hold(Hold::SocketFull));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(self.hold(Hold::SocketFull));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes up what was queued; says how far the write has got when it is over.
    fn take_up(
        &self,
        scheduler: &mut WriteScheduler,
        writer: Writer,
        turn_bytes: usize,
    ) -> Option<Flushed> {
        let mut queue = self.queue();
        if queue.hold == Some(Hold::SocketFull) {
            // Another has come to that since this writer was told to write. With all bytes taken,
            // a stream may still owe a flush, which the connection's task waits for.
            return Some(Flushed::Held);
        }
        let (taken, unwanted) = queue.take_up(scheduler);
        let is_at_boundary = scheduler.is_at_boundary();
        let is_over = turn_bytes >= TURN_BYTES
            // Large frames are the driver's while it holds them.
            || writer == Writer::Sender && queue.hold.is_some() && is_at_boundary;
        // No task waits for what a broken connection was given.
        let is_broken = queue.closed.as_ref().is_some_and(|reason| *reason != CloseReason::Local);
        let flushed = if !queue.is_busy() || is_broken {
            queue.hold = None;
            if queue.closed.is_some() {
                self.written.notify_waiters();
            }
            Some(Flushed::All)
        } else if is_at_boundary && !queue.may_send_chunk() {
            queue.hold = Some(Hold::Unread);
            Some(Flushed::Unread)
        } else if is_over {
            queue.hold = Some(Hold::TurnOver);
            Some(Flushed::Held)
        } else {
            if is_at_boundary {
                queue.stage_chunk(scheduler);
            }
            None
        };
        let tells_waiters = queue.takes_waiters();
        drop(queue);
        drop(unwanted);
        if tells_waiters {
            self.room.notify_waiters();
        }
        self.counters.written_bytes.add(taken.bytes);
        self.counters.small_sent.add(taken.small_count);
        self.counters.large_sent.add(taken.large_count);
        self.counters.sent_count.add(taken.small_count + taken.large_count);
        flushed
    }

    fn hold(&self, hold: Hold) -> Flushed {
        let mut queue = self.queue();
        queue.hold = Some(hold);
        queue.charge_backlog();
        Flushed::Held
    }

    /// Writes whenever it is this task's turn, so that senders need not.
    ///
    /// # Cancel safety
    ///
    /// Begun anew, it goes on where it was: what it looks at first is the queue, not the news.
    pub(crate) async fn write_held(&self) {
        loop {
            let hold = self.queue().hold;
            match hold {
                None | Some(Hold::Unread) => {
                    self.held.notified().await;
                    continue;
                }
                Some(Hold::TurnOver) => yield_now().await,
                Some(Hold::SocketFull) => {
                    let writable = poll_fn(|cx| self.socket.poll_writable(cx)).await;
                    if let Err(error) = writable {
                        return self.fail(CloseReason::Failed(error.to_string()));
                    }
                    // Small frames need not wait for this task any more.
                    self.queue().hold = Some(Hold::TurnOver);
                }
            }
            // To try again at once, and again, would keep a core from the very thread that writes,
            // if that was preempted: until the next tick of the scheduler, which is milliseconds.
            if self.flush(Writer::Driver) == Flushed::Elsewhere {
                self.held.notified().await;
            }
        }
    }

    /// Lets large frames go on that wait for the peer to read: no acknowledgement will come.
    pub(crate) fn let_go(&self) {
        let mut queue = self.queue();
        if queue.hold == Some(Hold::Unread) {
            queue.hold = Some(Hold::TurnOver);
        }
    }

    /// Waits until all that is queued is written, within bounds.
    pub(crate) async fn flushed(&self) {
        let flushed = async {
            loop {
                let written = self.written.notified();
                if !self.queue().is_busy() {
                    return;
                }
                written.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushed).await;
    }

    /// Ends the connection at once: nothing is sent any more, and the reading task is told.
    pub(crate) fn fail(&self, reason: CloseReason) {
        self.queue().close(reason);
        self.large_budget.close();
        self.room.notify_waiters();
        self.written.notify_waiters();
        self.close.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    use rpc_core::pool::Pool;
    use tokio::net::UnixStream;

    use super::*;
    use crate::connection::transport::SocketTransport;

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_connections_task_sleeps_while_another_task_writes() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _context = runtime.enter();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let shared = SocketTransport::new(ours, Pool::new(0)).shared;
        shared.queue().hold = Some(Hold::TurnOver);
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut task = pin!(shared.write_held());
        let mut polls = std::iter::from_fn(|| {
            let pending = task.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(pending.is_pending());
            woken.0.swap(false, Ordering::Relaxed).then_some(())
        });
        let another_task = shared.scheduler.lock();
        // Its turn comes once, for what it was held for.
        assert_eq!(polls.by_ref().take(10).count(), 1);
        drop(another_task);
        shared.held.notify_one();
        assert!(polls.next().is_some(), "it is told when it can go on");
    }
}
