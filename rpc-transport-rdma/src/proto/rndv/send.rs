//! Rendezvous send: the frames that the peer may READ until it acknowledges them (ATS).
//!
//! ```text
//!   insert ──> open ──release──> buffer comes back
//!               │ │ withdraw        ^
//!               │ └──> quarantined ─┘
//!               └──────────┴ no release in time ──> overdue: the peer must lose its access first
//! ```
//! A frame whose call was given up is *quarantined*: its memory waits for the peer to say that it
//! reads no more. Time alone never frees it. Pure: buffers are opaque, and time is an argument.

use std::time::Duration;

use rpc_core::Deadline;
use rpc_core::wire::ProtocolError;
use slab::Slab;
use tokio::time::Instant;

use crate::proto::remote_memory::RemoteKey;

/// A transfer's number is an index in its low bits and a generation above, so that a release that
/// comes twice does not release what took the place.
const INDEX_BITS: u32 = 20;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The frames that are offered to one peer; `B` is their memory.
#[derive(Debug)]
pub(crate) struct RndvSends<B> {
    entries: Slab<Entry<B>>,
    generation: u32,
}

#[derive(Debug)]
struct Entry<B> {
    buffer: B,
    /// The key of the memory window that opens it; none when it is open while it is registered.
    key: Option<RemoteKey>,
    call: u64,
    transfer: u32,
    offered_at: Instant,
    /// Time at which its call was cancelled.
    quarantined_at: Option<Instant>,
}

/// The maximum times for which a peer may keep a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckTimeouts {
    /// One that it may want.
    pub(crate) release: Duration,
    /// One that was taken back.
    pub(crate) cancel: Duration,
}

impl<B> Entry<B> {
    /// Any timeout of the configuration may be added: one of more than a year is a year.
    fn overdue_at(&self, timeouts: AckTimeouts) -> Instant {
        match self.quarantined_at {
            Some(at) => Deadline::after(at, timeouts.cancel).0,
            None => Deadline::after(self.offered_at, timeouts.release).0,
        }
    }
}

/// A frame that the peer has released.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AckedFrame<B> {
    pub(crate) buffer: B,
    /// The key of its memory window, which may be alive.
    pub(crate) key: Option<RemoteKey>,
    pub(crate) was_quarantined: bool,
}

impl<B> Default for RndvSends<B> {
    fn default() -> Self {
        Self { entries: Slab::new(), generation: 0 }
    }
}

impl<B> RndvSends<B> {
    /// Keeps the memory of a frame of a call from `now` on, with the key of the window that opens
    /// it if one does, and names the transfer.
    pub(crate) fn insert(
        &mut self,
        call: u64,
        buffer: B,
        key: Option<RemoteKey>,
        now: Instant,
    ) -> u32 {
        let entry = self.entries.vacant_entry();
        // Buffers have 8 KiB at least, so that 2^20 of them are 8 GiB offered to one peer; beyond
        // that numbers would repeat, and only the peer that was offered so much could be confused.
        let index = u32::try_from(entry.key()).unwrap_or(u32::MAX) & INDEX_MASK;
        // A late release of an earlier transfer at this index must not free this one.
        self.generation = self.generation.wrapping_add(1);
        let transfer = self.generation << INDEX_BITS | index;
        entry.insert(Entry { buffer, key, call, transfer, offered_at: now, quarantined_at: None });
        transfer
    }

    /// Gives back the memory of a frame that the peer is done with.
    ///
    /// # Errors
    ///
    /// Returns [`ProtocolError::Invalid`] if no such transfer is offered.
    pub(crate) fn release(&mut self, transfer: u32) -> Result<AckedFrame<B>, ProtocolError> {
        let index = (transfer & INDEX_MASK) as usize;
        if self.entries.get(index).is_none_or(|entry| entry.transfer != transfer) {
            let value = transfer.into();
            return Err(ProtocolError::Invalid { what: "transfer of a release", value });
        }
        // From here on a second release finds nothing, and costs its sender the connection.
        let Entry { buffer, key, quarantined_at, .. } = self.entries.remove(index);
        Ok(AckedFrame { buffer, key, was_quarantined: quarantined_at.is_some() })
    }

    /// Returns the number of offered frames.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The key of the window that opens an offered frame; `None` also when no such transfer is
    /// offered.
    pub(crate) fn key(&self, transfer: u32) -> Option<RemoteKey> {
        let entry = self.entries.get((transfer & INDEX_MASK) as usize);
        entry.filter(|entry| entry.transfer == transfer)?.key
    }

    /// The frames that were taken back and that the peer is late to release.
    pub(crate) fn overdue(&self, timeouts: AckTimeouts, now: Instant) -> Vec<u32> {
        let quarantined = self.entries.iter().map(|(_, entry)| entry);
        let quarantined = quarantined.filter(|entry| entry.quarantined_at.is_some());
        let overdue = quarantined.filter(|entry| entry.overdue_at(timeouts) <= now);
        overdue.map(|entry| entry.transfer).collect()
    }

    /// Quarantines the frames of a call that was given up at `now`, and names the transfers of
    /// which the peer has to be told.
    pub(crate) fn withdraw(&mut self, call: u64, now: Instant) -> Vec<u32> {
        let mut transfers = Vec::new();
        for (_, entry) in &mut self.entries {
            // A second cancel would give the peer more time.
            if entry.call == call && entry.quarantined_at.is_none() {
                entry.quarantined_at = Some(now);
                transfers.push(entry.transfer);
            }
        }
        transfers
    }

