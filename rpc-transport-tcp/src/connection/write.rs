//! The writing half of the driver.
//!
//! A sender writes by itself unless another task is writing. A call on an idle connection thus
//! reaches the socket from its caller's task, and calls that arrive meanwhile go out with the next
//! write. The connection's task writes when the socket is full, and when large frames take longer
//! than a turn. Neither a sender nor this thread's other tasks then wait for them.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::MutexGuard;
use rpc_core::handoff::{displace_lifo_slot, yield_now};
use rpc_core::transport::{CloseReason, TransportError};
use tokio::runtime::Handle;

use crate::connection::shared::ConnectionShared;
use crate::connection::socket::{Moved, Socket};
use crate::send::pass::{Next, Pass, Writer};
use crate::send::queue::SendQueue;
use crate::send::scheduler::WriteScheduler;
use crate::send::turn::{Blocked, Turn};

/// The task that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flushed {
    Here,
    /// Another task is writing, and sees the queued frames.
    Elsewhere,
}

impl<S: Socket> ConnectionShared<S> {
    /// Queues something, and writes if `queue` returns true.
    pub(crate) fn push(
        &self,
        queue: impl FnOnce(&mut SendQueue) -> bool,
    ) -> Result<(), TransportError> {
        // The block bounds the lock: `fail`, `flush` and `defer` take it again.
        let (is_to_write, is_flooded, is_deferred) = {
            let mut locked = self.queue();
            if let Some(reason) = locked.close_reason() {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
            (queue(&mut locked), locked.is_flooded(), locked.takes_deferral())
        };
        if is_flooded {
            let message = "the peer goes on and does not read what it is answered";
            self.fail(CloseReason::Failed(message.into()));
        } else if is_to_write {
            self.flush(Writer::Sender);
        } else if is_deferred {
            self.defer();
        }
        Ok(())
    }

    /// Queues a short record, and writes if this task must. A record on an idle connection is
    /// written directly from `record`.
    pub(crate) fn push_record(&self, record: &[u8]) -> Result<(), TransportError> {
        let scheduler = {
            let mut queue = self.queue();
            if let Some(reason) = queue.close_reason() {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
            // The scheduler is only tried, so the lock order does not matter.
            match queue.is_idle(record).then(|| self.try_lock_scheduler()).flatten() {
                Some(scheduler) => {
                    queue.begin_alone(record.len());
                    scheduler
                }
                None => {
                    let is_to_write = queue.push_record(record);
                    let is_deferred = queue.takes_deferral();
                    // Set under the queue's lock, after the push. The next sender then takes the
                    // path that waits for room.
                    if !queue.has_room() {
                        self.is_full.store(true, Ordering::Relaxed);
                    }
                    drop(queue);
                    if is_to_write {
                        self.flush(Writer::Sender);
                    } else if is_deferred {
                        self.defer();
                    }
                    return Ok(());
                }
            }
        };
        self.write_alone(record, scheduler);
        Ok(())
    }

    /// Writes a record that nothing precedes, then the frames that other tasks have queued
    /// meanwhile.
    fn write_alone(&self, record: &[u8], mut scheduler: MutexGuard<'_, WriteScheduler>) {
        let mut pass = Pass::new(Writer::Sender);
        let written = self.write(&[IoSlice::new(record)], &mut pass);
        match written {
            Ok(len) if len == record.len() && self.queue().end_alone(&pass) => {}
            Ok(len) => {
                // The socket took part of the record. The rest goes before anything else, or the
                // peer would read another record inside this one.
                scheduler.stage_rest(&record[len..]);
                self.write_on(scheduler, pass);
            }
            Err(error) => {
                // The scheduler is released first: `fail` flushes, and must be able to lock it to
                // free the queue.
                drop(scheduler);
                self.fail(CloseReason::Failed(error.into()));
            }
        }
    }

    /// Tells the connection's task to write the frames that this task has queued.
    fn defer(&self) {
        self.driver_wakeup.notify_one();
        // The notification may put the connection's task into this worker's LIFO slot, which no
        // other worker can steal from. A sender that blocks its thread would then hold up its own
        // frame.
        if let Ok(runtime) = Handle::try_current() {
            displace_lifo_slot(&runtime);
        }
    }

    /// Writes the frames that were queued while the queue was corked.
    pub(crate) fn uncork(&self) {
        let is_to_write = self.queue().uncork();
        if is_to_write {
            self.flush(Writer::Sender);
        }
    }

    /// Writes the frames that were queued while `delivered_count` frames were delivered.
    ///
    /// Returns the number of delivered frames that woke a task and have no reply yet, and the turn
    /// to write the rest. `is_shared` tells if other threads may run those tasks.
    pub(crate) fn uncork_delivered(&self, delivered_count: u64, is_shared: bool) -> (u64, Turn) {
        let (woken_count, is_to_write, turn) = {
            let mut queue = self.queue();
            let is_to_write = queue.uncork();
            let woken_count = delivered_count.saturating_sub(queue.answered_count());
            queue.set_woken(if is_shared { woken_count } else { 0 });
            (woken_count, is_to_write, queue.turn())
        };
        if !is_to_write {
            return (woken_count, turn);
        }
        self.flush(Writer::Sender);
        (woken_count, self.queue().turn())
    }

    /// Writes the queued frames, unless another task is writing and sees them. Notifies the
    /// connection's task of frames left to it.
    fn flush(&self, writer: Writer) -> Flushed {
        let Some(scheduler) = self.try_lock_scheduler() else { return Flushed::Elsewhere };
        self.write_on(scheduler, Pass::new(writer));
        Flushed::Here
    }

    /// Writes until nothing is left, or the rest is another party's. `pass` drops last, when no
    /// lock is held.
    fn write_on(&self, mut scheduler: MutexGuard<'_, WriteScheduler>, mut pass: Pass) {
        loop {
            let mut queue = self.queue();
            let next = queue.next(&mut scheduler, &mut pass, Instant::now);
            let has_made_room = queue.takes_waiters();
            if next != Next::Write {
                // The scheduler before the queue, as `SendQueue::next` requires. The other way
                // round, a frame queued in between would be left to a writer that is done.
                drop(scheduler);
                drop(queue);
                self.tell_waiters(has_made_room);
                if next == Next::Yield {
                    self.driver_wakeup.notify_one();
                }
                return;
            }
            // Neither waking senders nor writing happens under the queue's lock: both may take
            // long, and every sender needs the lock.
            drop(queue);
            self.tell_waiters(has_made_room);
            let written = self.write(&scheduler.slices(), &mut pass);
            match written {
                Ok(len) => scheduler.advance(len),
                Err(error) => {
                    drop(scheduler);
                    return self.fail(CloseReason::Failed(error.into()));
                }
            }
        }
    }

    /// Writes once. Returns the number of bytes that the socket accepted.
    fn write(&self, slices: &[IoSlice<'_>], pass: &mut Pass) -> io::Result<usize> {
        self.counters.kernel_writes.add(1);
        let (len, is_full) = match self.socket.try_write(slices) {
            Ok(Moved { len, is_exhausted }) => (len, is_exhausted),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (0, true),
            Err(error) => return Err(error),
        };
        self.counters.sent_bytes.add(len as u64);
        pass.advance(len, is_full);
        Ok(len)
    }

    fn tell_waiters(&self, has_made_room: bool) {
        if has_made_room {
            self.room.notify_waiters();
        }
    }

    fn try_lock_scheduler(&self) -> Option<MutexGuard<'_, WriteScheduler>> {
        self.scheduler.try_lock()
    }

    /// Writes whenever it is this task's turn, so that senders need not. Returns when nothing will
    /// be written any more.
    ///
    /// # Cancel safety
    ///
    /// Safe to restart: the queue's state decides what to do, not the notification.
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
                Turn::Driver(Blocked::TurnOver | Blocked::Deferred) => yield_now().await,
                Turn::Driver(Blocked::SocketFull) => {
                    let writable = poll_fn(|cx| self.socket.poll_writable(cx)).await;
                    if let Err(error) = writable {
                        return self.fail(CloseReason::Failed(error.into()));
                    }
                    self.queue().handle_writable();
                }
            }
            // Retrying in a loop would keep the core from the very thread that writes, if that
            // thread was preempted, until the scheduler's next tick, milliseconds later.
            if self.flush(Writer::Driver) == Flushed::Elsewhere {
                self.driver_wakeup.notified().await;
            }
        }
    }

    /// Ends the connection at once. Sends nothing more, and notifies the connection's task.
    pub(crate) fn fail(&self, reason: CloseReason) {
        self.queue().close(reason);
        // Frees the queued frames, or leaves that to the task that is writing.
        self.flush(Writer::Sender);
        // Wakes senders only after the queue is closed. They check it again, and must find the
        // reason.
        self.large_budget.close();
        self.room.notify_waiters();
        self.close.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use futures::FutureExt as _;
    use futures::channel::oneshot;
    use rpc_core::handoff::Handoff;
    use rpc_core::pool::Pool;
    use rpc_core::transport::Transport as _;
    use rpc_core::wire::HEADER_LEN;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixStream;

    use super::*;
    use crate::codec::record::RECORD_HEADER_LEN;
    use crate::connection::read::tests::OnFrame;
    use crate::connection::transport::SocketTransport;
    use crate::send::queue::DEFERRED_COUNT_MIN;

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_driver_sleeps_while_another_task_writes() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let _context = runtime.enter();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let shared = SocketTransport::new(ours, Pool::new(0)).shared;
        while shared.queue().turn() != Turn::Driver(Blocked::SocketFull) {
            shared.push(|queue| queue.push_bytes(&[0; 44])).unwrap();
        }
        shared.queue().handle_writable();
        // The notification is already there.
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
        // It gets its turn once.
        assert_eq!(polls.by_ref().take(10).count(), 1);
        drop(another_task);
        shared.driver_wakeup.notify_one();
        assert!(polls.next().is_some(), "it is told when it can go on");
    }

    /// Returns true if a frame reaches the peer while its sender blocks a thread.
    async fn deferred_frame_leaves() -> bool {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let transport = SocketTransport::new(ours, Pool::new(0));
        let shared = Arc::clone(&transport.shared);
        shared.queue().set_woken(DEFERRED_COUNT_MIN);
        let (waits, is_waiting) = oneshot::channel();
        let mut waits = Some(waits);
        let writer = tokio::spawn(async move {
            let mut writing = pin!(shared.drive_writes());
            poll_fn(|context| {
                let written = writing.as_mut().poll(context);
                waits.take().map(|waits| waits.send(()));
                written
            })
            .await;
        });
        is_waiting.await.unwrap();
        let (heard, has_heard) = std::sync::mpsc::channel();
        let sender = tokio::spawn(async move {
            transport.send_control([7; HEADER_LEN]).unwrap();
            has_heard.recv_timeout(Duration::from_secs(2)).is_ok()
        });
        let mut record = [0; RECORD_HEADER_LEN + HEADER_LEN];
        theirs.read_exact(&mut record).await.unwrap();
        // Fails if the sender has given up. Its frame has left only then.
        let _ = heard.send(());
        writer.abort();
        sender.await.unwrap()
    }

    /// Without this, the frame of a sender that computes or blocks would wait with it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_deferred_frame_leaves_while_its_sender_blocks() {
        for _ in 0..3 {
            if deferred_frame_leaves().await {
                return;
            }
            // A worker that was about to park did not look for the task that writes.
        }
        panic!("three frames in a row left only after their senders' threads were free");
    }

    #[tokio::test]
    async fn deferred_frames_leave_before_a_connection_closes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let transport = SocketTransport::new(ours, Pool::new(0));
        transport.start(Arc::new(OnFrame(|_, _: &mut Handoff| {})));
        // The connection's task waits for bytes. Its first turn would end the deferral.
        tokio::task::yield_now().await;
        transport.shared.queue().set_woken(DEFERRED_COUNT_MIN);
        transport.send_control([7; HEADER_LEN]).unwrap();
        assert_eq!(transport.shared.queue().turn(), Turn::Driver(Blocked::Deferred));
        transport.close();
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), RECORD_HEADER_LEN + HEADER_LEN);
    }

    #[tokio::test]
    async fn a_partly_written_record_is_completed() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let transport = SocketTransport::new(ours, Pool::new(0));
        let record = [5; 2000];
        let mut sent = 0;
        while transport.shared.queue().turn() != Turn::Driver(Blocked::SocketFull) {
            transport.shared.push_record(&record).unwrap();
            sent += record.len();
        }
        let mut received = vec![0; sent];
        tokio::select! {
            () = transport.shared.drive_writes() => panic!("the connection is open"),
            read = theirs.read_exact(&mut received) => drop(read.unwrap()),
        }
        assert!(received.iter().all(|byte| *byte == 5));
    }
}
