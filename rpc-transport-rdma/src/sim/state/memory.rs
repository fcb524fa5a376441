//! Registered memory as a simulated device has it: regions, windows, and a ledger of what is in
//! use.
//!
//! From the post of a request until its completion was polled its memory is the device's. Bytes
//! that the device writes to may be in no other request; bytes that it only reads may.

use std::collections::BTreeMap;

use crate::sys::provider::Access;
use crate::sys::provider::access::SimulatedAccess;

/// A region in the network's table, as long as the device may use it.
#[derive(Debug)]
pub(crate) struct RegionState {
    pub(crate) context: u32,
    pub(crate) device: usize,
    pub(crate) access: Access,
    pub(crate) memory: SimulatedAccess,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
}

/// A window in the network's table.
#[derive(Debug)]
pub(crate) struct WindowState {
    pub(crate) context: u32,
    /// The last key; it opens something only while the window is bound.
    pub(crate) key: u32,
    /// The key of its first bind.
    pub(crate) first_key: Option<u32>,
    pub(crate) bound: Option<Bound>,
}

/// The memory that a window opens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) queue_pair: u32,
    pub(crate) region: u32,
    pub(crate) address: u64,
    pub(crate) len: u64,
}

impl WindowState {
    pub(crate) fn is_bound_to(&self, region: u32) -> bool {
        self.bound.is_some_and(|bound| bound.region == region)
    }
}

/// A device's use of a request's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Reads,
    Writes,
}

/// A request's bytes in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SpanId {
    address: u64,
    serial: u64,
}

#[derive(Debug, Default)]
pub(crate) struct SpanLedger {
    written: BTreeMap<SpanId, u64>,
    read: BTreeMap<SpanId, u64>,
    /// Length of the longest span there has been: how far back one may begin that reaches here.
    longest: u64,
    serial: u64,
}

impl SpanLedger {
    /// Records a span; the second value says that it collides with another.
    pub(crate) fn insert(&mut self, address: u64, len: u64, usage: Usage) -> (SpanId, bool) {
        let collides = overlaps(&self.written, address, len, self.longest)
            || usage == Usage::Writes && overlaps(&self.read, address, len, self.longest);
        let id = SpanId { address, serial: self.serial };
        self.serial += 1;
        self.longest = self.longest.max(len);
        match usage {
            Usage::Writes => self.written.insert(id, len),
            Usage::Reads => self.read.insert(id, len),
        };
        (id, collides)
    }

    pub(crate) fn remove(&mut self, id: SpanId) {
        self.written.remove(&id);
        self.read.remove(&id);
    }

    /// Returns true if a request in flight names any of these bytes.
    pub(crate) fn is_used(&self, address: u64, len: u64) -> bool {
        overlaps(&self.written, address, len, self.longest)
            || overlaps(&self.read, address, len, self.longest)
    }

    pub(crate) fn len(&self) -> usize {
        self.written.len() + self.read.len()
    }
}

fn overlaps(spans: &BTreeMap<SpanId, u64>, address: u64, len: u64, longest: u64) -> bool {
    let from = SpanId { address: address.saturating_sub(longest), serial: 0 };
    let to = SpanId { address: address.saturating_add(len), serial: 0 };
    spans.range(from..to).any(|(id, span_len)| id.address + span_len > address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "hundreds of cases, and it keeps those that fail in a file")]
        fn a_collision_is_a_shared_byte_of_which_one_is_written(
            spans in prop::collection::vec((0u64..200, 1u64..50, any::<bool>()), 1..20),
        ) {
            let mut ledger = SpanLedger::default();
            let mut known: Vec<(u64, u64, bool, SpanId)> = Vec::new();
            for (address, len, writes) in spans {
                let usage = if writes { Usage::Writes } else { Usage::Reads };
                let shared = |(other, other_len, _, _): &&(u64, u64, bool, SpanId)| {
                    address < other + other_len && *other < address + len
                };
                let expected = known.iter().filter(shared).any(|(_, _, other, _)| *other || writes);
                let (id, collides) = ledger.insert(address, len, usage);
                prop_assert_eq!(collides, expected);
                known.push((address, len, writes, id));
            }
            for (.., id) in known {
                ledger.remove(id);
            }
            prop_assert_eq!(ledger.len(), 0);
            prop_assert!(!ledger.is_used(0, 1000));
        }
    }
}
