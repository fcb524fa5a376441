//! A lane as it is seen from outside: its connections, its memory, and what it has done.
//!
//! A counter is a line of [`counts`]. Each is counted once a batch or more rarely, so that it costs
//! nothing against the system call that goes with it.

use rpc_core::transport::Counter;

use crate::RkeyScope;

/// Declares counts once: the plain values that applications read, and the counters behind them.
macro_rules! counts {
    (
        $(#[doc = $doc:literal])+
        pub struct $Counts:ident counted by $Counters:ident, metrics $prefix:literal {
            $($(#[doc = $field_doc:literal])+ $field:ident,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct $Counts {
            $($(#[doc = $field_doc])+ pub $field: u64,)+
        }

        impl $Counts {
            /// Returns each count with its name among the metrics and its description.
            #[doc(hidden)]
            #[must_use]
            pub fn metrics(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((
                    concat!($prefix, stringify!($field)),
                    concat!($($field_doc),+),
                    self.$field,
                ),)+]
            }
        }

        #[doc = concat!("The live counters behind [`", stringify!($Counts), "`].")]
        #[derive(Debug, Default)]
        pub(crate) struct $Counters {
            $(pub(crate) $field: Counter,)+
        }

        impl $Counters {
            /// The counts at this moment.
            pub(crate) fn snapshot(&self) -> $Counts {
                $Counts { $($field: self.$field.value(),)+ }
            }
        }
    };
}

/// The state of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneInfo {
    /// The device.
    pub device: String,
    /// Its number among the lanes of the device, from 0.
    pub number: usize,
    /// Scope of the keys that peers get: [`RkeyScope::Window`] or [`RkeyScope::Region`], as decided
    /// for the device.
    pub rkey_scope: RkeyScope,
    /// Number of its connections.
    pub connection_count: usize,
    /// Number of connections that clients have begun and not proven yet.
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
    /// Queue pairs of its connections, and those made ahead of the next ones.
    pub queue_pair_count: usize,
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
    /// The part of those bytes that lies in explicit huge pages.
    pub huge_page_bytes: u64,
    /// Received large frames that applications hold at this moment.
    pub leases_held: usize,
    /// Received large frames that were held for longer than `RdmaConfig::lease_warn_after`, so far.
    pub leases_overdue: u64,
    /// Counters since the lane began.
    pub activity: LaneActivity,
    /// Ends of large frames whose calls were cancelled.
    pub cancellations: CancellationStats,
}

counts! {
    /// Counters of a lane since it began.
    pub struct LaneActivity counted by ActivityCounters, metrics "farcall.rdma.lane." {
        /// Waits for credit: a connection had data to send, and its peer no free slot.
        credit_waits,
        /// Waits for credit that lasted seconds. The log has each.
        credit_stalls,
        /// Credits that idle peers gave back.
        credits_returned,
        /// Messages sent only for the grant in them.
        grants_sent,
        /// Requests to idle peers to return credits.
        recalls_sent,
        /// Times that fewer than an eighth of the receives were posted. Soon after, peers have to
        /// retry (RNR).
        receive_limit_events,
        /// Times that the device began to refuse receive slots. The lane posts them again later.
        refills_refused,
        /// Large frames leaked because a queue pair that may serve them could not be destroyed.
        /// The log has each connection.
        offers_leaked,
        /// Receive slots lost with dead queue pairs.
        slots_lost,
        /// Lost receive slots that were reused, once the device could no longer hold them.
        slots_reclaimed,
        /// Batches of requests posted. Each is one call into the device.
        posts,
        /// Polls that found completions.
        polls,
        /// Completions found by polls.
        completions,
        /// Polls that found nothing.
        spins,
        /// Completion events waited for.
        events,
        /// Wakeups of the lane's task.
        wakeups,
    }
}

counts! {
    /// Ends of large frames whose calls were cancelled, since the lane began.
    ///
    /// A cancelled offer that no other counter includes is in quarantine, or its connection has
    /// ended.
    pub struct CancellationStats counted by Cancellations, metrics "farcall.rdma.cancellations." {
        /// Offers that this side cancelled.
        withdrawn,
        /// Cancelled offers of which the peer had read nothing.
        not_started,
        /// Cancelled offers that the peer stopped reading half-way.
        stopped,
        /// Cancelled offers that the peer had already read completely.
        completed,
        /// Cancelled offers that the peer did not release in time: the keys were revoked.
        revoked,
        /// Cancelled offers that the peer did not release in time: the connection was closed.
        overdue,
        /// Frames that this side stopped reading, or never began to.
        pulls_stopped,
    }
}
