//! The slots of a shared receive queue that the device has.
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
    /// For each slot that is posted, its place in the order of all posts.
    posted: Vec<Option<u64>>,
    idle: Vec<u16>,
    next_post: u64,
    /// The latest post that has completed.
    newest_completed: u64,
}

impl SlotTable {
    /// A table of `count` idle slots.
    pub(super) fn new(count: u16) -> Self {
        Self {
            posted: vec![None; usize::from(count)],
            idle: (0..count).rev().collect(),
            next_post: 0,
            newest_completed: 0,
        }
    }

    /// Marks all idle slots as posted and appends them to `batch`.
    pub(super) fn post_idle(&mut self, batch: &mut Vec<u16>) {
        while let Some(slot) = self.idle.pop() {
            self.posted[usize::from(slot)] = Some(self.next_post);
            self.next_post += 1;
            batch.push(slot);
        }
    }

    /// Marks a slot as idle that was posted; returns its place in the order of all posts.
    #[must_use]
    pub(super) fn complete(&mut self, slot: u16) -> Option<u64> {
        let post = self.posted.get_mut(usize::from(slot)).and_then(Option::take)?;
        self.newest_completed = self.newest_completed.max(post);
        self.idle.push(slot);
        Some(post)
    }

    /// Marks a slot as idle that the device did not take.
    pub(super) fn take_back(&mut self, slot: u16) {
        if self.posted[usize::from(slot)].take().is_some() {
            self.idle.push(slot);
        }
    }

    /// The posted slots that were posted before `post`.
    pub(super) fn posted_before(&self, post: u64) -> impl Iterator<Item = u16> {
        let is_before = move |posted: &Option<u64>| posted.is_some_and(|posted| posted < post);
        (0..).zip(&self.posted).filter(move |(_, posted)| is_before(posted)).map(|(slot, _)| slot)
    }

    /// Number of slots that the device does not have.
    pub(super) fn idle_count(&self) -> usize {
        self.idle.len()
    }

    /// Number of posted slots that were posted before one that has completed.
    pub(super) fn overtaken_count(&self) -> usize {
        self.posted.iter().flatten().filter(|post| **post < self.newest_completed).count()
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
        assert!(table.complete(2).is_some() && table.complete(0).is_some());
        assert_eq!(table.complete(2), None, "a second completion of a slot");
        assert_eq!(table.complete(4), None, "a slot that does not exist");
        assert_eq!(table.idle_count(), 2);
        batch.clear();
        table.post_idle(&mut batch);
        batch.sort_unstable();
        assert_eq!(batch, [0, 2]);
        assert!(table.complete(2).is_some_and(|post| post >= 4));
    }

    #[test]
    fn overtaken_slots_are_counted_until_they_complete() {
        let mut table = SlotTable::new(4);
        table.post_idle(&mut Vec::new());
        assert!(table.complete(1).is_some() && table.complete(3).is_some());
        assert_eq!(table.overtaken_count(), 2, "0 and 2");
        assert_eq!(table.posted_before(2).collect::<Vec<_>>(), [0]);
        table.post_idle(&mut Vec::new());
        table.take_back(1);
        assert_eq!((table.overtaken_count(), table.idle_count()), (2, 1));
        assert!(table.complete(0).is_some());
        assert_eq!(table.overtaken_count(), 1);
    }
}
