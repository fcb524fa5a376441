//! Readiness of a stream for reads and writes.
//!
//! A stream keeps only the waker of its last poll. If each task polled with its own waker, an
//! attempt from a sender's task would replace the waker of the connection's task, which would then
//! sleep forever. All polls of a stream therefore use one waker, its [`Readiness`], which knows the
//! waiting task.
//!
//! A wake-up makes both directions ready. A TLS stream may have to write in order to read, and its
//! reads then wait in the same slot as its writes.
//!
//! ```text
//!            attempt refused           task waits            wake
//!   Ready ───────────────────> Refused ──────────> Waiting ────────> Ready
//!     ^                           │ wake
//!     │   task has been let go    v
//!     └──────────────────────── Woken
//! ```
//!
//! `Woken` is a wake-up that arrived before the task waited. The task still waits once, and is
//! woken at once: a cooperative stream refuses and wakes within the same poll, and a task that
//! retried without a pause would spin forever.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::{Mutex, MutexGuard};

/// A direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// The state of one direction. The module documents the transitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ReadinessState {
    /// An attempt may succeed.
    #[default]
    Ready,
    /// The last attempt was refused, or is running.
    Refused,
    /// The task waits for a wake-up.
    Waiting,
    /// A wake-up arrived, and the task has not waited for it.
    Woken,
}

#[derive(Debug, Default)]
struct Inner {
    read: ReadinessState,
    write: ReadinessState,
    /// The task that waits for either direction.
    task: Option<Waker>,
}

impl Inner {
    fn state(&mut self, direction: Direction) -> &mut ReadinessState {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Write => &mut self.write,
        }
    }
}

/// The readiness of both directions of a stream, and the waker that the stream is polled with.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<Inner>);

impl Readiness {
    /// Held for a few instructions at a time, and never while a stream is polled: a stream may wake
    /// within its poll.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Attempts an operation that may be refused. A wake-up during the attempt counts as one after
    /// the refusal.
    pub(super) fn attempt<T>(
        &self,
        direction: Direction,
        poll: impl FnOnce() -> T,
        is_refused: impl FnOnce(&T) -> bool,
    ) -> T {
        // Refused before the poll, not after it: a wake-up within the poll would otherwise find
        // `Ready` and be lost.
        let before = std::mem::replace(self.lock().state(direction), ReadinessState::Refused);
        let outcome = poll();
        if is_refused(&outcome) {
            return outcome;
        }
        let mut inner = self.lock();
        let since = std::mem::replace(inner.state(direction), ReadinessState::Ready);
        // The task waits for an earlier attempt. This success may have made the stream forget that
        // attempt's waker, so nothing else would wake the task.
        if before == ReadinessState::Waiting || since == ReadinessState::Waiting {
            let task = inner.task.take();
            drop(inner);
            task.into_iter().for_each(Waker::wake);
        }
        outcome
    }

