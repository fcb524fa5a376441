//! Registered regions of a simulated device.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::context::{SimContext, failed};
use super::memory::Memory;
use super::memory_window::handle;
use super::state::NetworkState;
use super::violation::SimViolation;
use crate::memory::{Access, Mapping};
use crate::verbs::{LocalKey, ObjectHandle, RawMemoryRegion, RawSegment, RemoteKey, VerbsError};

/// A region in the network's table, as long as the device may use it.
#[derive(Debug)]
pub(super) struct RegionState {
    pub(super) context: u32,
    pub(super) device: usize,
    pub(super) access: Access,
    pub(super) memory: Memory,
    pub(super) local_key: u32,
    pub(super) remote_key: u32,
}

impl NetworkState {
    /// The region that a segment of a request lies in, if its key opens it to this context.
    pub(super) fn region_of(&self, context: u32, segment: RawSegment) -> Option<&RegionState> {
        let region = self.regions.get(&(segment.key.0 >> 8))?;
        let is_open = region.local_key == segment.key.0
            && region.context == context
            && region.memory.contains(segment.address, segment.len.into());
        is_open.then_some(region)
    }

    /// The bytes of a segment that was checked when it was posted.
    pub(super) fn gather(&self, segment: RawSegment) -> Option<Box<[u8]>> {
        let region = self.regions.get(&(segment.key.0 >> 8))?;
        region.memory.read(segment.address, segment.len.into())
    }

    /// Writes to the beginning of a segment that was checked when it was posted.
    pub(super) fn scatter(&self, segment: RawSegment, bytes: &[u8]) {
        if let Some(region) = self.regions.get(&(segment.key.0 >> 8)) {
            region.memory.write(segment.address, bytes);
        }
    }

    /// Takes a region off the table; false when it must stay, because something still uses it.
    fn deregister(&mut self, id: u32) -> bool {
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

#[derive(Debug)]
pub(super) struct SimRegion {
    context: Arc<SimContext>,
    id: u32,
    mapping: ManuallyDrop<Mapping>,
    local_key: LocalKey,
    remote_key: RemoteKey,
}

impl SimRegion {
    pub(super) fn register(
        context: Arc<SimContext>,
        mapping: Mapping,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let len = mapping.len();
        let (id, local_key, remote_key, gate) = context.enter("register memory", |state| {
            let device = context.device(state);
            let of_device = state.regions.values().filter(|region| region.device == device);
            let registered: u64 = of_device.map(|region| region.memory.len()).sum();
            let limit = state.faults.memory_lock_bytes;
            let is_over = limit.is_some_and(|limit| registered + len as u64 > limit);
            if is_over || state.roll(state.faults.refused_registration) {
                state.counters.refused_registrations += 1;
                let source = std::io::Error::from_raw_os_error(libc::ENOMEM);
                return Err(VerbsError::registration(source, len, limit));
            }
            let id = state.next_id();
            let local_key = state.next_key(id);
            // Another low byte, so that one key is never taken for the other.
            let remote_key = local_key ^ 0x80;
            let memory = Memory::of(&mapping);
            let region =
                RegionState { context: context.id, device, access, memory, local_key, remote_key };
            state.regions.insert(id, region);
            let gate = Arc::clone(&state.devices[device].gate);
            Ok((id, LocalKey(local_key), RemoteKey(remote_key), gate))
        })?;
        gate.pass();
        Ok(Self { context, id, mapping: ManuallyDrop::new(mapping), local_key, remote_key })
    }
}

// SAFETY: V9: the mapping is the one that was registered. `drop` unmaps it after the network's
// table has let go of it, and leaks it if that has not.
unsafe impl RawMemoryRegion for SimRegion {
    fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn local_key(&self) -> LocalKey {
        self.local_key
    }

    fn remote_key(&self) -> RemoteKey {
        self.remote_key
    }

    fn handle(&self) -> ObjectHandle {
        handle(self.id)
    }
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        let mut may_go = false;
        let operation = "deregister memory";
        let freed = self.context.destroy(operation, |state| may_go = state.deregister(self.id));
        let freed = if may_go { freed } else { Err(failed(operation, libc::EINVAL)) };
        if let Err(error) = freed
            && !self.context.has_lost(&error)
        {
            tracing::error!(target: "farcall::rdma", %error, "a region is leaked");
            return;
        }
        // SAFETY: V1: taken once, here, and the value is not used again.
        unsafe { ManuallyDrop::drop(&mut self.mapping) };
    }
}
