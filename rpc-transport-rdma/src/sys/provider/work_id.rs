//! The 64 bits that travel with a work request and come back with its completion.
//!
//! A completion that failed is trusted for nothing but these bits and the queue pair's number, so
//! they name what was posted and the queue that posted it. They never hold a pointer: a stale or
//! wrong completion finds nothing instead of something that is gone.
//!
//! | bits   | field    | meaning                                                    |
//! |--------|----------|------------------------------------------------------------|
//! | 63..61 | kind     | what was posted                                            |
//! | 60..47 | position | sequence in the send queue, or slot index                  |
//! | 46..19 | serial   | of the queue that posted it, unique in the process         |
//! | 18..0  | tag      | chosen by the queue's creator, to route completions        |

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys::provider::VerbsError;

const KIND_BITS: u32 = 3;
const POSITION_BITS: u32 = 14;
const SERIAL_BITS: u32 = 28;
const TAG_BITS: u32 = 19;
const _: () = assert!(KIND_BITS + POSITION_BITS + SERIAL_BITS + TAG_BITS == u64::BITS);

/// The kind of a completed work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A message sent.
    Send,
    /// A READ of the peer's memory.
    Read,
    /// A message received into a slot of the shared receive queue.
    Receive,
    /// A memory window bound.
    Bind,
    /// A key of our own taken away.
    Invalidate,
    /// The last request of a halted queue pair.
    Drain,
}

/// Identity of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkId(u64);

impl WorkId {
    /// Largest tag that fits.
    pub const TAG_MAX: u32 = (1 << TAG_BITS) - 1;
    /// Number of positions: sequences count modulo this, slot indices stay below it.
    pub const POSITIONS: u16 = 1 << POSITION_BITS;

    /// Returns the kind of the posted work.
    #[must_use]
    pub fn kind(self) -> WorkKind {
        match self.0 >> (u64::BITS - KIND_BITS) {
            0 => WorkKind::Send,
            1 => WorkKind::Read,
            2 => WorkKind::Receive,
            3 => WorkKind::Bind,
            4 => WorkKind::Invalidate,
            _ => WorkKind::Drain,
        }
    }

    /// The tag of the queue that posted it.
    #[must_use]
    pub fn tag(self) -> u32 {
        self.bits(0, TAG_BITS)
    }

    /// The identity as the device carries it.
    #[must_use]
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The identity from what the device carried back.
    #[must_use]
    pub fn from_u64(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn position(self) -> u16 {
        u16::try_from(self.bits(TAG_BITS + SERIAL_BITS, POSITION_BITS)).unwrap_or(0)
    }

    pub(crate) fn serial(self) -> u32 {
        self.bits(TAG_BITS, SERIAL_BITS)
    }

    fn bits(self, from: u32, count: u32) -> u32 {
        u32::try_from((self.0 >> from) & ((1 << count) - 1)).unwrap_or(0)
    }
}

/// The part of a work request's identity that is the same for a whole queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueIdentity {
    serial: u32,
    tag: u32,
}

impl QueueIdentity {
    /// A new identity with the next serial of the process.
    ///
    /// Serials repeat after 2^28 queues. A completion of the first would have to be kept unhandled
    /// until then to be mistaken for one of the last: more than three days of creating queues.
    ///
    /// # Errors
    ///
    /// [`VerbsError::LimitExceeded`] when the tag is larger than [`WorkId::TAG_MAX`].
    pub(crate) fn new(tag: u32) -> Result<Self, VerbsError> {
        if tag > WorkId::TAG_MAX {
            let (wanted, max) = (tag.into(), WorkId::TAG_MAX.into());
            return Err(VerbsError::LimitExceeded { what: "tag", wanted, max });
        }
        Ok(Self { serial: next_serial(), tag })
    }

    /// An identity with the same tag and a serial of its own.
    pub(crate) fn renewed(self) -> Self {
        Self { serial: next_serial(), tag: self.tag }
    }

    pub(crate) fn tag(self) -> u32 {
        self.tag
    }

    /// The identity of one work request. Positions wrap at [`WorkId::POSITIONS`].
    pub(crate) fn work_id(self, kind: WorkKind, position: u16) -> WorkId {
        let kind = match kind {
            WorkKind::Send => 0u64,
            WorkKind::Read => 1,
            WorkKind::Receive => 2,
            WorkKind::Bind => 3,
            WorkKind::Invalidate => 4,
            WorkKind::Drain => 5,
        };
        let position = u64::from(position % WorkId::POSITIONS);
        WorkId(
            kind << (u64::BITS - KIND_BITS)
                | position << (TAG_BITS + SERIAL_BITS)
                | u64::from(self.serial) << TAG_BITS
                | u64::from(self.tag),
        )
    }

    /// Returns true if a completed work request belongs to this queue.
    pub(crate) fn owns(self, work_id: WorkId) -> bool {
        work_id.serial() == self.serial && work_id.tag() == self.tag
    }
}

fn next_serial() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) & ((1 << SERIAL_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_comes_back() {
        let identity = QueueIdentity::new(WorkId::TAG_MAX).unwrap();
        let kinds = [WorkKind::Send, WorkKind::Read, WorkKind::Receive, WorkKind::Drain];
        for kind in kinds.into_iter().chain([WorkKind::Bind, WorkKind::Invalidate]) {
            for position in [0, 1, WorkId::POSITIONS - 1] {
                let id = WorkId::from_u64(identity.work_id(kind, position).to_u64());
                assert_eq!((id.kind(), id.position(), id.tag()), (kind, position, WorkId::TAG_MAX));
                assert!(identity.owns(id));
            }
        }
    }

    #[test]
    fn queues_with_the_same_tag_do_not_own_each_others_work() {
        let (old, new) = (QueueIdentity::new(7).unwrap(), QueueIdentity::new(7).unwrap());
        assert!(!new.owns(old.work_id(WorkKind::Send, 3)));
        assert!(!old.owns(new.work_id(WorkKind::Send, 3)));
    }

    #[test]
    fn a_tag_that_does_not_fit_is_refused() {
        assert!(QueueIdentity::new(WorkId::TAG_MAX + 1).is_err());
    }
}