    /// Waits until an attempt may succeed. Only one task can wait at a time, for both directions
    /// together.
    pub(super) fn poll(&self, direction: Direction, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        let state = inner.state(direction);
        match *state {
            ReadinessState::Ready => return Poll::Ready(()),
            ReadinessState::Refused | ReadinessState::Waiting => *state = ReadinessState::Waiting,
            // Lets other tasks run once, even though the stream is ready. See the module's
            // documentation.
            ReadinessState::Woken => {
                *state = ReadinessState::Ready;
                cx.waker().wake_by_ref();
            }
        }
        match &mut inner.task {
            Some(task) => task.clone_from(cx.waker()),
            task => *task = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Returns true if an attempt may succeed now.
    pub(super) fn is_ready(&self, direction: Direction) -> bool {
        matches!(self.lock().state(direction), ReadinessState::Ready | ReadinessState::Woken)
    }
}

impl Wake for Readiness {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut inner = self.lock();
        for direction in [Direction::Read, Direction::Write] {
            let state = inner.state(direction);
            match *state {
                ReadinessState::Refused => *state = ReadinessState::Woken,
                ReadinessState::Waiting => *state = ReadinessState::Ready,
                ReadinessState::Ready | ReadinessState::Woken => {}
            }
        }
        // Wakes after the lock is released. A waker may run code that takes this lock again.
        let task = inner.task.take();
        drop(inner);
        task.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Direction::{Read, Write};
    use super::*;

    /// A task that counts its wake-ups.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Task {
        fn take_wakes(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    fn refuse(readiness: &Readiness, direction: Direction) {
        readiness.attempt(direction, || {}, |()| true);
    }

    fn succeed(readiness: &Readiness, direction: Direction) {
        readiness.attempt(direction, || {}, |()| false);
    }

    /// Makes an attempt that is refused and woken within the same poll.
    fn refuse_and_wake(readiness: &Arc<Readiness>, direction: Direction) {
        readiness.attempt(direction, || readiness.wake_by_ref(), |()| true);
    }

    /// Polls as often as the task is woken. Returns true if it became ready.
    fn run(readiness: &Readiness, direction: Direction, task: &Arc<Task>) -> bool {
        let waker = Waker::from(Arc::clone(task));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..10 {
            if readiness.poll(direction, &mut cx).is_ready() {
                return true;
            }
            if task.take_wakes() == 0 {
                return false;
            }
        }
        panic!("the task spins");
    }

    #[test]
    fn a_wake_is_not_lost_whenever_it_comes() {
        let task = Arc::new(Task::default());
        for direction in [Read, Write] {
            let readiness = Arc::new(Readiness::default());
            assert!(run(&readiness, direction, &task), "an attempt has not been made");
            // After the refusal, before the task waits.
            refuse(&readiness, direction);
            readiness.wake_by_ref();
            assert!(run(&readiness, direction, &task));
            // During the attempt.
            refuse_and_wake(&readiness, direction);
            assert!(run(&readiness, direction, &task));
            // While the task waits.
            refuse(&readiness, direction);
            assert!(!run(&readiness, direction, &task));
            readiness.wake_by_ref();
            assert_eq!(task.take_wakes(), 1);
            assert!(run(&readiness, direction, &task));
        }
    }

    #[test]
    fn a_wake_within_a_refusal_yields_each_time() {
        let (readiness, task) = (Arc::new(Readiness::default()), Arc::new(Task::default()));
        let waker = Waker::from(Arc::clone(&task));
        let mut cx = Context::from_waker(&waker);
        for _ in 0..3 {
            refuse_and_wake(&readiness, Read);
            assert!(readiness.poll(Read, &mut cx).is_pending());
            assert!(task.take_wakes() > 0);
            assert!(readiness.poll(Read, &mut cx).is_ready());
        }
    }

    #[test]
    fn a_wake_lets_both_directions_try_again() {
        let (readiness, task) = (Arc::new(Readiness::default()), Arc::new(Task::default()));
        for direction in [Read, Write] {
            refuse(&readiness, direction);
            assert!(!run(&readiness, direction, &task));
        }
        assert!(!readiness.is_ready(Read) && !readiness.is_ready(Write));
        readiness.wake_by_ref();
        assert!(readiness.is_ready(Read) && readiness.is_ready(Write));
        assert!(run(&readiness, Read, &task) && run(&readiness, Write, &task));
    }

    #[test]
    fn other_attempts_neither_lose_nor_replace_the_waiter() {
        let (readiness, task) = (Arc::new(Readiness::default()), Arc::new(Task::default()));
        refuse(&readiness, Write);
        assert!(!run(&readiness, Write, &task));
        // A sender is refused, too. Then the stream has room.
        refuse(&readiness, Write);
        readiness.wake_by_ref();
        assert!(task.take_wakes() > 0);
        assert!(run(&readiness, Write, &task));
        // A sender succeeds while the task waits.
        refuse(&readiness, Write);
        assert!(!run(&readiness, Write, &task));
        succeed(&readiness, Write);
        assert!(task.take_wakes() > 0);
        assert!(run(&readiness, Write, &task));
    }
}
