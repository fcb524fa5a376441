//! The frames of one direction of a call, put back into their order.
//!
//! A large frame may be overtaken by small ones, so that every frame of a stream carries its
//! place. What came too early waits here; the caller says, from its window, how much that can be.

use std::collections::BTreeMap;

use crate::wire::ProtocolError;

/// Items in the order of their places, which count from 0.
#[derive(Debug)]
pub struct Reorder<T> {
    next: u64,
    early: BTreeMap<u64, T>,
}

impl<T> Default for Reorder<T> {
    fn default() -> Self {
        Self { next: 0, early: BTreeMap::new() }
    }
}

impl<T> Reorder<T> {
    /// The sequence number of the item that comes next.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The highest sequence number of the items ahead.
    #[must_use]
    pub fn furthest(&self) -> Option<u64> {
        self.early.last_key_value().map(|(seq, _)| *seq)
    }

    /// Takes the item with that sequence number, before which at most `before_max` items can be missing.
    ///
    /// # Errors
    ///
    /// When the number was taken already, or is further ahead than that.
    pub fn insert(&mut self, seq: u64, item: T, before_max: u64) -> Result<(), ProtocolError> {
        let ahead = seq.checked_sub(self.next).filter(|ahead| *ahead <= before_max);
        if ahead.is_none() || self.early.contains_key(&seq) {
            return Err(ProtocolError::Invalid {
                what: "place of a frame in its call",
                value: seq,
            });
        }
        self.early.insert(seq, item);
        Ok(())
    }

    /// How many items wait for one before them.
    #[must_use]
    pub fn early_count(&self) -> usize {
        self.early.len()
    }

    /// The next item in order, if it is there.
    pub fn take(&mut self) -> Option<T> {
        let item = self.early.remove(&self.next)?;
        self.next += 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_is_taken_once() {
        let mut reorder = Reorder::default();
        reorder.insert(1, 'b', 9).unwrap();
        assert_eq!((reorder.take(), reorder.furthest()), (None, Some(1)));
        assert!(reorder.insert(1, 'c', 9).is_err());
        reorder.insert(0, 'a', 9).unwrap();
        assert_eq!((reorder.take(), reorder.take(), reorder.take()), (Some('a'), Some('b'), None));
        assert!(reorder.insert(0, 'a', 9).is_err());
    }

    #[test]
    fn a_place_that_is_too_far_ahead_is_refused() {
        let mut reorder = Reorder::default();
        assert!(reorder.insert(3, 'd', 2).is_err());
        reorder.insert(2, 'c', 2).unwrap();
        reorder.insert(0, 'a', 0).unwrap();
        assert_eq!((reorder.take(), reorder.next()), (Some('a'), 1));
        assert!(reorder.insert(u64::MAX, 'z', 1).is_err());
    }

    proptest! {
        #[test]
        fn any_order_of_arrival_comes_out_in_order(
            places in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut reorder = Reorder::default();
            let mut out = Vec::new();
            for seq in places {
                reorder.insert(seq, seq, 40).unwrap();
                while let Some(item) = reorder.take() { out.push(item); }
            }
            prop_assert_eq!(out, (0..40).collect::<Vec<_>>());
        }
    }
}
