//! Which memory a request names, and whether it may go.

use crate::sim::state::{NetworkState, RegionState};
use crate::sim::violation::SimViolation;
use crate::verbs::RawSegment;

impl NetworkState {
    /// The region that a segment of a request lies in, if its key opens it to this context.
    pub(crate) fn region_of(&self, context: u32, segment: RawSegment) -> Option<&RegionState> {
        let region = self.regions.get(&(segment.key.0 >> 8))?;
        let is_open = region.local_key == segment.key.0
            && region.context == context
            && region.memory.contains(segment.address, segment.len.into());
        is_open.then_some(region)
    }

    /// The bytes of a segment that was checked when it was posted.
    pub(crate) fn gather(&self, segment: RawSegment) -> Option<Box<[u8]>> {
        let region = self.regions.get(&(segment.key.0 >> 8))?;
        region.memory.read(segment.address, segment.len.into())
    }

    /// Writes to the beginning of a segment that was checked when it was posted.
    pub(crate) fn scatter(&self, segment: RawSegment, bytes: &[u8]) {
        if let Some(region) = self.regions.get(&(segment.key.0 >> 8)) {
            region.memory.write(segment.address, bytes);
        }
    }

    /// Takes a region off the table; false when it must stay, because something still uses it.
    pub(crate) fn deregister(&mut self, id: u32) -> bool {
        let Some(region) = self.regions.get(&id) else { return true };
        let (address, len) = (region.memory.address(), region.memory.len());
        let is_bound = self.windows.values().any(|window| window.is_bound_to(id));
        if is_bound {
            self.report(SimViolation::DeregisteredBound { address, len });
        }
        let is_used = self.ledger.is_used(address, len);
        if is_used {
            self.report(SimViolation::DeregisteredInUse { address, len });
        }
        let may_go = !is_bound && !is_used;
        if may_go {
            self.regions.remove(&id);
        }
        may_go
    }
}
