//! The client's calls in flight.
//!
//! ```text
//!            start               finish (response) ──> value comes back
//!   (none) ────────> in flight ──┤ cancel            ──> value dropped, CANCEL due
//!                                └ close             ──> value comes back
//! ```
//! Ids are never reused while a late response may name them: the low half is an index, the high
//! half counts every call of the connection.

use slab::Slab;

/// The table of calls in flight; `T` is what the driver keeps for each.
#[derive(Debug)]
pub struct Calls<T> {
    entries: Slab<Entry<T>>,
    started_count: u32,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: T,
}

impl<T> Default for Calls<T> {
    fn default() -> Self {
        Self { entries: Slab::new(), started_count: 0 }
    }
}

impl<T> Calls<T> {
    /// Starts a call and names it.
    pub fn start(&mut self, value: T) -> u64 {
        self.started_count = self.started_count.wrapping_add(1);
        // An id comes back only after 2^32 calls of the connection, when no late response can name
        // the first of the two any more.
        let generation = self.started_count;
        let index = self.entries.insert(Entry { generation, value });
        (u64::from(generation) << 32) | index as u64
    }

    /// Ends the call that a response names; `None` when it is not in flight any more.
    pub fn finish(&mut self, id: u64) -> Option<T> {
        let index = self.index(id)?;
        Some(self.entries.remove(index).value)
    }

    /// Gives a call up; true when it was in flight, so that the peer has to be told.
    #[must_use]
    pub fn cancel(&mut self, id: u64) -> bool {
        // A response that crosses the cancel finds no entry, and is dropped.
        self.finish(id).is_some()
    }

    /// Returns the driver's value for a call in flight.
    #[must_use]
    pub fn value(&self, id: u64) -> Option<&T> {
        self.index(id).map(|index| &self.entries[index].value)
    }

    /// Returns true if the call is in flight.
    #[must_use]
    pub fn contains(&self, id: u64) -> bool {
        self.index(id).is_some()
    }

    /// Ends every call, for a connection that is gone.
    pub fn close(&mut self) -> Vec<T> {
        self.entries.drain().map(|entry| entry.value).collect()
    }

    /// Returns the number of calls in flight.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.entries.len()
    }

    fn index(&self, id: u64) -> Option<usize> {
        // The id is the peer's: one of another generation, or beyond the table, names no call.
        let index = usize::try_from(id & u64::from(u32::MAX)).ok()?;
        let entry = self.entries.get(index)?;
        (u64::from(entry.generation) == id >> 32).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_late_response_does_not_end_the_call_that_took_its_place() {
        let mut calls = Calls::default();
        let first = calls.start('a');
        assert!(calls.cancel(first));
        let second = calls.start('b');
        assert_ne!(first, second);
        assert_eq!(calls.finish(first), None);
        assert!(!calls.cancel(first));
        assert_eq!(calls.finish(second), Some('b'));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Start,
        Finish(usize),
        Cancel(usize),
        Close,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Start),
            2 => any::<usize>().prop_map(Step::Finish),
            2 => any::<usize>().prop_map(Step::Cancel),
            1 => Just(Step::Close),
        ]
    }

    #[test]
    fn the_table_holds_each_call_from_its_start_to_its_end() {
        let mut calls = Calls::default();
        let ids: Vec<_> = (0..3).map(|number| calls.start(number)).collect();
        assert_eq!(calls.in_flight_count(), 3);
        for (number, id) in ids.iter().enumerate() {
            assert!(calls.contains(*id));
            assert_eq!(calls.value(*id), Some(&number));
        }
        assert_eq!(calls.finish(ids[1]), Some(1));
        assert_eq!((calls.contains(ids[1]), calls.value(ids[1])), (false, None));
        assert_eq!(calls.in_flight_count(), 2);
    }

    proptest! {
        #[test]
        fn every_started_call_ends_exactly_once(steps in prop::collection::vec(step(), 0..200)) {
            let mut calls = Calls::default();
            let mut ids = Vec::new();
            let mut ended = Vec::new();
            for step in steps {
                match step {
                    Step::Start => {
                        let number = ids.len();
                        ids.push(calls.start(number));
                        ended.push(0);
                    }
                    Step::Finish(pick) if !ids.is_empty() => {
                        if let Some(number) = calls.finish(ids[pick % ids.len()]) {
                            prop_assert_eq!(number, pick % ids.len());
                            ended[number] += 1;
                        }
                    }
                    Step::Cancel(pick) if !ids.is_empty() => {
                        if calls.cancel(ids[pick % ids.len()]) {
                            ended[pick % ids.len()] += 1;
                        }
                    }
                    Step::Close => calls.close().into_iter().for_each(|n| ended[n] += 1),
                    Step::Finish(_) | Step::Cancel(_) => {}
                }
            }
            calls.close().into_iter().for_each(|n| ended[n] += 1);
            prop_assert_eq!(calls.in_flight_count(), 0);
            prop_assert!(ended.iter().all(|times| *times == 1));
        }
    }
}
