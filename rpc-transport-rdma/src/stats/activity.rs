//! The activity counters of a worker.
//!
//! A count a batch or rarer, so that it costs nothing against the system call that goes with it.

use rpc_core::transport::Counter;

use crate::LaneActivity;

/// The counters of a lane.
#[derive(Debug, Default)]
pub(crate) struct ActivityCounters {
    pub(crate) credit_waits: Counter,
    pub(crate) credit_stalls: Counter,
    pub(crate) credits_returned: Counter,
    pub(crate) grants_sent: Counter,
    pub(crate) recalls_sent: Counter,
    pub(crate) receive_limit_events: Counter,
    pub(crate) refills_refused: Counter,
    pub(crate) offers_leaked: Counter,
    pub(crate) slots_lost: Counter,
    pub(crate) slots_reclaimed: Counter,
    pub(crate) posts: Counter,
    pub(crate) polls: Counter,
    pub(crate) completions: Counter,
    pub(crate) spins: Counter,
    pub(crate) events: Counter,
    pub(crate) wakeups: Counter,
}

impl ActivityCounters {
    /// The counts at this moment.
    pub(crate) fn snapshot(&self) -> LaneActivity {
        LaneActivity {
            credit_waits: self.credit_waits.value(),
            credit_stalls: self.credit_stalls.value(),
            credits_returned: self.credits_returned.value(),
            grants_sent: self.grants_sent.value(),
            recalls_sent: self.recalls_sent.value(),
            receive_limit_events: self.receive_limit_events.value(),
            refills_refused: self.refills_refused.value(),
            offers_leaked: self.offers_leaked.value(),
            slots_lost: self.slots_lost.value(),
            slots_reclaimed: self.slots_reclaimed.value(),
            posts: self.posts.value(),
            polls: self.polls.value(),
            completions: self.completions.value(),
            spins: self.spins.value(),
            events: self.events.value(),
            wakeups: self.wakeups.value(),
        }
    }
}
