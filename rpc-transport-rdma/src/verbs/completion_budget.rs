//! Counts the completions that queues may produce, so that a completion queue cannot overrun.
//!
//! An overrun is fatal for the completion queue and all its queue pairs, so a queue is refused when
//! its completions would not fit. Entries go
//!
//! ```text
//!           claim               retire                    poll finds the queue empty
//!   free ----------> claimed --------------> retired ------------------------------> free
//!    ^                  |                     (completions may lie in the queue)
//!    '---- release -----'
//!  (nothing can have completed)
//! ```
//!
//! A retired entry is freed by nothing but a poll. The task that polls may sleep for as long as
//! nothing completes, so retiring wakes it: otherwise queues that come and go on an idle completion
//! queue would use it up.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::VerbsError;

/// The entries of one completion queue and the claims on them.
#[derive(Debug)]
pub(super) struct CompletionBudget {
    capacity: u32,
    claimed: AtomicU32,
    retired: AtomicU32,
    /// Entries that were ever to be retired, and that were ever freed after that.
    retired_total: AtomicU64,
    freed_total: AtomicU64,
    /// The task that polls the completion queue, while it sleeps.
    poller: AtomicWaker,
    /// Guards no value: a thread that waits holds it while it looks at the counts.
    freeing: Mutex<()>,
    freed: Condvar,
}

