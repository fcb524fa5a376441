//! The provider of simulated devices, and an open one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::sim::fabric::{Fabric, Waiter};
use crate::sim::hold::Gate;
use crate::sim::state::{ContextState, DeviceState, NetworkState, failed};
use crate::sim::{SimDeviceConfig, SimNetwork, SimQueueMemory, SimVerb, SimViolation};
use crate::sys::provider::commands::{self, Place};
use crate::sys::provider::{
    CommandClock, DeviceInfo, Provider, Quirks, RawDevice, VerbsError, is_gone,
};

/// An opening of a device; objects made from it keep it.
#[derive(Debug)]
pub(crate) struct SimContext {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) id: u32,
    pub(crate) config: SimDeviceConfig,
    pub(crate) quirks: Quirks,
    pub(crate) waiter: Waiter,
    this: std::sync::Weak<Self>,
}

impl SimContext {
    pub(crate) fn new(fabric: Arc<Fabric>, id: u32, config: SimDeviceConfig) -> Arc<Self> {
        let is_scripted = fabric.enter(|state| {
            let context = state.contexts.get(&id);
            context.is_some_and(|context| state.is_scripted(context.device))
        });
        // A check of windows waits without sleeping, and would stop the simulated time that it
        // waits for. A test that plays the device plays that, too.
        let is_played = !is_scripted;
        let window_defect = "a simulated device uses windows when asked to by name";
        let quirks = Quirks {
            read_defect: config.read_defect.clone(),
            window_defect: is_played.then_some(window_defect),
            has_known_windows: is_played,
            queues_are_locked: config.queue_memory != SimQueueMemory::Kernel,
            receive_drain: config.receive_drain,
        };
        Arc::new_cyclic(|this| Self {
            fabric,
            id,
            config,
            quirks,
            waiter: Waiter::default(),
            this: this.clone(),
        })
    }

    /// Does something to the network unless this device was lost.
    pub(crate) fn enter<R>(
        &self,
        operation: &'static str,
        change: impl FnOnce(&mut NetworkState) -> Result<R, VerbsError>,
    ) -> Result<R, VerbsError> {
        self.fabric.enter(|state| {
            let is_dead = state.contexts.get(&self.id).is_none_or(|context| context.is_dead);
            if is_dead { Err(failed(operation, libc::EIO)) } else { change(state) }
        })
    }

    /// Carries out a firmware command, as far as the time goes that it takes.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the firmware does not answer.
    pub(crate) fn command(&self, operation: &'static str, verb: SimVerb) -> Result<(), VerbsError> {
        let place = commands::place();
        let (delay, firmware, turn) = self.fabric.enter(|state| {
            if place == Place::Lane {
                state.report(SimViolation::CommandOnLane { verb });
            }
            let device = self.device(state);
            let (delay, firmware) = command_time(state, device, verb);
            (delay, firmware, Arc::clone(&state.devices[device].firmware_turn))
        });
        let has_answer = match place {
            Place::Server { has_answer } => has_answer,
            Place::Lane | Place::Elsewhere => {
                if !delay.is_zero() {
                    self.count_command(1);
                    // Firmware carries out one command after the other.
                    let turn = turn.lock();
                    std::thread::sleep(delay);
                    drop(turn);
                    self.count_command(-1);
                }
                firmware.pass(COMMAND_TIMEOUT)
            }
        };
        if has_answer { Ok(()) } else { Err(failed(operation, libc::ETIMEDOUT)) }
    }

    /// Counts a command that takes time, and one less when it is over.
    fn count_command(&self, difference: isize) {
        self.fabric.enter(|state| {
            let device = self.device(state);
            let device = &mut state.devices[device];
            device.commands_now = device.commands_now.saturating_add_signed(difference);
            device.commands_at_once = device.commands_at_once.max(device.commands_now);
        });
    }

    /// Destroys something. After a loss that is only the news that the kernel has done so.
    pub(crate) fn destroy(
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

    /// Returns true if an object that could not be destroyed for this reason is gone with the
    /// device.
    pub(crate) fn has_lost(&self, error: &VerbsError) -> bool {
        is_gone(error, || self.enter("query a port", |_| Ok(())))
    }

    /// The device in the network's table.
    pub(crate) fn device(&self, state: &NetworkState) -> usize {
        state.contexts.get(&self.id).map_or(0, |context| context.device)
    }

    pub(crate) fn clock(&self) -> SimCommandClock {
        let device = self.fabric.enter(|state| self.device(state));
        SimCommandClock { fabric: Arc::clone(&self.fabric), device }
    }

    pub(crate) fn this(&self) -> Arc<Self> {
        self.this.upgrade().expect("it is borrowed from its `Arc`")
    }
}

/// Time after which mlx5's driver gives a command up, `MLX5_CMD_TIMEOUT_MSEC`.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that a command takes, and the gate that it passes then.
fn command_time(state: &NetworkState, device: usize, verb: SimVerb) -> (Duration, Arc<Gate>) {
    let device = &state.devices[device];
    let delay = device.command_delays.get(&verb).copied().unwrap_or_default();
    (delay, Arc::clone(&device.firmware))
}

/// The time of the commands of one device.
#[derive(Debug)]
pub(crate) struct SimCommandClock {
    fabric: Arc<Fabric>,
    device: usize,
}

impl CommandClock for SimCommandClock {
    fn wait(&self, command: SimVerb) -> BoxFuture<'static, bool> {
        let time = self.fabric.enter(|state| command_time(state, self.device, command));
        let (delay, firmware) = time;
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            tokio::time::timeout(COMMAND_TIMEOUT, firmware.passed()).await.is_ok()
        })
    }
}

impl Drop for SimContext {
    fn drop(&mut self) {
        self.fabric.enter(|state| {
            state.contexts.remove(&self.id);
            // Those that the firmware did not deallocate.
            state.windows.retain(|_, window| window.context != self.id);
            state.stop_waiting(self.id);
        });
    }
}

/// Opens the devices of a simulated network. Clones open the same devices.
#[derive(Debug, Clone)]
pub struct SimProvider {
    fabric: Arc<Fabric>,
}

impl SimNetwork {
    /// Returns the provider of the network's devices. Tests of a service use `Rdma::simulated`,
    /// whose documentation does not lead to verbs.
    #[doc(hidden)]
    #[must_use]
    pub fn provider(&self) -> SimProvider {
        SimProvider { fabric: Arc::clone(self.fabric()) }
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
            let context = ContextState {
                device,
                is_dead: false,
                events: VecDeque::new(),
                queue_pairs_made: 0,
            };
            state.contexts.insert(id, context);
            Ok((id, config))
        })?;
        Ok(SimContext::new(Arc::clone(&self.fabric), id, config))
    }

    fn interface_to(&self, _local: IpAddr, peer: IpAddr) -> Option<u32> {
        self.fabric.enter(|state| state.paths.routes.get(&peer).copied())
    }

    fn interface_mtu(&self, interface: u32) -> Option<u32> {
        self.fabric.enter(|state| {
            let mut gids = state.devices.iter().flat_map(|device| device.config.gids());
            let gid = gids.find(|gid| gid.interface == interface && gid.interface_mtu != 0);
            gid.map(|gid| gid.interface_mtu)
        })
    }
}

fn is_there(device: &DeviceState, name: &str) -> bool {
    !device.is_lost && device.config.name == name
}

fn names(state: &NetworkState) -> Vec<String> {
    let devices = state.devices.iter().filter(|device| !device.is_lost);
    devices.map(|device| device.config.name.clone()).collect()
}
