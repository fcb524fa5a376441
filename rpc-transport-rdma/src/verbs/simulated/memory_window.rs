//! A window of a simulated device as its queue pair holds it.

use std::ptr::NonNull;
use std::sync::Arc;

use super::context::SimContext;
use crate::sim::state::{WindowState, failed};
use crate::verbs::{ObjectHandle, RawMemoryWindow, RemoteKey, VerbsError};

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
            // Of a scripted device, one whose low byte wraps at the second bind.
            let key = match state.is_scripted(device) {
                true => id << 8 | 0xfe,
                false => state.next_key(id),
            };
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
