//! The server's calls in flight.
//!
//! ```text
//!           announce             start                answer ──> answering ── answered ──> (none)
//!   (none) ──────────> arriving ───────> in flight ───┤ finish, cancel, close ──> (none)
//!     │                    │ cancel          ▲
//!     │                    └──> cancelled ───┼── start ──> (none)
//!     └──────────────────────────────────────┘ start
//! ```
//! Only large requests are announced before they have arrived. One that is withheld instead leaves
//! the table from wherever it is. The table owns what belongs to a call, and gives it back once,
//! when the call ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::id_hashing::IdHashing;
use crate::wire::ProtocolError;

/// The table of calls in flight. `S` is what belongs to a call from its announcement on: its
/// streams, none by default. `H` is a handle to the task of a call that has one.
#[derive(Debug)]
pub struct Calls<S, H> {
    entries: HashMap<u64, InFlight<S, H>, IdHashing>,
    cancelled_count: usize,
    answering_count: usize,
    calls_max: u32,
}

#[derive(Debug)]
struct InFlight<S, H> {
    stage: Stage,
    kept: Kept<S, H>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The request is announced and on its way. Frames of its stream may overtake it.
    Arriving,
    /// The request is on its way and will be thrown away.
    Cancelled,
    /// The request has arrived.
    Started,
}

/// The parts of a call that the table keeps, and returns when the call ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Kept<S, H> {
    /// The call's streams.
    pub streams: S,
    /// The handle of its task, once the driver has attached one.
    pub task: Option<H>,
}

/// The treatment of a request that has arrived whole.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Start<'a, S> {
    /// Run it, with the streams that it has had since its announcement.
    Run(&'a mut S),
    /// The client gave it up while it was on its way.
    Cancelled,
}

impl<S: Default, H> Calls<S, H> {
    /// An empty table for a peer that was told `calls_max`.
    #[must_use]
    pub fn new(calls_max: u32) -> Self {
        let entries = HashMap::default();
        Self { entries, cancelled_count: 0, answering_count: 0, calls_max }
    }

    /// Records a large request before it arrives.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if the id is in use, or too many calls are.
    pub fn announce(&mut self, id: u64) -> Result<(), ProtocolError> {
        self.check_room()?;
        match self.entries.entry(id) {
            Entry::Occupied(_) => Err(ProtocolError::DuplicateCall { id }),
            Entry::Vacant(entry) => {
                entry.insert(InFlight::new(Stage::Arriving));
                Ok(())
            }
        }
    }

