//! The provider that opens simulated devices.

use std::collections::VecDeque;
use std::sync::Arc;

use super::context::SimContext;
use crate::sim::fabric::Fabric;
use crate::sim::state::{ContextState, DeviceState, NetworkState};
use crate::verbs::{DeviceInfo, Provider, RawDevice, VerbsError};

/// Opens the devices of a simulated network. Clones open the same devices.
#[derive(Debug, Clone)]
pub struct SimProvider {
    fabric: Arc<Fabric>,
}

impl SimProvider {
    pub(crate) fn new(fabric: Arc<Fabric>) -> Self {
        Self { fabric }
    }
}

// SAFETY: every object that comes from it keeps its contract, as said where it is implemented.
unsafe impl Provider for SimProvider {
    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        let names = self.fabric.enter(|state| names(state));
        Ok(names.into_iter().map(|name| DeviceInfo { name }).collect())
    }

    fn open(&self, name: &str) -> Result<Arc<dyn RawDevice>, VerbsError> {
        let (id, config) = self.fabric.enter(|state| {
            let is_wanted = |(_, device): &(usize, &_)| is_there(device, name);
            let found = state.devices.iter().enumerate().find(is_wanted);
            let Some((device, found)) = found else {
                return Err(VerbsError::NoSuchDevice { name: name.into(), found: names(state) });
            };
            let config = found.config.clone();
            if state.roll(state.faults.busy_device) {
                let source = std::io::Error::from_raw_os_error(libc::EBUSY);
                return Err(VerbsError::system("open the device", source));
            }
            if let Some(script) = state.script(device) {
                script.openings += 1;
            }
            let id = state.next_id();
            let context = ContextState { device, is_dead: false, events: VecDeque::new() };
            state.contexts.insert(id, context);
            Ok((id, config))
        })?;
        Ok(SimContext::new(Arc::clone(&self.fabric), id, config))
    }
}

fn is_there(device: &DeviceState, name: &str) -> bool {
    !device.is_lost && device.config.name == name
}

fn names(state: &NetworkState) -> Vec<String> {
    let devices = state.devices.iter().filter(|device| !device.is_lost);
    devices.map(|device| device.config.name.clone()).collect()
}
