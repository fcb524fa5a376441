//! Memory that a request or a peer names, and whether its key opens it.
//!
//! Soft-RoCE does not check a window's bounds, so isolation by windows is shown here.

use crate::sim::state::{Bound, NetworkState, RegionState, status};
use crate::sim::violation::SimViolation;
use crate::sys::provider::{Access, ObjectHandle, RawBind, RawSegment, RemoteKey, RemoteMemory};

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

impl NetworkState {
    /// Binds a window, or says with which status that fails.
    pub(crate) fn bind(&mut self, queue_pair: u32, bind: RawBind) -> Result<(), u32> {
        let context = self.queue_pairs.get(&queue_pair).map(|state| state.context);
        let region = self.regions.get(&number(bind.region)).filter(|region| {
            Some(region.context) == context
                && region.local_key == bind.region_key.0
                && matches!(region.access, Access::Windowed | Access::Source)
                && region.memory.contains(bind.address, bind.len)
        });
        let is_region_fine = region.is_some() && bind.len > 0;
        let keeps_first_key = self.faults.rebind_stale_key;
        let id = number(bind.window);
        let window = self.windows.get_mut(&id).filter(|window| {
            Some(window.context) == context
                && window.bound.is_none()
                && bind.key.0 >> 8 == id
                && bind.key.0 != window.key
        });
        let Some(window) = window.filter(|_| is_region_fine) else {
            return Err(status::WINDOW_BIND);
        };
        let (address, len) = (bind.address, bind.len);
        let first_key = *window.first_key.get_or_insert(bind.key.0);
        window.key = if keeps_first_key { first_key } else { bind.key.0 };
        window.bound = Some(Bound { queue_pair, region: number(bind.region), address, len });
        self.counters.binds += 1;
        Ok(())
    }

    /// Takes away the key of a window of this queue pair; false when it is not such a key.
    pub(crate) fn invalidate(&mut self, queue_pair: u32, key: RemoteKey) -> bool {
        let window = self.windows.get_mut(&(key.0 >> 8)).filter(|window| {
            window.key == key.0 && window.bound.is_some_and(|bound| bound.queue_pair == queue_pair)
        });
        let is_valid = window.map(|window| window.bound = None).is_some();
        self.counters.invalidations += u64::from(is_valid);
        is_valid
    }

    /// Returns the bytes that the peer of a queue pair may read, or `None` if its key does not open
    /// them.
    pub(crate) fn read_for_peer(
        &self,
        queue_pair: u32,
        memory: RemoteMemory,
        len: u64,
    ) -> Option<Box<[u8]>> {
        let (id, key) = (memory.key.0 >> 8, memory.key.0);
        let context = self.queue_pairs.get(&queue_pair)?.context;
        if let Some(window) = self.windows.get(&id) {
            let bound = window.bound.filter(|bound| bound.queue_pair == queue_pair)?;
            let end = memory.address.checked_add(len)?;
            let is_open = window.key == key
                && memory.address >= bound.address
                && end <= bound.address + bound.len;
            let region = self.regions.get(&bound.region).filter(|_| is_open)?;
            return region.memory.read(memory.address, len);
        }
        let region = self.regions.get(&id).filter(|region| {
            region.remote_key == key && region.context == context && region.access == Access::Source
        })?;
        region.memory.read(memory.address, len)
    }
}

/// The number of an object that a handle names.
fn number(handle: ObjectHandle) -> u32 {
    u32::try_from(handle.0.as_ptr().addr()).unwrap_or(0)
}
