//! Regions and windows of a simulated device as their owners hold them.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use crate::sim::SimVerb;
use crate::sim::state::{RegionState, WindowState, failed};
use crate::sys::provider::access::SimulatedAccess;
use crate::sys::provider::commands::{self, Place};
use crate::sys::provider::{
    Access, LocalKey, Mapping, ObjectHandle, RawMemoryRegion, RawMemoryWindow, RemoteKey,
    VerbsError,
};
use crate::verbs::simulated::context::SimContext;

#[derive(Debug)]
pub(crate) struct SimRegion {
    context: Arc<SimContext>,
    id: u32,
    mapping: ManuallyDrop<Mapping>,
    local_key: LocalKey,
    remote_key: RemoteKey,
}

impl SimRegion {
    pub(crate) fn register(
        context: Arc<SimContext>,
        mapping: Mapping,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let len = mapping.len();
        let operation = "register memory";
        context.command(operation, SimVerb::RegisterMemory)?;
        let (id, local_key, remote_key, gate) = context.enter(operation, |state| {
            let device = context.device(state);
            let memory = state.locked_memory(device);
            let is_over = memory.limit.is_some_and(|limit| memory.locked + len as u64 > limit);
            if is_over || state.roll(state.faults.refused_registration) {
                state.counters.refused_registrations += 1;
                return Err(VerbsError::out_of_memory(operation, len as u64, memory, None));
            }
            if let Some(script) = state.script(device) {
                script.registrations += 1;
            }
            let id = state.next_id();
            let local_key = state.next_key(id);
            // Another low byte, so that one key is never taken for the other.
            let remote_key = local_key ^ 0x80;
            // SAFETY: V9: it lies in the network's table, which `drop` takes it off before the
            // mapping goes, and the network's steps write only to what is posted.
            let memory = unsafe { SimulatedAccess::of(&mapping) };
            let region =
                RegionState { context: context.id, device, access, memory, local_key, remote_key };
            state.regions.insert(id, region);
            let gate = Arc::clone(&state.devices[device].gate);
            Ok((id, LocalKey(local_key), RemoteKey(remote_key), gate))
        })?;
        // A task that serves commands must not block.
        if !matches!(commands::place(), Place::Server { .. }) {
            gate.pass(Duration::MAX);
        }
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
        // The kernel lets go of it although the firmware has not answered.
        let _ = self.context.command(operation, SimVerb::DeregisterMemory);
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

#[derive(Debug)]
pub(crate) struct SimWindow {
    context: Arc<SimContext>,
    id: u32,
    key: RemoteKey,
    /// Set once its deallocation was asked for, also if that failed.
    is_freed: bool,
}

impl SimWindow {
    pub(crate) fn allocate(context: Arc<SimContext>) -> Result<Self, VerbsError> {
        let operation = "allocate a memory window";
        context.command(operation, SimVerb::AllocateWindow)?;
        let (id, key) = context.enter(operation, |state| {
            let device = context.device(state);
            let max = state.devices[device].config.attributes.windows_max;
            let is_ours = |window: &&WindowState| window.context == context.id;
            if state.windows.values().filter(is_ours).count() >= max as usize {
                return Err(failed(operation, libc::ENOMEM));
            }
            let id = state.next_id();
            // Of a scripted device, one whose low byte wraps at the second bind.
            let key = match state.is_scripted(device) {
                true => id << 8 | 0xfe,
                false => state.next_key(id),
            };
            let window = WindowState { context: context.id, key, first_key: None, bound: None };
            state.windows.insert(id, window);
            Ok((id, RemoteKey(key)))
        })?;
        Ok(Self { context, id, key, is_freed: false })
    }
}

// SAFETY: V9: the handle is a number that is never used again, and windows only let peers read.
unsafe impl RawMemoryWindow for SimWindow {
    fn handle(&self) -> ObjectHandle {
        handle(self.id)
    }

    fn key(&self) -> RemoteKey {
        self.key
    }

    fn set_key(&mut self, key: RemoteKey) {
        self.key = key;
    }

    fn deallocate(mut self: Box<Self>) -> Result<(), VerbsError> {
        self.free()
    }
}

impl SimWindow {
    /// Deallocates the window once. It stays bound if that fails.
    fn free(&mut self) -> Result<(), VerbsError> {
        if std::mem::replace(&mut self.is_freed, true) {
            return Ok(());
        }
        let operation = "deallocate a memory window";
        self.context.command(operation, SimVerb::DeallocateWindow)?;
        self.context.fabric.enter(|state| {
            if state.roll(state.faults.kept_window) {
                return Err(failed(operation, libc::EIO));
            }
            state.windows.remove(&self.id);
            Ok(())
        })
    }
}

impl Drop for SimWindow {
    fn drop(&mut self) {
        // A window of a device that hangs is leaked until the device is closed.
        let _ = self.free();
    }
}

/// An object's number as a handle.
pub(crate) fn handle(id: u32) -> ObjectHandle {
    let pointer = std::ptr::without_provenance_mut(id as usize);
    ObjectHandle(NonNull::new(pointer).expect("numbers count from 1"))
}
