//! What a lane counts of itself.
//!
//! A count a batch or rarer, so that it costs nothing against the system call that goes with it.

use rpc_core::transport::Counter;

/// The counters of a lane.
#[derive(Debug, Default)]
pub(crate) struct Tally {
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

/// What a lane has done since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneActivity {
    /// Times that a connection had something to send and the peer no slot for it.
    pub credit_waits: u64,
    /// Waits for credit that lasted for seconds. Each is in the log.
    pub credit_stalls: u64,
    /// Credits that idle peers gave back.
    pub credits_returned: u64,
    /// Messages sent for nothing but the grant in them.
    pub grants_sent: u64,
    /// Times that an idle peer was asked for its credits.
    pub recalls_sent: u64,
    /// Times that the device saw fewer receives posted than an eighth of the queue. Soon after
    /// that peers have to wait and try again (RNR), which nobody reports to the receiver.
    pub receive_limit_events: u64,
    /// Times that the device did not take all receive slots that it was given back, after it had
    /// taken all before. They are tried again.
    pub refills_refused: u64,
    /// Large frames whose memory is leaked, because a queue pair of their connection could not be
    /// destroyed and may serve it to the peer for ever. Each such connection is in the log.
    pub offers_leaked: u64,
    /// Receive slots that were lost with queue pairs that died, by peers that went in the middle of
    /// a message or by what a driver does.
    pub slots_lost: u64,
    /// Those of them that are used again, because the device cannot have them.
    pub slots_reclaimed: u64,
    /// Batches of requests posted; each is one call into the device.
    pub posts: u64,
    /// Polls that found completions.
    pub polls: u64,
    /// Completions that they found.
    pub completions: u64,
    /// Polls that found nothing.
    pub spins: u64,
    /// Completion events waited for.
    pub events: u64,
    /// Times that the lane's task woke up, by an event or because it was asked.
    pub wakeups: u64,
}

impl Tally {
    /// The counts at this moment.
    pub(crate) fn activity(&self) -> LaneActivity {
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
