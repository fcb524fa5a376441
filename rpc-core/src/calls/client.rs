//! The client's calls in flight.
//!
//! ```text
//!            start               answer ──> answered ── take ──> (none)
//!   (none) ────────> in flight ──┤ finish ──> (none)
//!                                └ cancel ──> (none), its place held until CANCEL is sent
//! ```
//! Ids are never reused while a late response may name them: the low half is an index, the high
//! half counts every call of the connection.
//!
//! The peer takes a limited number of calls. A call in flight has one of these places. So has one
//! that is about to start, or to be cancelled: these places are held.

use slab::Slab;

/// The table of calls in flight; `T` is what the driver keeps for each.
#[derive(Debug)]
pub struct Calls<T> {
    entries: Slab<Entry<T>>,
    started_count: u32,
    answered_count: usize,
    held_count: usize,
    calls_max: u32,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    is_answered: bool,
    value: T,
}

impl<T> Calls<T> {
    /// An empty table for a peer that takes `calls_max` calls.
    #[must_use]
    pub fn new(calls_max: u32) -> Self {
        let entries = Slab::new();
        Self { entries, started_count: 0, answered_count: 0, held_count: 0, calls_max }
    }

    /// Returns true if the peer takes one more call.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight_count() + self.held_count < self.calls_max as usize
    }

    /// Holds a place. [`release`](Self::release) gives it back.
    pub fn hold(&mut self) {
        self.held_count += 1;
    }

    /// Gives back a place that was held.
    pub fn release(&mut self) {
        self.held_count -= 1;
    }

    /// Starts a call and names it.
    #[inline(always)]
    pub fn start(&mut self, value: T) -> u64 {
        self.started_count = self.started_count.wrapping_add(1);
        // An id comes back only after 2^32 calls of the connection, when no late response can name
        // the first of the two any more.
        let generation = self.started_count;
        let index = self.entries.insert(Entry { generation, is_answered: false, value });
        id_of(generation, index)
    }

    /// Ends a call in flight and leaves its value for its caller to [take](Self::take).
    #[inline(always)]
    pub fn answer(&mut self, id: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut(place(id)).filter(|entry| entry.is_in_flight(id))?;
        entry.is_answered = true;
        self.answered_count += 1;
        Some(&mut entry.value)
    }

    /// Takes the value of a call that was answered.
    #[inline(always)]
    pub fn take(&mut self, id: u64) -> Option<T> {
        let entry = self.entries.get(place(id))?;
        if !(entry.is_answered && entry.is_of(id)) {
            return None;
        }
        self.answered_count -= 1;
        Some(self.entries.remove(place(id)).value)
    }

    /// Ends a call in flight.
    pub fn finish(&mut self, id: u64) -> Option<T> {
        self.value(id)?;
        Some(self.entries.remove(place(id)).value)
    }

    /// Gives a call in flight up. Its place is held, because the peer has to be told.
    pub fn cancel(&mut self, id: u64) -> Option<T> {
        // A response that crosses the cancel finds no entry, and is dropped.
        self.finish(id).inspect(|_| self.hold())
    }

    /// Returns the driver's value for a call in flight.
    #[must_use]
    pub fn value(&self, id: u64) -> Option<&T> {
        let entry = self.entries.get(place(id)).filter(|entry| entry.is_in_flight(id))?;
        Some(&entry.value)
    }

    /// Returns the value of a call in flight like [`value`](Self::value), to change it.
    pub fn value_mut(&mut self, id: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut(place(id)).filter(|entry| entry.is_in_flight(id))?;
        Some(&mut entry.value)
    }

    /// Returns the calls in flight.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        let in_flight = self.entries.iter().filter(|(_, entry)| !entry.is_answered);
        in_flight.map(|(index, entry)| id_of(entry.generation, index)).collect()
    }

    /// Returns the number of calls in flight.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.entries.len() - self.answered_count
    }
}

impl<T> Entry<T> {
    /// Returns true if the id names this call. It is the peer's: its place may be another call's.
    fn is_of(&self, id: u64) -> bool {
        u64::from(self.generation) == id >> 32
    }

    fn is_in_flight(&self, id: u64) -> bool {
        self.is_of(id) && !self.is_answered
    }
}

/// The index that an id names.
fn place(id: u64) -> usize {
    usize::try_from(id & u64::from(u32::MAX)).unwrap_or(usize::MAX)
}

