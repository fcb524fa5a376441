//! An open simulated device.

use std::sync::Arc;

use crate::sim::SimDeviceConfig;
use crate::sim::fabric::Fabric;
use crate::sim::state::{NetworkState, failed};
use crate::sim::waiter::Waiter;
use crate::verbs::VerbsError;
use crate::verbs::loss::is_gone;

/// An opening of a device; objects made from it keep it.
#[derive(Debug)]
pub(super) struct SimContext {
    pub(super) fabric: Arc<Fabric>,
    pub(super) id: u32,
    pub(super) config: SimDeviceConfig,
    pub(super) waiter: Waiter,
    this: std::sync::Weak<Self>,
}

impl SimContext {
    pub(super) fn new(fabric: Arc<Fabric>, id: u32, config: SimDeviceConfig) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            fabric,
            id,
            config,
            waiter: Waiter::default(),
            this: this.clone(),
        })
    }

    /// Does something to the network unless this device was lost.
    pub(super) fn enter<R>(
        &self,
        operation: &'static str,
        change: impl FnOnce(&mut NetworkState) -> Result<R, VerbsError>,
    ) -> Result<R, VerbsError> {
        self.fabric.enter(|state| {
            let is_dead = state.contexts.get(&self.id).is_none_or(|context| context.is_dead);
            if is_dead { Err(failed(operation, libc::EIO)) } else { change(state) }
        })
    }

    /// Destroys something. After a loss that is only the news that the kernel has done so.
    pub(super) fn destroy(
        &self,
        operation: &'static str,
        destroy: impl FnOnce(&mut NetworkState),
    ) -> Result<(), VerbsError> {
        self.fabric.enter(|state| {
            destroy(state);
            let is_dead = state.contexts.get(&self.id).is_none_or(|context| context.is_dead);
            let fails = is_dead && state.faults.destroy_fails_after_loss;
            if fails { Err(failed(operation, libc::EIO)) } else { Ok(()) }
        })
    }

    /// Whether what could not be destroyed for this reason is gone with the device.
    pub(super) fn has_lost(&self, error: &VerbsError) -> bool {
        is_gone(error, || self.enter("query a port", |_| Ok(())))
    }

    /// The device in the network's table.
    pub(super) fn device(&self, state: &NetworkState) -> usize {
        state.contexts.get(&self.id).map_or(0, |context| context.device)
    }

    pub(super) fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("it is borrowed from its `Arc`")
    }
}

impl Drop for SimContext {
    fn drop(&mut self) {
        self.fabric.enter(|state| {
            state.contexts.remove(&self.id);
            state.stop_waiting(self.id);
        });
    }
}
