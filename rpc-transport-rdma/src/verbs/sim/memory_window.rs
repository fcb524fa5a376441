//! Memory windows of type 2: who may read which bytes by which key.
//!
//! Soft-RoCE does not check a window's bounds, so isolation by windows is shown here.

use std::ptr::NonNull;
use std::sync::Arc;

use super::context::{SimContext, failed};
use super::numbers::status;
use super::state::NetworkState;
use crate::memory::Access;
use crate::verbs::{ObjectHandle, RawBind, RawMemoryWindow, RemoteKey, RemoteMemory, VerbsError};

/// A window in the network's table.
#[derive(Debug)]
pub(super) struct WindowState {
    context: u32,
    /// The last key; it opens something only while the window is bound.
    key: u32,
    pub(super) bound: Option<Bound>,
}

/// What a window opens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) queue_pair: u32,
    region: u32,
    address: u64,
    len: u64,
}

impl WindowState {
    pub(super) fn is_bound_to(&self, region: u32) -> bool {
        self.bound.is_some_and(|bound| bound.region == region)
    }
}

impl NetworkState {
    /// Binds a window, or says with which status that fails.
    pub(super) fn bind(&mut self, queue_pair: u32, bind: RawBind) -> Result<(), u32> {
        let context = self.queue_pairs.get(&queue_pair).map(|state| state.context);
        let region = self.regions.get(&number(bind.region)).filter(|region| {
            Some(region.context) == context
                && region.local_key == bind.region_key.0
                && matches!(region.access, Access::Windowed | Access::Source)
                && region.memory.contains(bind.address, bind.len)
        });
        let is_region_fine = region.is_some() && bind.len > 0;
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
        window.key = bind.key.0;
        window.bound = Some(Bound { queue_pair, region: number(bind.region), address, len });
        self.counters.binds += 1;
        Ok(())
    }

    /// Takes away the key of a window of this queue pair; false when it is not such a key.
    pub(super) fn invalidate(&mut self, queue_pair: u32, key: RemoteKey) -> bool {
        let window = self.windows.get_mut(&(key.0 >> 8)).filter(|window| {
            window.key == key.0 && window.bound.is_some_and(|bound| bound.queue_pair == queue_pair)
        });
        let is_valid = window.map(|window| window.bound = None).is_some();
        self.counters.invalidations += u64::from(is_valid);
        is_valid
    }

    /// What the peer of a queue pair may read, or `None` when its key does not open that to it.
    pub(super) fn read_for_peer(
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

#[derive(Debug)]
pub(super) struct SimWindow {
    context: Arc<SimContext>,
    id: u32,
    key: RemoteKey,
}

impl SimWindow {
    pub(super) fn allocate(context: Arc<SimContext>) -> Result<Self, VerbsError> {
        let (id, key) = context.enter("allocate a memory window", |state| {
            let device = context.device(state);
            let max = state.devices[device].config.attributes.windows_max;
            let is_ours = |window: &&WindowState| window.context == context.id;
            if state.windows.values().filter(is_ours).count() >= max as usize {
                return Err(failed("allocate a memory window", libc::ENOMEM));
            }
            let id = state.next_id();
            let key = state.next_key(id);
            state.windows.insert(id, WindowState { context: context.id, key, bound: None });
            Ok((id, RemoteKey(key)))
        })?;
        Ok(Self { context, id, key })
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
}

impl Drop for SimWindow {
    fn drop(&mut self) {
        self.context.fabric.enter(|state| state.windows.remove(&self.id));
    }
}

/// An object's number as a handle.
pub(super) fn handle(id: u32) -> ObjectHandle {
    let pointer = std::ptr::without_provenance_mut(id as usize);
    ObjectHandle(NonNull::new(pointer).expect("numbers count from 1"))
}

fn number(handle: ObjectHandle) -> u32 {
    u32::try_from(handle.0.as_ptr().addr()).unwrap_or(0)
}