fn id_of(generation: u32, index: usize) -> u64 {
    (u64::from(generation) << 32) | index as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_late_response_does_not_end_the_call_that_took_its_place() {
        let mut calls = Calls::new(9);
        let first = calls.start('a');
        assert_eq!(calls.cancel(first), Some('a'));
        let second = calls.start('b');
        assert_ne!(first, second);
        assert_eq!((calls.finish(first), calls.answer(first)), (None, None));
        assert_eq!(calls.cancel(first), None);
        assert_eq!(calls.finish(second), Some('b'));
    }

    #[test]
    fn the_table_holds_each_call_from_its_start_to_its_end() {
        let mut calls = Calls::new(9);
        let ids: Vec<_> = (0..3).map(|number| calls.start(number)).collect();
        assert_eq!(calls.in_flight_count(), 3);
        assert_eq!(calls.ids(), ids);
        for (number, id) in ids.iter().enumerate() {
            assert_eq!(calls.value(*id), Some(&number));
        }
        assert_eq!(calls.finish(ids[1]), Some(1));
        assert_eq!(calls.value(ids[1]), None);
        assert_eq!(calls.ids(), [ids[0], ids[2]]);
    }

    #[test]
    fn an_answer_stays_for_its_caller() {
        let mut calls = Calls::new(1);
        let id = calls.start('?');
        assert_eq!(calls.take(id), None, "it is in flight");
        *calls.answer(id).unwrap() = '!';
        assert_eq!((calls.in_flight_count(), calls.has_room()), (0, true));
        assert_eq!(calls.answer(id), None);
        assert_eq!(calls.value(id), None);
        assert_eq!(calls.finish(id), None);
        assert_ne!(calls.start('?'), id, "its entry is in use");
        assert_eq!((calls.take(id), calls.take(id)), (Some('!'), None));
        assert_eq!(calls.in_flight_count(), 1);
    }

    #[test]
    fn a_cancelled_call_has_its_place_until_the_peer_knows() {
        let mut calls = Calls::new(1);
        let id = calls.start(());
        assert!(!calls.has_room());
        assert_eq!(calls.cancel(id), Some(()));
        assert_eq!((calls.in_flight_count(), calls.has_room()), (0, false));
        calls.release();
        assert!(calls.has_room());
        let id = calls.start(());
        calls.answer(id).unwrap();
        assert_eq!(calls.cancel(id), None, "the peer has ended it");
        assert!(calls.has_room());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Start,
        Finish(usize),
        Answer(usize),
        Take(usize),
        Cancel(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Start),
            2 => any::<usize>().prop_map(Step::Finish),
            2 => any::<usize>().prop_map(Step::Answer),
            2 => any::<usize>().prop_map(Step::Take),
            2 => any::<usize>().prop_map(Step::Cancel),
        ]
    }

    /// The state of a call as the table's callers see it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum At {
        InFlight,
        Answered,
        Ended,
    }

    proptest! {
        #[test]
        fn every_started_call_ends_exactly_once(steps in prop::collection::vec(step(), 0..200)) {
            let mut calls = Calls::new(8);
            let (mut ids, mut at) = (Vec::new(), Vec::<At>::new());
            for step in steps {
                let (Step::Finish(pick) | Step::Answer(pick) | Step::Take(pick)
                    | Step::Cancel(pick)) = step
                else {
                    if calls.has_room() {
                        ids.push(calls.start(ids.len()));
                        at.push(At::InFlight);
                    }
                    continue;
                };
                let Some(number) = pick.checked_rem(ids.len()) else { continue };
                let (id, before) = (ids[number], at[number]);
                let is_in_flight = before == At::InFlight;
                let in_flight = is_in_flight.then_some(number);
                match step {
                    Step::Answer(_) => {
                        prop_assert_eq!(calls.answer(id).copied(), in_flight);
                        at[number] = if is_in_flight { At::Answered } else { before };
                    }
                    Step::Take(_) => {
                        let is_answered = before == At::Answered;
                        prop_assert_eq!(calls.take(id), is_answered.then_some(number));
                        at[number] = if is_answered { At::Ended } else { before };
                    }
                    Step::Cancel(_) => {
                        prop_assert_eq!(calls.cancel(id), in_flight);
                        (0..usize::from(is_in_flight)).for_each(|_| calls.release());
                        at[number] = if is_in_flight { At::Ended } else { before };
                    }
                    _ => {
                        prop_assert_eq!(calls.finish(id), in_flight);
                        at[number] = if is_in_flight { At::Ended } else { before };
                    }
                }
                let count = |wanted| at.iter().filter(|at| **at == wanted).count();
                prop_assert_eq!(calls.in_flight_count(), count(At::InFlight));
                prop_assert_eq!(calls.ids().len(), count(At::InFlight));
                prop_assert_eq!(calls.entries.len(), count(At::InFlight) + count(At::Answered));
                prop_assert_eq!(calls.has_room(), count(At::InFlight) < 8);
            }
        }
    }
}
