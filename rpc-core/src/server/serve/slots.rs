//! Slots for the connections of one listener. Their number may change while some are taken, which
//! a semaphore's cannot: it forgets no permit that is out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;

/// The slots that are taken.
#[derive(Debug, Default)]
pub(in crate::server) struct Slots {
    taken: AtomicU32,
    freed: Notify,
}

/// A slot. Dropped, it is free again.
#[derive(Debug)]
pub(in crate::server) struct Slot(Arc<Slots>);

impl Slots {
    /// Takes a slot if fewer than `max` are taken. Only the accept loop of the listener takes
    /// slots, so that no other task is between its look and its count.
    pub(in crate::server) fn try_take(self: &Arc<Self>, max: u32) -> Option<Slot> {
        if self.taken.load(Ordering::Relaxed) >= max {
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(Slot(Arc::clone(self)))
    }

    /// Waits until a slot has been given back since the last wait.
    ///
    /// This method is cancel safe: the next wait ends at once then.
    pub(in crate::server) async fn freed(&self) {
        self.freed.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Counted down first: an accept loop that is notified earlier could find no slot, and wait
        // again for a notification that was used up.
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn slots_become_fewer_and_more_while_they_are_taken() {
        let slots = Arc::new(Slots::default());
        let mut taken: Vec<_> = (0..3).filter_map(|_| slots.try_take(3)).collect();
        assert!(taken.len() == 3 && slots.try_take(3).is_none());
        assert!(slots.try_take(4).is_some(), "there are more now");
        for left in [2, 1] {
            drop(taken.pop());
            slots.freed().await;
            assert_eq!(slots.try_take(2).is_some(), left < 2, "there are two now");
        }
    }
}