    /// Starts the call of a request that has arrived.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if the id is in use, or too many calls are.
    #[inline(always)]
    pub fn start(&mut self, id: u64) -> Result<Start<'_, S>, ProtocolError> {
        // Used for a new entry only: an announced request was counted with its announcement.
        let room = self.check_room();
        let call = match self.entries.entry(id) {
            Entry::Vacant(entry) => {
                room?;
                entry.insert(InFlight::new(Stage::Started))
            }
            Entry::Occupied(entry) => match entry.get().stage {
                Stage::Started => return Err(ProtocolError::DuplicateCall { id }),
                Stage::Cancelled => {
                    entry.remove();
                    self.cancelled_count -= 1;
                    return Ok(Start::Cancelled);
                }
                Stage::Arriving => {
                    let call = entry.into_mut();
                    call.stage = Stage::Started;
                    call
                }
            },
        };
        Ok(Start::Run(&mut call.kept.streams))
    }

    /// Attaches the handle of a started call's task; gives it back when the call has ended
    /// meanwhile.
    pub fn attach(&mut self, id: u64, task: H) -> Option<H> {
        match self.entries.get_mut(&id) {
            // The task may have answered before its handle got here: its entry is gone then.
            Some(InFlight { stage: Stage::Started, kept: Kept { task: slot @ None, .. } }) => {
                *slot = Some(task);
                None
            }
            _ => Some(task),
        }
    }

    /// The streams of a call that is arriving or started.
    #[must_use]
    pub fn streams(&self, id: u64) -> Option<&S> {
        let call = self.entries.get(&id)?;
        (call.stage != Stage::Cancelled).then_some(&call.kept.streams)
    }

    /// Returns the streams of a call like [`streams`](Self::streams), to change them.
    pub fn streams_mut(&mut self, id: u64) -> Option<&mut S> {
        let call = self.entries.get_mut(&id)?;
        (call.stage != Stage::Cancelled).then_some(&mut call.kept.streams)
    }

    /// Ends a started call without an answer; `None` when it has ended already.
    #[inline]
    pub fn finish(&mut self, id: u64) -> Option<Kept<S, H>> {
        match self.entries.entry(id) {
            // One that is arriving stays: its request would start the call anew.
            Entry::Occupied(entry) if entry.get().stage == Stage::Started => {
                Some(entry.remove().kept)
            }
            _ => None,
        }
    }

    /// Ends a started call because its answer is about to be sent; `None` when the call has ended
    /// already, so that nothing is sent. The table is not idle before
    /// [`answered`](Self::answered) has followed.
    pub fn answer(&mut self, id: u64) -> Option<Kept<S, H>> {
        let kept = self.finish(id)?;
        self.answering_count += 1;
        Some(kept)
    }

    /// Records that the answer of a call is sent.
    pub fn answered(&mut self) {
        // Cannot underflow: it is called once after each `answer`.
        self.answering_count -= 1;
    }

    /// Forgets a call whose request was announced and will never arrive, because the client gave
    /// it up. A started call is none of those.
    pub fn withheld(&mut self, id: u64) -> Option<Kept<S, H>> {
        let Entry::Occupied(entry) = self.entries.entry(id) else { return None };
        match entry.get().stage {
            Stage::Arriving => {}
            Stage::Cancelled => self.cancelled_count -= 1,
            Stage::Started => return None,
        }
        Some(entry.remove().kept)
    }

    /// Ends a call because the client gave it up. One that is arriving keeps its id until its
    /// request has come or is withheld.
    pub fn cancel(&mut self, id: u64) -> Option<Kept<S, H>> {
        let Entry::Occupied(mut entry) = self.entries.entry(id) else { return None };
        match entry.get().stage {
            Stage::Arriving => {
                // The entry stays, so that the request is recognised when it arrives. The count
                // keeps it out of `in_flight_count`.
                self.cancelled_count += 1;
                let call = entry.insert(InFlight::new(Stage::Cancelled));
                Some(call.kept)
            }
            Stage::Cancelled => None,
            Stage::Started => Some(entry.remove().kept),
        }
    }

    /// Ends every call, for a connection that is gone.
    pub fn close(&mut self) -> Vec<Kept<S, H>> {
        // `answering_count` is kept: the senders of these answers still call `answered`, where a
        // count that was reset would underflow.
        self.cancelled_count = 0;
        let open = self.entries.drain().filter(|(_, call)| call.stage != Stage::Cancelled);
        open.map(|(_, call)| call.kept).collect()
    }

    /// Returns the number of calls in flight, announced ones included and cancelled ones not.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.entries.len() - self.cancelled_count
    }

    /// Returns true if no call is in flight and every answer is sent.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight_count() == 0 && self.answering_count == 0
    }

    fn check_room(&self) -> Result<(), ProtocolError> {
        // A client counts a call that it gave up no longer, so neither do we.
        match self.in_flight_count() < self.calls_max as usize {
            true => Ok(()),
            false => Err(ProtocolError::TooManyCalls { max: self.calls_max }),
        }
    }
}

