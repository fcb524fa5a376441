//! Which slots of a shared receive queue the device has.
//!
//! A table because a shared receive queue completes out of order. Pure: it moves numbers, and the
//! caller moves memory. A slot goes
//!
//! ```text
//! idle --posting--> posted --complete--> idle
//! ```
//!
//! and a completion for a slot that is not posted is refused.

/// The state of every slot.
#[derive(Debug)]
pub(super) struct SlotTable {
    posted: Vec<bool>,
    idle: Vec<u16>,
}

impl SlotTable {
    /// A table of `count` idle slots.
    pub(super) fn new(count: u16) -> Self {
        Self { posted: vec![false; usize::from(count)], idle: (0..count).rev().collect() }
    }

    /// Marks all idle slots as posted and appends them to `batch`.
    pub(super) fn post_idle(&mut self, batch: &mut Vec<u16>) {
        while let Some(slot) = self.idle.pop() {
            self.posted[usize::from(slot)] = true;
            batch.push(slot);
        }
    }

    /// Marks a slot as idle that was posted; returns whether it was.
    #[must_use]
    pub(super) fn complete(&mut self, slot: u16) -> bool {
        match self.posted.get_mut(usize::from(slot)) {
            Some(posted) if *posted => {
                *posted = false;
                self.idle.push(slot);
                true
            }
            _ => false,
        }
    }

    /// Number of slots that the device does not have.
    pub(super) fn idle_count(&self) -> usize {
        self.idle.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_complete_in_any_order_and_only_once() {
        let mut table = SlotTable::new(4);
        let mut batch = Vec::new();
        table.post_idle(&mut batch);
        assert_eq!(batch, [0, 1, 2, 3]);
        assert!(table.complete(2) && table.complete(0));
        assert!(!table.complete(2), "a second completion of a slot");
        assert!(!table.complete(4), "a slot that does not exist");
        assert_eq!(table.idle_count(), 2);
        batch.clear();
        table.post_idle(&mut batch);
        batch.sort_unstable();
        assert_eq!(batch, [0, 2]);
        assert!(table.complete(2));
    }
}
