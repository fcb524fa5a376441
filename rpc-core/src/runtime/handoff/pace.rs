//! When the monitor looks, and what it concludes from two looks. Free of clocks and threads.
//!
//! ```text
//!          a handler ran            LINGER_TICKS without one
//!   ┌─────────────────────> awake ───────────────────────────> drowsy ──a quiet tick──> asleep
//!   │                         ^                                   │                        │
//!   └─────────────────────────┴──────── a handler ran ────────────┴────────────────────────┘
//! ```
//! Threads wake a monitor that has said that it sleeps. They look at its word without a fence, so
//! a thread that begins at that very moment may still read the old word. The drowsy tick is for
//! that thread: its turn is visible long before the tick ends.

/// The ticks that the monitor goes on for after the last handler, so that calls which follow each
/// other within a fifth of a second do not wake a thread each.
const LINGER_TICKS: u32 = 10;

/// What a worker does, from its turn at two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// It has run no user code since the last look, and runs none.
    Idle,
    /// It has run user code since the last look.
    Moving,
    /// It is in the same turn of user code as at the last look.
    Stuck,
}

/// Compares a worker's turn, which is odd while user code runs, with that of the last look.
pub(super) fn compare(last: u64, turn: u64) -> Sight {
    match (turn == last, turn % 2 == 1) {
        (false, _) => Sight::Moving,
        (true, true) => Sight::Stuck,
        (true, false) => Sight::Idle,
    }
}

/// What the monitor does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    /// Looks again after a tick.
    Tick,
    /// Says that it sleeps, and looks once more after a tick.
    Drowse,
    /// Sleeps until a thread wakes it.
    Sleep,
}

/// How long the monitor goes on.
#[derive(Debug, Default)]
pub(super) struct Pace {
    quiet_ticks: u32,
}

impl Pace {
    /// Concludes from a look, during which some worker was moving or none.
    pub(super) fn handle_look(&mut self, activity: Activity) -> Step {
        if activity == Activity::Some {
            self.quiet_ticks = 0;
            return Step::Tick;
        }
        self.quiet_ticks += 1;
        match self.quiet_ticks {
            ..LINGER_TICKS => Step::Tick,
            LINGER_TICKS => Step::Drowse,
            _ => {
                self.quiet_ticks = 0;
                Step::Sleep
            }
        }
    }
}

/// Whether a look found user code that had begun since the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activity {
    None,
    Some,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn user_code_that_lasts_from_one_look_to_the_next_is_stuck() {
        assert_eq!(compare(0, 0), Sight::Idle);
        assert_eq!(compare(0, 1), Sight::Moving);
        assert_eq!(compare(1, 1), Sight::Stuck);
        assert_eq!(compare(1, 2), Sight::Moving);
        assert_eq!(compare(1, 3), Sight::Moving);
        assert_eq!(compare(u64::MAX, 0), Sight::Moving);
    }

    proptest! {
        /// Whatever came before, it sleeps after so many quiet looks and not earlier, and it has
        /// said so one look before.
        #[test]
        fn it_sleeps_after_it_has_said_so(before in prop::collection::vec(any::<bool>(), 0..50)) {
            let mut pace = Pace::default();
            for is_active in before {
                let activity = if is_active { Activity::Some } else { Activity::None };
                let step = pace.handle_look(activity);
                prop_assert!(!is_active || step == Step::Tick);
            }
            let _ = pace.handle_look(Activity::Some);
            for _ in 1..LINGER_TICKS {
                prop_assert_eq!(pace.handle_look(Activity::None), Step::Tick);
            }
            prop_assert_eq!(pace.handle_look(Activity::None), Step::Drowse);
            prop_assert_eq!(pace.handle_look(Activity::None), Step::Sleep);
        }
    }
}
