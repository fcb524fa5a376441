//! The server's calls in flight.
//!
//! ```text
//!            announce              start                 finish ──> answer
//!   (none) ───────────> arriving ─────────> in flight ───┤ cancel ──> value comes back
//!      │                   │ cancel            ▲         └ close  ──> value comes back
//!      │                   └──> given up ──> (start ends it)
//!      └───────────────────────────────────────┘ start
//! ```
//! Only large requests are announced before they have arrived.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::id_hashing::IdHashing;
use crate::wire::ProtocolError;

/// The table of calls in flight; `T` is what the driver keeps for a running one.
#[derive(Debug)]
pub struct Calls<T> {
    entries: HashMap<u64, State<T>, IdHashing>,
    given_up_count: usize,
    calls_max: u32,
}

#[derive(Debug)]
enum State<T> {
    /// The request is announced and on its way.
    Arriving,
    /// The request is on its way and will be thrown away.
    GivenUp,
    /// The call is in flight; the value is there once the driver attached it.
    InFlight(Option<T>),
}

/// What to do with a request that has arrived whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Start {
    /// Run it.
    Run,
    /// The client gave it up while it was on its way.
    GivenUp,
}

impl<T> Calls<T> {
    /// An empty table for a peer that was told `calls_max`.
    #[must_use]
    pub fn new(calls_max: u32) -> Self {
        Self { entries: HashMap::default(), given_up_count: 0, calls_max }
    }

    /// Records a large request before it arrives.
    ///
    /// # Errors
    ///
    /// When the id is in use, or too many calls are.
    pub fn announce(&mut self, id: u64) -> Result<(), ProtocolError> {
        self.insert(id, State::Arriving)
    }

    /// Starts the call of a request that has arrived.
    ///
    /// # Errors
    ///
    /// When the id is in use, or too many calls are.
    pub fn start(&mut self, id: u64) -> Result<Start, ProtocolError> {
        match self.entries.get_mut(&id) {
            Some(state @ State::Arriving) => {
                *state = State::InFlight(None);
                Ok(Start::Run)
            }
            Some(State::GivenUp) => {
                self.entries.remove(&id);
                self.given_up_count -= 1;
                Ok(Start::GivenUp)
            }
            Some(State::InFlight(_)) => Err(ProtocolError::DuplicateCall { id }),
            None => self.insert(id, State::InFlight(None)).map(|()| Start::Run),
        }
    }

    /// Attaches what the driver keeps; gives it back when the call has ended meanwhile.
    pub fn attach(&mut self, id: u64, value: T) -> Option<T> {
        match self.entries.get_mut(&id) {
            Some(State::InFlight(slot @ None)) => {
                *slot = Some(value);
                None
            }
            _ => Some(value),
        }
    }

    /// Ends a call because its answer is ready; false when it was given up, so nothing is sent.
    #[must_use]
    pub fn finish(&mut self, id: u64) -> bool {
        match self.entries.entry(id) {
            Entry::Occupied(entry) if matches!(entry.get(), State::InFlight(_)) => {
                entry.remove();
                true
            }
            _ => false,
        }
    }

    /// Forgets a call whose request was announced and will never arrive, because the client gave
    /// it up; false when there is none. A call that is in flight is none of those.
    pub fn give_up(&mut self, id: u64) -> bool {
        let Entry::Occupied(entry) = self.entries.entry(id) else { return false };
        match entry.get() {
            State::Arriving => {}
            State::GivenUp => self.given_up_count -= 1,
            State::InFlight(_) => return false,
        }
        entry.remove();
        true
    }

    /// Ends a call because the client gave it up, and gives back what was attached.
    pub fn cancel(&mut self, id: u64) -> Option<T> {
        match self.entries.get_mut(&id)? {
            state @ State::Arriving => {
                *state = State::GivenUp;
                self.given_up_count += 1;
                None
            }
            State::GivenUp => None,
            State::InFlight(value) => {
                let value = value.take();
                self.entries.remove(&id);
                value
            }
        }
    }

    /// Ends every call, for a connection that is gone.
    pub fn close(&mut self) -> Vec<T> {
        self.given_up_count = 0;
        let running = self.entries.drain().filter_map(|(_, state)| match state {
            State::InFlight(value) => value,
            State::Arriving | State::GivenUp => None,
        });
        running.collect()
    }