impl CompletionBudget {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            capacity,
            claimed: AtomicU32::new(0),
            retired: AtomicU32::new(0),
            retired_total: AtomicU64::new(0),
            freed_total: AtomicU64::new(0),
            poller: AtomicWaker::new(),
            freeing: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// Claims `count` entries for a new queue.
    pub(super) fn claim(&self, count: u32) -> Result<(), VerbsError> {
        let add = |claimed: u32| claimed.checked_add(count).filter(|sum| *sum <= self.capacity);
        match self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(claimed) => Err(VerbsError::CompletionQueueFull {
                wanted: count,
                free: self.capacity - claimed,
                capacity: self.capacity,
            }),
        }
    }

    /// Entries that are not free: claimed, or retired and not freed yet.
    pub(super) fn claimed(&self) -> u32 {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Frees the entries of a queue that is gone and that nothing was ever posted to.
    pub(super) fn release(&self, count: u32) {
        self.claimed.fetch_sub(count, Ordering::Relaxed);
        self.notify_freed();
    }

    /// Announces that the entries of a queue that is gone will be retired, and gives what
    /// [`freed_total`](Self::freed_total) will have reached when the completion queue was emptied
    /// after this.
    pub(super) fn announce(&self, count: u32) -> u64 {
        // Entries that are retired later are announced later, so that a total which includes those
        // of all that were announced before cannot be reached without an emptying after this.
        self.retired_total.fetch_add(count.into(), Ordering::AcqRel) + u64::from(count)
    }

    /// Entries that were freed by emptying the completion queue, in all.
    pub(super) fn freed_total(&self) -> u64 {
        self.freed_total.load(Ordering::Acquire)
    }

    /// Marks the entries of a queue that is gone; they are free after the next emptying, for which
    /// the task that polls is woken.
    pub(super) fn retire(&self, count: u32) {
        // Release pairs with the acquire below: the queue was destroyed before this point, so a
        // poll that starts after seeing it finds whatever the queue left behind.
        self.retired.fetch_add(count, Ordering::Release);
        self.poller.wake();
    }

    /// Returns the entries that were retired before a poll begins. Pass them to
    /// [`free`](Self::free) if the poll empties the queue.
    pub(super) fn retired(&self) -> u32 {
        self.retired.load(Ordering::Acquire)
    }

    /// Frees entries whose queues were gone before the completion queue was found empty.
    pub(super) fn free(&self, count: u32) {
        // `claimed` first: a thread that sees nothing retired any more must see the entries free.
        self.claimed.fetch_sub(count, Ordering::Relaxed);
        self.retired.fetch_sub(count, Ordering::Release);
        self.freed_total.fetch_add(count.into(), Ordering::Release);
        self.notify_freed();
    }

    /// Ready while there are retired entries, which a poll has to free. Otherwise the task is woken
    /// when there are some.
    pub(super) fn poll_retired(&self, context: &Context<'_>) -> Poll<()> {
        // Registered before looking, so that what is retired in between wakes the task.
        self.poller.register(context.waker());
        if self.retired() > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Blocks the thread until no entry is retired, for `limit` at most.
    pub(super) fn wait_until_freed(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut guard = self.freeing();
        while self.retired() > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.freed.wait_for(&mut guard, left);
        }
    }

    fn notify_freed(&self) {
        // Under the lock, so that a thread that has just looked is waiting by now.
        drop(self.freeing());
        self.freed.notify_all();
    }

    fn freeing(&self) -> MutexGuard<'_, ()> {
        self.freeing.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_retired_share_is_free_only_after_the_queue_was_emptied() {
        let budget = CompletionBudget::new(10);
        budget.claim(6).unwrap();
        budget.retire(6);
        let error = budget.claim(5).unwrap_err();
        assert!(matches!(error, VerbsError::CompletionQueueFull { wanted: 5, free: 4, .. }));
        budget.free(budget.retired());
        budget.claim(10).unwrap();
        assert!(budget.claim(1).is_err());
        assert!(budget.claim(u32::MAX).is_err());
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn retiring_wakes_the_task_that_polls() {
        let budget = CompletionBudget::new(10);
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let context = Context::from_waker(&waker);
        budget.claim(6).unwrap();
        assert!(budget.poll_retired(&context).is_pending());
        budget.retire(6);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(budget.poll_retired(&context).is_ready());
        budget.free(6);
        assert!(budget.poll_retired(&context).is_pending());
    }

    #[test]
    fn a_thread_waits_for_entries_that_a_poll_frees() {
        let budget = CompletionBudget::new(10);
        budget.claim(10).unwrap();
        budget.retire(10);
        std::thread::scope(|scope| {
            scope.spawn(|| budget.free(budget.retired()));
            budget.wait_until_freed(Duration::from_secs(30));
        });
        budget.claim(10).unwrap();
        // Nothing is retired, so there is nothing to wait for.
        budget.wait_until_freed(Duration::from_secs(30));
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Claim(u32),
        /// A queue goes that was never connected.
        Release(usize),
        /// A queue goes that may have completions in the completion queue.
        Retire(usize),
        /// The completion queue is found empty.
        Empty,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1..40u32).prop_map(Step::Claim),
            any::<usize>().prop_map(Step::Release),
            any::<usize>().prop_map(Step::Retire),
            Just(Step::Empty),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Whatever queues come and go: no more is claimed than there is, no entry is free before
        /// its completions are surely polled, a claim that fits succeeds, and in the end every
        /// entry is free.
        #[test]
        fn entries_are_never_lost_nor_given_twice(steps in steps()) {
            const CAPACITY: u32 = 100;
            let budget = CompletionBudget::new(CAPACITY);
            let (mut queues, mut retired) = (Vec::new(), 0);
            for step in steps {
                match step {
                    Step::Claim(count) => {
                        let used: u32 = queues.iter().sum::<u32>() + retired;
                        let claimed = budget.claim(count);
                        prop_assert_eq!(claimed.is_ok(), used + count <= CAPACITY);
                        queues.extend(claimed.is_ok().then_some(count));
                    }
                    Step::Release(index) if !queues.is_empty() => {
                        budget.release(queues.swap_remove(index % queues.len()));
                    }
                    Step::Retire(index) if !queues.is_empty() => {
                        let count = queues.swap_remove(index % queues.len());
                        retired += count;
                        budget.retire(count);
                    }
                    Step::Release(_) | Step::Retire(_) => {}
                    Step::Empty => {
                        budget.free(budget.retired());
                        retired = 0;
                    }
                }
                prop_assert_eq!(budget.claimed(), queues.iter().sum::<u32>() + retired);
            }
            queues.drain(..).for_each(|count| budget.retire(count));
            budget.free(budget.retired());
            prop_assert_eq!((budget.claimed(), budget.retired()), (0, 0));
        }
    }
}
