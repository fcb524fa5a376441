//! The frames of one direction of a call, put back into their order.
//!
//! A large frame may be overtaken by small ones, so that every frame of a stream carries its
//! place. What came too early waits here; windows bound how much that can be.

use std::collections::BTreeMap;

use crate::wire::ProtocolError;

/// Places further ahead than this cannot be: a window has fewer messages.
const AHEAD_MAX: u64 = 1 << 16;

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
    /// Takes the item of a place.
    ///
    /// # Errors
    ///
    /// When the place has been taken, or is too far ahead to be true.
    pub fn insert(&mut self, place: u64, item: T) -> Result<(), ProtocolError> {
        let ahead = place.checked_sub(self.next).filter(|ahead| *ahead < AHEAD_MAX);
        if ahead.is_none() || self.early.contains_key(&place) {
            return Err(ProtocolError::Invalid {
                what: "place of a frame in its call",
                value: place,
            });
        }
        self.early.insert(place, item);
        Ok(())
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
        reorder.insert(1, 'b').unwrap();
        assert_eq!(reorder.take(), None);
        assert!(reorder.insert(1, 'c').is_err());
        reorder.insert(0, 'a').unwrap();
        assert_eq!((reorder.take(), reorder.take(), reorder.take()), (Some('a'), Some('b'), None));
        assert!(reorder.insert(0, 'a').is_err());
        assert!(reorder.insert(AHEAD_MAX + 2, 'z').is_err());
    }

    proptest! {
        #[test]
        fn any_order_of_arrival_comes_out_in_order(
            places in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut reorder = Reorder::default();
            let mut out = Vec::new();
            for place in places {
                reorder.insert(place, place).unwrap();
                while let Some(item) = reorder.take() { out.push(item); }
            }
            prop_assert_eq!(out, (0..40).collect::<Vec<_>>());
        }
    }
}
