//! The frames of one direction of a call, put back into their order.
//!
//! A large frame may be overtaken by small ones, so that every frame of a stream carries a sequence
//! number. Frames that are ahead wait here; the caller bounds them by its window.

use std::collections::BTreeMap;

use crate::wire::ProtocolError;

/// Items by their sequence numbers, which count from 0.
#[derive(Debug)]
pub struct Assembler<T> {
    next: u64,
    /// The item whose turn it is, most of which are taken at once.
    front: Option<T>,
    ahead: BTreeMap<u64, T>,
}

impl<T> Default for Assembler<T> {
    fn default() -> Self {
        Self { next: 0, front: None, ahead: BTreeMap::new() }
    }
}

impl<T> Assembler<T> {
    /// The sequence number of the item that comes next.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The highest sequence number of the items ahead.
    #[must_use]
    pub fn furthest(&self) -> Option<u64> {
        let last = self.ahead.last_key_value().map(|(seq, _)| *seq);
        last.or(self.front.as_ref().map(|_| self.next))
    }

    /// Inserts the item with that sequence number, before which at most `before_max` items can be
    /// missing.
    ///
    /// # Errors
    ///
    /// When the number was taken already, or is further ahead than that.
    pub fn insert(&mut self, seq: u64, item: T, before_max: u64) -> Result<(), ProtocolError> {
        let ahead = seq.checked_sub(self.next).filter(|ahead| *ahead <= before_max);
        let is_front = seq == self.next;
        let is_taken = is_front && self.front.is_some() || self.ahead.contains_key(&seq);
        if ahead.is_none() || is_taken {
            return Err(ProtocolError::Invalid {
                what: "place of a frame in its call",
                value: seq,
            });
        }
        if is_front {
            self.front = Some(item);
        } else {
            self.ahead.insert(seq, item);
        }
        Ok(())
    }

    /// Returns the number of items that wait for an earlier one.
    #[must_use]
    pub fn ahead_count(&self) -> usize {
        self.ahead.len() + usize::from(self.front.is_some())
    }

    /// The next item in order, if it is there.
    pub fn take(&mut self) -> Option<T> {
        let item = self.front.take().or_else(|| self.ahead.remove(&self.next))?;
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
        let mut assembler = Assembler::default();
        assembler.insert(1, 'b', 9).unwrap();
        assert_eq!((assembler.take(), assembler.furthest()), (None, Some(1)));
        assert!(assembler.insert(1, 'c', 9).is_err());
        assembler.insert(0, 'a', 9).unwrap();
        assert_eq!(
            (assembler.take(), assembler.take(), assembler.take()),
            (Some('a'), Some('b'), None)
        );
        assert!(assembler.insert(0, 'a', 9).is_err());
    }

    #[test]
    fn a_place_that_is_too_far_ahead_is_refused() {
        let mut assembler = Assembler::default();
        assert!(assembler.insert(3, 'd', 2).is_err());
        assembler.insert(2, 'c', 2).unwrap();
        assembler.insert(0, 'a', 0).unwrap();
        assert_eq!((assembler.take(), assembler.next()), (Some('a'), 1));
        assert!(assembler.insert(u64::MAX, 'z', 1).is_err());
    }

    #[test]
    fn what_is_ahead_is_counted_until_it_is_taken() {
        let mut assembler = Assembler::default();
        assert_eq!((assembler.next(), assembler.furthest(), assembler.ahead_count()), (0, None, 0));
        for seq in [2, 0, 5] {
            assembler.insert(seq, seq, 9).unwrap();
        }
        assert_eq!((assembler.furthest(), assembler.ahead_count()), (Some(5), 3));
        assert_eq!((assembler.take(), assembler.take()), (Some(0), None));
        assembler.insert(1, 1, 9).unwrap();
        assert_eq!((assembler.take(), assembler.take()), (Some(1), Some(2)));
        assert_eq!((assembler.next(), assembler.ahead_count()), (3, 1));
    }

    proptest! {
        #[test]
        fn any_order_of_arrival_comes_out_in_order(
            places in Just((0u64..40).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut assembler = Assembler::default();
            let mut out = Vec::new();
            for seq in places {
                assembler.insert(seq, seq, 40).unwrap();
                while let Some(item) = assembler.take() { out.push(item); }
            }
            prop_assert_eq!(out, (0..40).collect::<Vec<_>>());
        }
    }
}