    /// How many calls are in flight, those on their way included and those given up not.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.entries.len() - self.given_up_count
    }

    fn insert(&mut self, id: u64, state: State<T>) -> Result<(), ProtocolError> {
        // A client counts a call that it gave up no longer, so neither do we.
        if self.in_flight_count() >= self.calls_max as usize {
            return Err(ProtocolError::TooManyCalls { max: self.calls_max });
        }
        match self.entries.entry(id) {
            Entry::Occupied(_) => Err(ProtocolError::DuplicateCall { id }),
            Entry::Vacant(entry) => {
                entry.insert(state);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_given_up_on_its_way_does_not_run() {
        let mut calls = Calls::<()>::new(2);
        calls.announce(7).unwrap();
        assert_eq!(calls.cancel(7), None);
        assert_eq!(calls.start(7), Ok(Start::GivenUp));
        assert_eq!(calls.in_flight_count(), 0);
    }

    #[test]
    fn a_request_that_will_not_arrive_leaves_nothing_behind() {
        let mut calls = Calls::<()>::new(1);
        for is_cancelled in [false, true] {
            calls.announce(7).unwrap();
            if is_cancelled {
                assert_eq!(calls.cancel(7), None);
            }
            assert!(calls.give_up(7));
            assert_eq!(calls.in_flight_count(), 0);
        }
        assert_eq!(calls.start(7), Ok(Start::Run));
        assert!(!calls.give_up(7));
        assert_eq!(calls.in_flight_count(), 1, "it runs");
    }

    #[test]
    fn a_call_that_ended_before_its_handle_was_attached_gives_it_back() {
        let mut calls = Calls::new(2);
        assert_eq!(calls.start(1), Ok(Start::Run));
        assert!(calls.finish(1));
        assert_eq!(calls.attach(1, 'h'), Some('h'));
        assert!(!calls.finish(1));
    }

    #[test]
    fn ids_in_use_and_calls_over_the_limit_are_violations() {
        let mut calls = Calls::<()>::new(2);
        assert_eq!(calls.start(1), Ok(Start::Run));
        assert_eq!(calls.start(1), Err(ProtocolError::DuplicateCall { id: 1 }));
        calls.announce(2).unwrap();
        assert_eq!(calls.start(3), Err(ProtocolError::TooManyCalls { max: 2 }));
        assert_eq!(calls.start(2), Ok(Start::Run));
    }

    #[test]
    fn a_cancelled_call_gives_back_what_was_attached() {
        let mut calls = Calls::new(2);
        assert_eq!(calls.start(1), Ok(Start::Run));
        assert_eq!(calls.attach(1, 'h'), None);
        assert_eq!(calls.attach(1, 'i'), Some('i'), "there is one");
        assert_eq!(calls.cancel(1), Some('h'));
        assert_eq!((calls.cancel(1), calls.in_flight_count()), (None, 0));
    }

    #[test]
    fn a_request_that_was_given_up_on_its_way_makes_room_and_has_no_answer() {
        let mut calls = Calls::<()>::new(1);
        calls.announce(7).unwrap();
        assert!(!calls.finish(7), "it has not arrived");
        assert_eq!(calls.in_flight_count(), 1);
        assert_eq!(calls.cancel(7), None);
        assert!(!calls.finish(7));
        assert_eq!(calls.in_flight_count(), 0);
        calls.announce(8).unwrap();
        assert_eq!(calls.start(9), Err(ProtocolError::TooManyCalls { max: 1 }));
        assert_eq!(calls.start(7), Ok(Start::GivenUp));
        assert_eq!(calls.in_flight_count(), 1);
    }

    proptest! {
        #[test]
        fn an_attached_value_comes_back_at_most_once_and_the_limit_holds(
            steps in prop::collection::vec((0u8..5, 0u64..12), 0..300),
        ) {
            let mut calls = Calls::new(8);
            let mut attached = 0;
            let mut back = 0;
            for (step, id) in steps {
                let started = step == 1 && calls.start(id) == Ok(Start::Run);
                attached += usize::from(started && calls.attach(id, ()).is_none());
                back += match step {
                    0 => calls.announce(id).map_or(0, |()| 0),
                    2 => usize::from(calls.finish(id)),
                    3 => usize::from(calls.cancel(id).is_some()),
                    _ => 0,
                };
                prop_assert!(calls.in_flight_count() <= 8);
            }
            back += calls.close().len();
            prop_assert_eq!(attached, back);
            prop_assert_eq!(calls.in_flight_count(), 0);
        }
    }
}
