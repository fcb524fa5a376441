//! Frames on their way in: put back into their order, and the budget of large ones being received.
//!
//! A large frame may be overtaken by small ones, so that every frame of a stream carries a sequence
//! number. Frames that are ahead wait in an [`Assembler`]; the caller bounds them by its window.
//!
//! An announced message counts from its announcement until it has arrived, also when its call is
//! given up meanwhile, since its memory is in use until then. With each goes a value of the
//! driver's, which comes back with the message: what it has counted for it elsewhere.

use std::collections::{BTreeMap, HashMap};

use crate::wire::ProtocolError;

/// A frame counts at least that much, in bytes. Every announced frame takes entries in tables, here
/// and in its transport, however short it is: counted by its length alone, a peer that announces
/// frames of 33 bytes would fill 256 MiB with 8 million of them. Transports announce frames that
/// are longer.
pub(crate) const FRAME_LEN_MIN: u64 = 1 << 10;

/// Memory of an announced frame besides its bytes: an entry here and one in the table of calls, in
/// tables with twice the room that they need. In bytes.
pub(crate) const FRAME_HELD: u64 = 256;

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
        // All that is ahead is further than the item in front.
        let last = self.ahead.last_key_value().map(|(seq, _)| *seq);
        last.or(self.front.as_ref().map(|_| self.next))
    }

    /// Inserts the item with that sequence number, before which at most `before_max` items can be
    /// missing.
    ///
    /// # Errors
    ///
    /// Returns an error if the number was taken already, or is further ahead than that.
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
        // Most frames come in order: those never touch the map, which allocates.
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
        // An item that came early is still in the map when its turn comes: it never moves to the
        // front.
        let item = self.front.take().or_else(|| self.ahead.remove(&self.next))?;
        self.next += 1;
        Some(item)
    }
}

/// The budget of bytes being received on one connection.
#[derive(Debug)]
pub struct ReceiveBudget<T> {
    frames: HashMap<(u64, u64), (u64, T)>,
    bytes: u64,
    bytes_max: u64,
}

/// A message that does not fit beside those already on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// Bytes that are announced already.
    pub bytes: u64,
    /// The budget, in bytes.
    pub bytes_max: u64,
}

impl<T> ReceiveBudget<T> {
    /// A budget of `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self { frames: HashMap::new(), bytes: 0, bytes_max }
    }

    /// Counts an announced frame of `len` bytes, known by its call and its sequence number there.
    ///
    /// # Errors
    ///
    /// Returns `OverBudget` if it does not fit; it is then not counted. A message longer than the
    /// whole budget is let through alone, since the limit on messages has admitted it.
    pub fn announce(&mut self, frame: (u64, u64), len: u64, value: T) -> Result<(), OverBudget> {
        let counted = counted(len);
        // The sum may be out of range: limits may be as high as `u64::MAX`.
        let sum = self.bytes.checked_add(counted);
        let fits = sum.is_some_and(|sum| sum <= self.bytes_max) || self.frames.is_empty();
        if !fits || self.frames.contains_key(&frame) {
            return Err(OverBudget { bytes: self.bytes, bytes_max: self.bytes_max });
        }
        self.frames.insert(frame, (len, value));
        // Cannot overflow: the sum is in range, or the frame is alone and `bytes` was 0.
        self.bytes += counted;
        Ok(())
    }

    /// Stops counting a frame of `len` bytes that was announced and has arrived, and gives back its
    /// value.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if the frame's header names another frame than its announcement did,
    /// or another length: what was announced must be forgotten with its memory, and not before or
    /// after.
    pub fn arrived(&mut self, frame: (u64, u64), len: u64) -> Result<T, ProtocolError> {
        let what = "length of a frame that was announced as another";
        // Checked before it is removed: after a mismatch the memory of the announced frame is still
        // in use, and still counts.
        let is_announced = self.frames.get(&frame).is_some_and(|(announced, _)| *announced == len);
        let value = is_announced.then(|| self.withheld(frame)).flatten();
        value.ok_or(ProtocolError::Invalid { what, value: len })
    }

    /// Checks that a frame that has come whole is not one of those on their way.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if a frame of that name was announced and has not arrived. Its
    /// memory is still in use, so that it must not be taken for this one.
    pub fn came_whole(&self, frame: (u64, u64)) -> Result<(), ProtocolError> {
        // Hardly ever is anything announced, and every short frame comes by here.
        if self.frames.is_empty() || !self.frames.contains_key(&frame) {
            return Ok(());
        }
        let what = "call of a frame that came while another of its name was on its way";
        Err(ProtocolError::Invalid { what, value: frame.0 })
    }

    /// Stops counting an announced frame that will not come, and gives back its value.
    pub fn withheld(&mut self, frame: (u64, u64)) -> Option<T> {
        let (len, value) = self.frames.remove(&frame)?;
        self.bytes -= counted(len);
        Some(value)
    }

    /// The bytes on their way; a short frame counts 1 KiB.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the bytes that a frame of `len` bytes counts.