    /// Returns the time at which the first release of the peer is late, and true if that frame was
    /// cancelled. `None` if the peer owes no release.
    pub(crate) fn overdue_at(&self, timeouts: AckTimeouts) -> Option<(Instant, bool)> {
        let entries = self.entries.iter().map(|(_, entry)| entry);
        let first = entries.min_by_key(|entry| entry.overdue_at(timeouts))?;
        Some((first.overdue_at(timeouts), first.quarantined_at.is_some()))
    }

    /// Returns true if nothing is offered.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMEOUTS: AckTimeouts =
        AckTimeouts { release: Duration::from_secs(60), cancel: Duration::from_secs(1) };

    #[test]
    fn a_second_release_does_not_free_what_took_the_place() {
        let (now, mut offered) = (Instant::now(), RndvSends::default());
        let first = offered.insert(1, 'a', None, now);
        assert_eq!(offered.release(first).unwrap().buffer, 'a');
        let second = offered.insert(1, 'b', None, now);
        assert_ne!(first, second);
        assert!(offered.release(first).is_err());
        assert_eq!(offered.release(second).unwrap().buffer, 'b');
    }

    #[test]
    fn what_is_withdrawn_waits_for_its_release_and_not_for_long() {
        let (now, mut offered) = (Instant::now(), RndvSends::default());
        assert_eq!(offered.overdue_at(TIMEOUTS), None);
        let [kept, first, second] = [(1, 'a'), (2, 'b'), (2, 'c')]
            .map(|(call, buffer)| offered.insert(call, buffer, None, now));
        assert_eq!(offered.overdue_at(TIMEOUTS), Some((now + TIMEOUTS.release, false)));
        let later = now + TIMEOUTS.cancel;
        assert_eq!(offered.withdraw(2, later), [first, second]);
        assert_eq!(offered.withdraw(2, later + TIMEOUTS.cancel), [0_u32; 0]);
        assert_eq!(offered.overdue_at(TIMEOUTS), Some((later + TIMEOUTS.cancel, true)));
        assert!(offered.release(first).unwrap().was_quarantined);
        assert!(!offered.release(kept).unwrap().was_quarantined);
        assert_eq!(offered.withdraw(2, later), [0_u32; 0], "the other is taken back already");
    }

    #[test]
    fn the_key_of_an_offered_frame_is_known_until_it_is_released() {
        let (now, mut offered) = (Instant::now(), RndvSends::default());
        assert_eq!((offered.len(), offered.is_empty()), (0, true));
        let keys = [Some(RemoteKey(3)), Some(RemoteKey(4)), None];
        let transfers = keys.map(|key| offered.insert(1, 'a', key, now));
        assert_eq!((offered.len(), offered.is_empty()), (3, false));
        assert_eq!(transfers.map(|transfer| offered.key(transfer)), keys);
        assert_eq!(offered.release(transfers[1]).unwrap().key, keys[1]);
        assert_eq!((offered.key(transfers[1]), offered.len()), (None, 2));
        let again = offered.insert(1, 'b', Some(RemoteKey(5)), now);
        assert_eq!((offered.key(transfers[1]), offered.key(again)), (None, Some(RemoteKey(5))));
    }

    #[test]
    fn only_what_was_taken_back_is_overdue() {
        let (now, mut offered) = (Instant::now(), RndvSends::default());
        let [kept, taken_back] = [1, 2].map(|call| offered.insert(call, 'a', None, now));
        assert_eq!(offered.withdraw(2, now + TIMEOUTS.cancel), [taken_back]);
        let due = now + 2 * TIMEOUTS.cancel;
        assert_eq!(offered.overdue(TIMEOUTS, due - Duration::from_nanos(1)), [0_u32; 0]);
        assert_eq!(offered.overdue(TIMEOUTS, due), [taken_back]);
        assert_eq!(offered.overdue(TIMEOUTS, now + 2 * TIMEOUTS.release), [taken_back]);
        assert_eq!(offered.withdraw(1, due), [kept]);
    }

    /// Every `Duration`, the longest ones as often as all others.
    fn any_timeout() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (any::<u64>(), 0u32..1_000_000_000)
                .prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
            (0u64..1000).prop_map(|less| Duration::MAX - Duration::from_secs(less)),
        ]
    }

    proptest! {
        #[test]
        fn no_timeout_is_too_long_to_add(release in any_timeout(), cancel in any_timeout()) {
            let (now, timeouts) = (Instant::now(), AckTimeouts { release, cancel });
            let mut offered = RndvSends::default();
            offered.insert(1, 'a', None, now);
            prop_assert!(offered.overdue_at(timeouts).is_some_and(|(at, _)| at >= now));
            let transfers = offered.withdraw(1, now);
            prop_assert!(offered.overdue_at(timeouts).is_some_and(|(at, _)| at >= now));
            let due = if cancel.is_zero() { transfers } else { Vec::new() };
            prop_assert_eq!(offered.overdue(timeouts, now), due);
        }

        #[test]
        fn every_buffer_comes_back_once(
            steps in prop::collection::vec((0u8..4, 0usize..8), 0..200),
        ) {
            let now = Instant::now();
            let mut offered = RndvSends::default();
            let (mut next, mut live, mut gone) = (0u32, Vec::new(), Vec::new());
            for (action, pick) in steps {
                match action {
                    0 | 1 => {
                        live.push((offered.insert(pick as u64, next, None, now), next));
                        next += 1;
                    }
                    2 if !live.is_empty() => {
                        let (transfer, buffer) = live.remove(pick % live.len());
                        prop_assert_eq!(offered.release(transfer).unwrap().buffer, buffer);
                        gone.push(transfer);
                    }
                    _ => drop(offered.withdraw(pick as u64, now)),
                }
                for transfer in &gone {
                    prop_assert!(offered.release(*transfer).is_err());
                }
            }
            prop_assert_eq!(offered.is_empty(), live.is_empty());
        }
    }
}
