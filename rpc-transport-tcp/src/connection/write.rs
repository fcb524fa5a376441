//! The writing half of the driver.
//!
//! A sender writes, if no other task is writing; so a call on an idle connection reaches the
//! socket in its caller's task, and calls that arrive meanwhile go out with the next write. The
//! connection's task writes when the socket is full, and when large frames take longer than a turn,
//! so that neither a sender nor this thread's other tasks wait for them.

use std::future::poll_fn;
use std::io;
use std::sync::{MutexGuard, TryLockError};
use std::time::Instant;

use rpc_core::handoff::yield_now;
use rpc_core::transport::{CloseReason, TransportError};

use crate::connection::shared::Shared;
use crate::connection::socket::{Moved, Socket};
use crate::send::pass::{Next, Pass, Writer};
use crate::send::queue::{Blocked, SendQueue, Turn};
use crate::send::scheduler::WriteScheduler;

/// Whether a task wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flushed {
    Here,
    /// Another task writes, and sees what was queued.
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
            if let Some(reason) = locked.close_reason() {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
            (queue(&mut locked), locked.is_flooded())
        };
        if is_flooded {
            let message = "the peer goes on and does not read what it is answered";
            self.fail(CloseReason::Failed(message.into()));
        } else if is_to_write {
            self.flush(Writer::Sender);
        }
        Ok(())
    }

    /// Lets out what has gathered while the queue was corked, and says how many small frames were
    /// queued meanwhile.
    pub(crate) fn uncork(&self) -> usize {
        let (count, is_to_write) = self.queue().uncork();
        if is_to_write {
            self.flush(Writer::Sender);
        }
        count
    }

    /// Writes what is queued, unless another task is writing and sees it. A task that leaves
    /// something to the connection's task tells it.
    fn flush(&self, writer: Writer) -> Flushed {
        // Dropped last, when nothing is locked.
        let mut pass = Pass::new(writer);
        let Some(mut scheduler) = self.try_lock_scheduler() else { return Flushed::Elsewhere };
        loop {
            let mut queue = self.queue();
            let next = queue.next(&mut scheduler, &mut pass, Instant::now);
            let has_made_room = queue.takes_waiters();
            if next != Next::Write {
                // In the order that `SendQueue::next` asks for.
                drop(scheduler);
                drop(queue);
                self.tell_waiters(has_made_room);
                if next == Next::Yield {
                    self.driver_wakeup.notify_one();
                }
                return Flushed::Here;
            }
            drop(queue);
            self.tell_waiters(has_made_room);
            if let Err(error) = self.write(&mut scheduler, &mut pass) {
                drop(scheduler);
                self.fail(CloseReason::Failed(error.into()));
                return Flushed::Here;
            }
        }
    }

    fn write(&self, scheduler: &mut WriteScheduler, pass: &mut Pass) -> io::Result<()> {
        self.counters.kernel_calls.add(1);
        let written = self.socket.try_write(&scheduler.slices());
        match written {
            Ok(Moved { len, is_exhausted }) => {
                scheduler.advance(len);
                self.counters.sent_bytes.add(len as u64);
                pass.advance(len, is_exhausted);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => pass.advance(0, true),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn tell_waiters(&self, has_made_room: bool) {
        if has_made_room {
            self.room.notify_waiters();
        }
    }

    fn try_lock_scheduler(&self) -> Option<MutexGuard<'_, WriteScheduler>> {
        match self.scheduler.try_lock() {
            Ok(scheduler) => Some(scheduler),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        }
    }

    /// Writes whenever it is this task's turn, so that senders need not. Ends when nothing will be
    /// written any more.
    ///
    /// # Cancel safety
    ///
    /// Safe to restart: the queue's state, not the notification, decides what to do.
    pub(crate) async fn drive_writes(&self) {
        loop {
            let (turn, is_over) = {
                let queue = self.queue();
                (queue.turn(), queue.is_over())
            };
            if is_over {
                return;
            }
            match turn {
                Turn::Idle | Turn::Anyone | Turn::Driver(Blocked::WindowFull) => {
                    self.driver_wakeup.notified().await;
                    continue;
                }
                Turn::Driver(Blocked::TurnOver) => yield_now().await,
                Turn::Driver(Blocked::SocketFull) => {
                    let writable = poll_fn(|cx| self.socket.poll_writable(cx)).await;
                    if let Err(error) = writable {
                        return self.fail(CloseReason::Failed(error.into()));
                    }
                    self.queue().handle_writable();
                }
            }
            // To try again at once, and again, would keep a core from the very thread that writes,
            // if that was preempted: until the next tick of the scheduler, which is milliseconds.
            if self.flush(Writer::Driver) == Flushed::Elsewhere {
                self.driver_wakeup.notified().await;
            }
        }
    }

    /// Ends the connection at once: nothing is sent any more, and the connection's task is told.
    pub(crate) fn fail(&self, reason: CloseReason) {
        self.queue().close(reason);
        // Frees what is queued, or leaves that to the task that writes.
        self.flush(Writer::Sender);
        self.large_budget.close();
        self.room.notify_waiters();
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

    use futures::FutureExt as _;
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
        while shared.queue().turn() != Turn::Driver(Blocked::SocketFull) {
            shared.push(|queue| queue.push_bytes(&[0; 44])).unwrap();
        }
        shared.queue().handle_writable();
        // It was told so.
        assert_eq!(shared.driver_wakeup.notified().now_or_never(), Some(()));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut task = pin!(shared.drive_writes());
        let mut polls = std::iter::from_fn(|| {
            let pending = task.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(pending.is_pending());
            woken.0.swap(false, Ordering::Relaxed).then_some(())
        });
        let another_task = shared.scheduler.lock();
        // Its turn comes once.
        assert_eq!(polls.by_ref().take(10).count(), 1);
        drop(another_task);
        shared.driver_wakeup.notify_one();
        assert!(polls.next().is_some(), "it is told when it can go on");
    }
}