fn counted(len: u64) -> u64 {
    len.max(FRAME_LEN_MIN)
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

    /// Their entries would take more memory than what they count.
    #[test]
    fn short_frames_are_few() {
        let mut budget = ReceiveBudget::new(100 << 10);
        let announced = (0..1000).take_while(|call| budget.announce((*call, 0), 33, ()).is_ok());
        assert_eq!(announced.count(), 100);
        assert_eq!(budget.arrived((7, 0), 33), Ok(()));
        budget.announce((7, 0), 33, ()).unwrap();
        assert!((0..100).all(|call| budget.withheld((call, 0)).is_some()));
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn lengths_that_add_up_to_more_than_a_count_holds_do_not_fit() {
        let mut budget = ReceiveBudget::new(u64::MAX);
        budget.announce((1, 0), u64::MAX, ()).unwrap();
        assert!(budget.announce((2, 0), 1, ()).is_err());
        assert_eq!(budget.bytes(), u64::MAX);
    }

    #[test]
    fn what_has_arrived_makes_room() {
        let mut budget = ReceiveBudget::new(10_000);
        budget.announce((1, 0), 6000, 60).unwrap();
        assert_eq!(
            budget.announce((2, 0), 6000, 60),
            Err(OverBudget { bytes: 6000, bytes_max: 10_000 })
        );
        assert_eq!(budget.arrived((1, 0), 6000), Ok(60));
        assert!(budget.arrived((1, 0), 6000).is_err(), "it has arrived");
        budget.came_whole((1, 0)).unwrap();
        budget.announce((2, 0), 6000, 60).unwrap();
        assert_eq!(budget.bytes(), 6000);
    }

    #[test]
    fn a_small_frame_does_not_make_room_in_the_name_of_a_large_one() {
        let mut budget = ReceiveBudget::new(10_000);
        budget.announce((1, 0), 6000, 60).unwrap();
        assert!(budget.arrived((1, 0), 40).is_err());
        assert_eq!(budget.bytes(), 6000);
    }

    #[test]
    fn a_message_over_the_whole_budget_travels_alone() {
        let mut budget = ReceiveBudget::new(100);
        budget.announce((1, 0), 500, 500).unwrap();
        assert!(budget.announce((2, 0), 1, 1).is_err());
        budget.withheld((1, 0));
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn a_whole_frame_must_not_have_the_name_of_one_on_its_way() {
        let mut budget = ReceiveBudget::new(10_000);
        budget.announce((1, 3), 6000, ()).unwrap();
        budget.came_whole((1, 4)).unwrap();
        budget.came_whole((2, 3)).unwrap();
        let what = "call of a frame that came while another of its name was on its way";
        let refused = Err(ProtocolError::Invalid { what, value: 1 });
        assert_eq!(budget.came_whole((1, 3)), refused);
        assert!(budget.announce((1, 3), 1, ()).is_err(), "its name is in use");
        assert_eq!(budget.bytes(), 6000);
    }
}
