//! Counts the completions that queues may produce, so that a completion queue cannot overrun.
//!
//! An overrun is fatal for the completion queue and all its queue pairs, so a queue is refused when
//! its completions would not fit. Completions of a queue that is gone may still lie in the
//! completion queue: its share is free again only after the completion queue was found empty.

use std::sync::atomic::{AtomicU32, Ordering};

use super::VerbsError;

/// The entries of one completion queue and who has claimed them.
#[derive(Debug)]
pub(super) struct CompletionBudget {
    capacity: u32,
    claimed: AtomicU32,
    retired: AtomicU32,
}

impl CompletionBudget {
    pub(super) fn new(capacity: u32) -> Self {
        Self { capacity, claimed: AtomicU32::new(0), retired: AtomicU32::new(0) }
    }

    /// Claims `count` entries for a new queue.
    pub(super) fn claim(&self, count: u32) -> Result<(), VerbsError> {
        let add = |claimed: u32| claimed.checked_add(count).filter(|sum| *sum <= self.capacity);
        match self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(claimed) => Err(VerbsError::CompletionQueueFull {
                asked: count,
                free: self.capacity - claimed,
                capacity: self.capacity,
            }),
        }
    }

    /// Marks the entries of a queue that is gone; they are free after the next emptying.
    pub(super) fn retire(&self, count: u32) {
        // Release pairs with the acquire below: the queue was destroyed before this point, so a
        // poll that starts after seeing it finds whatever the queue left behind.
        self.retired.fetch_add(count, Ordering::Release);
    }

    /// What was retired before a poll begins; give it to [`free`](Self::free) if the poll empties
    /// the queue.
    pub(super) fn retired(&self) -> u32 {
        self.retired.load(Ordering::Acquire)
    }

    /// Frees entries whose queues were gone before the completion queue was found empty.
    pub(super) fn free(&self, count: u32) {
        self.retired.fetch_sub(count, Ordering::Relaxed);
        self.claimed.fetch_sub(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_share_is_free_only_after_the_queue_was_emptied() {
        let budget = CompletionBudget::new(10);
        budget.claim(6).unwrap();
        budget.retire(6);
        let error = budget.claim(5).unwrap_err();
        assert!(matches!(error, VerbsError::CompletionQueueFull { asked: 5, free: 4, .. }));
        budget.free(budget.retired());
        budget.claim(10).unwrap();
        assert!(budget.claim(1).is_err());
        assert!(budget.claim(u32::MAX).is_err());
    }
}
