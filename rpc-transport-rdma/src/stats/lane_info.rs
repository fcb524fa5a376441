//! What a lane says of itself: its connections, its memory, and what it has done.

use crate::RkeyScope;

/// What a lane says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneInfo {
    /// The device.
    pub device: String,
    /// Its number among the lanes of the device, from 0.
    pub number: usize,
    /// How far the keys reach that peers are given: [`RkeyScope::Window`] or
    /// [`RkeyScope::Region`], as decided for the device.
    pub rkey_scope: RkeyScope,
    /// How many connections it has.
    pub connection_count: usize,
    /// How many of them clients have begun and not proven yet.
    pub unproven_count: usize,
    /// Bytes of memory that messages are received into, for all connections together.
    pub receive_bytes: usize,
    /// Receive slots, for all connections together.
    pub receive_slots: u32,
    /// Receive slots that are promised to connections.
    pub promised_slots: u32,
    /// Receive slots that are not promised, because queue pairs died that may have taken them: as
    /// many as are missing, or more until the lane has received something since. At a tenth of all
    /// slots new connections get another lane, while this one serves those that it has.
    pub missing_slots: u32,
    /// Entries of the completion queue that are claimed: one for each receive slot, and for each
    /// queue pair as many as it can have requests in flight, and one more. Those of a queue pair
    /// that is gone are free after the next poll.
    pub claimed_entries: u32,
    /// Send slots that hold a message, or that a caller is filling.
    pub send_slots_in_use: usize,
    /// Bytes of buffers that large frames are sent from, until the peer has read them; of all
    /// lanes of the device, which share them.
    pub source_bytes_in_use: u64,
    /// Bytes of buffers that large frames are read into, until the application lets go of them; of
    /// all lanes of the device.
    pub sink_bytes_in_use: u64,
    /// Bytes of READs that devices of peers have not answered; of all lanes of the device.
    pub read_bytes_in_use: u64,
    /// Bytes registered for large frames, in use or not, of all lanes of the device.
    pub registered_bytes: u64,
    /// What of those lies in explicit huge pages.
    pub huge_page_bytes: u64,
    /// Received large frames that applications hold.
    pub leases: LeaseStats,
    /// What it has done since it began.
    pub activity: LaneActivity,
    /// What became of large frames whose calls were given up.
    pub cancellations: CancellationStats,
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
    /// that peers have to wait and try again (RNR), which no device reports to the receiver.
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

/// What a lane says of its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Received frames that applications hold at this moment.
    pub held: usize,
    /// Leases that were held for longer than `rdma.lease_warn_after`, so far.
    pub overdue_count: u64,
}

/// What became of large frames whose calls were given up, since the lane began.
///
/// What was withdrawn and is not among the answers is in quarantine, or its connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CancellationStats {
    /// Frames that this side had offered and asked the peer to let go of.
    pub withdrawn: u64,
    /// Of those, the ones of which the peer had read nothing.
    pub not_started: u64,
    /// Of those, the ones that the peer stopped reading half-way.
    pub stopped: u64,
    /// Of those, the ones that the peer had read whole by then.
    pub completed: u64,
    /// Of those, the ones that the peer did not release in time and whose keys were revoked
    /// instead.
    pub revoked: u64,
    /// Of those, the ones that the peer did not release in time, at the cost of the connection.
    pub overdue: u64,
    /// Frames that this side was reading or about to read and stopped.
    pub pulls_stopped: u64,
}