impl<S: Default, H> InFlight<S, H> {
    fn new(stage: Stage) -> Self {
        Self { stage, kept: Kept { streams: S::default(), task: None } }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A table of calls with two "streams" each and no handle.
    type Plain = Calls<[u8; 2], ()>;

    fn kept<H>(streams: [u8; 2]) -> Option<Kept<[u8; 2], H>> {
        Some(Kept { streams, task: None })
    }

    #[test]
    fn a_request_given_up_on_its_way_does_not_run() {
        let mut calls = Plain::new(2);
        calls.announce(7).unwrap();
        *calls.streams_mut(7).unwrap() = [1, 2];
        assert_eq!(calls.cancel(7), kept([1, 2]));
        assert_eq!((calls.cancel(7), calls.streams(7)), (None, None));
        assert_eq!(calls.start(7), Ok(Start::Cancelled));
        assert_eq!(calls.in_flight_count(), 0);
    }

    #[test]
    fn a_request_that_will_not_arrive_leaves_nothing_behind() {
        let mut calls = Plain::new(1);
        for is_cancelled in [false, true] {
            calls.announce(7).unwrap();
            if is_cancelled {
                assert_eq!(calls.cancel(7), kept([0; 2]));
            }
            assert_eq!(calls.withheld(7), kept([0; 2]));
            assert!(calls.is_idle());
        }
        assert_eq!(calls.start(7), Ok(Start::Run(&mut [0; 2])));
        assert_eq!(calls.withheld(7), None);
        assert_eq!(calls.in_flight_count(), 1, "it runs");
    }

    #[test]
    fn a_handle_for_an_ended_call_is_returned() {
        let mut calls = Calls::<(), char>::new(2);
        assert_eq!(calls.start(1), Ok(Start::Run(&mut ())));
        assert_eq!(calls.finish(1), Some(Kept { streams: (), task: None }));
        assert_eq!(calls.attach(1, 'h'), Some('h'));
        assert_eq!(calls.finish(1), None);
    }

    #[test]
    fn a_call_that_is_arriving_takes_no_handle() {
        let mut calls = Calls::<(), char>::new(2);
        calls.announce(1).unwrap();
        assert_eq!(calls.attach(1, 'h'), Some('h'));
        assert_eq!(calls.finish(1), None, "nor does it end by itself");
    }

    #[test]
    fn ids_in_use_and_calls_over_the_limit_are_violations() {
        let mut calls = Plain::new(2);
        assert_eq!(calls.start(1), Ok(Start::Run(&mut [0; 2])));
        assert_eq!(calls.start(1), Err(ProtocolError::DuplicateCall { id: 1 }));
        assert_eq!(calls.announce(1), Err(ProtocolError::DuplicateCall { id: 1 }));
        calls.announce(2).unwrap();
        assert_eq!(calls.start(3), Err(ProtocolError::TooManyCalls { max: 2 }));
        assert_eq!(calls.announce(3), Err(ProtocolError::TooManyCalls { max: 2 }));
        assert_eq!(calls.start(1), Err(ProtocolError::DuplicateCall { id: 1 }));
        assert_eq!(calls.start(2), Ok(Start::Run(&mut [0; 2])), "it had its room");
    }

    #[test]
    fn a_table_is_idle_once_its_answers_are_sent() {
        let mut calls = Plain::new(1);
        assert_eq!(calls.start(1), Ok(Start::Run(&mut [0; 2])));
        assert!(!calls.is_idle());
        assert_eq!(calls.answer(1), kept([0; 2]));
        assert_eq!((calls.in_flight_count(), calls.is_idle()), (0, false));
        assert_eq!(calls.answer(1), None, "a second answer counts for nothing");
        assert!(calls.close().is_empty() && !calls.is_idle(), "its sender is still at it");
        calls.answered();
        assert!(calls.is_idle());
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Announce,
        Start,
        Attach,
        Finish,
        Answer,
        Withheld,
        Cancel,
        Close,
    }

    fn step() -> impl Strategy<Value = Step> {
        use Step::{Announce, Answer, Attach, Cancel, Close, Finish, Start, Withheld};
        let step = |weight, step| (weight, Just(step));
        prop::strategy::Union::new_weighted(vec![
            step(4, Announce),
            step(6, Start),
            step(4, Attach),
            step(2, Finish),
            step(2, Answer),
            step(2, Withheld),
            step(2, Cancel),
            step(1, Close),
        ])
    }

    /// Every call that was entered, by its number, and what has come back of it.
    #[derive(Debug, Default)]
    struct Ledger {
        streams_back: Vec<usize>,
        attached: usize,
        tasks_back: usize,
        answering: usize,
    }

    impl Ledger {
        /// Names the call that has just been entered, by its streams: 0 stands for none.
        fn entered(&mut self, streams: &mut usize) {
            self.streams_back.push(0);
            *streams = self.streams_back.len();
        }

        fn ended(&mut self, kept: impl IntoIterator<Item = Kept<usize, ()>>) {
            for Kept { streams, task } in kept {
                if let Some(index) = streams.checked_sub(1) {
                    self.streams_back[index] += 1;
                }
                self.tasks_back += usize::from(task.is_some());
            }
        }
    }

    const MAX: u32 = 8;

    /// Takes one step, and writes down what was entered and what came back.
    fn take(step: Step, id: u64, calls: &mut Calls<usize, ()>, ledger: &mut Ledger) {
        match step {
            Step::Announce => {
                if calls.announce(id).is_ok() {
                    ledger.entered(calls.streams_mut(id).unwrap());
                }
            }
            Step::Start => {
                if let Ok(Start::Run(streams)) = calls.start(id)
                    && *streams == 0
                {
                    ledger.entered(streams);
                }
            }
            Step::Attach => ledger.attached += usize::from(calls.attach(id, ()).is_none()),
            Step::Finish => ledger.ended(calls.finish(id)),
            Step::Answer => {
                let kept = calls.answer(id);
                ledger.answering += usize::from(kept.is_some());
                ledger.ended(kept);
            }
            Step::Withheld => ledger.ended(calls.withheld(id)),
            Step::Cancel => ledger.ended(calls.cancel(id)),
            Step::Close => ledger.ended(calls.close()),
        }
    }

    #[test]
    fn a_cancelled_call_gives_back_what_was_attached() {
        let mut calls = Calls::<(), char>::new(2);
        assert_eq!(calls.start(1), Ok(Start::Run(&mut ())));
        assert_eq!(calls.attach(1, 'h'), None);
        assert_eq!(calls.attach(1, 'i'), Some('i'), "there is one");
        assert_eq!(calls.cancel(1), Some(Kept { streams: (), task: Some('h') }));
        assert_eq!((calls.cancel(1), calls.in_flight_count()), (None, 0));
    }

    #[test]
    fn a_cancelled_announcement_makes_room_without_an_answer() {
        let mut calls = Plain::new(1);
        calls.announce(7).unwrap();
        assert_eq!(calls.answer(7), None, "it has not arrived");
        assert_eq!(calls.in_flight_count(), 1);
        assert_eq!(calls.cancel(7), kept([0; 2]));
        assert_eq!(calls.answer(7), None);
        assert_eq!(calls.in_flight_count(), 0);
        calls.announce(8).unwrap();
        assert_eq!(calls.start(9), Err(ProtocolError::TooManyCalls { max: 1 }));
        assert_eq!(calls.start(7), Ok(Start::Cancelled));
        assert_eq!(calls.in_flight_count(), 1);
    }

    proptest! {
        /// Whatever the client sends and in whatever order handlers end.
        #[test]
        fn every_call_ends_exactly_once_and_nothing_is_left(
            steps in prop::collection::vec((step(), 0u64..12), 0..300),
        ) {
            let (mut calls, mut ledger) = (Calls::new(MAX), Ledger::default());
            for (step, id) in steps {
                take(step, id, &mut calls, &mut ledger);
                let ended = ledger.streams_back.iter().sum::<usize>();
                prop_assert_eq!(calls.in_flight_count(), ledger.streams_back.len() - ended);
                prop_assert!(calls.in_flight_count() <= MAX as usize);
                let is_idle = calls.in_flight_count() == 0 && ledger.answering == 0;
                prop_assert_eq!(calls.is_idle(), is_idle);
            }
            ledger.ended(calls.close());
            prop_assert!(ledger.streams_back.iter().all(|times| *times == 1), "{:?}", ledger);
            prop_assert_eq!(ledger.attached, ledger.tasks_back);
            prop_assert_eq!(calls.in_flight_count(), 0);
            prop_assert!((0..12).all(|id| calls.streams(id).is_none()));
            (0..ledger.answering).for_each(|_| calls.answered());
            prop_assert!(calls.is_idle());
        }
    }
}
