//! A simulated network as a test holds it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::counters::{SimCensus, SimCounters};
use super::device::SimDevice;
use super::fabric::Fabric;
use super::faults::SimFaults;
use super::port::SimGid;
use super::state::{DeviceState, Script};
use super::violation::SimViolation;
use crate::sim::device_config::SimDeviceConfig;

/// A network of simulated devices. Clones are the same network.
#[derive(Debug, Clone)]
pub struct SimNetwork {
    fabric: Arc<Fabric>,
}

impl PartialEq for SimNetwork {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.fabric, &other.fabric)
    }
}

impl Eq for SimNetwork {}

impl SimNetwork {
    /// An empty network. All chances are drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { fabric: Fabric::new(seed) }
    }

    /// Adds a device with the addresses of its port. A connection uses the device that has its
    /// local address; one device can serve both ends.
    ///
    /// # Panics
    ///
    /// Panics if the network has a device of that name, or one with such an address on such an
    /// interface, or if the number of ports is not from 1 to 8.
    pub fn add_device(&self, name: &str, addresses: &[IpAddr]) -> SimDevice {
        self.add_device_with(SimDeviceConfig::new(name, addresses))
    }

    /// Adds a device of a configuration.
    pub(crate) fn add_device_with(&self, mut config: SimDeviceConfig) -> SimDevice {
        let port_count = u8::try_from(config.ports.len()).ok().filter(|it| (1..=8).contains(it));
        config.attributes.port_count = port_count.expect("a device has 1 to 8 ports");
        let index = self.fabric.enter(|state| {
            for other in &state.devices {
                let clashes = |gid: &SimGid| other.config.gids().any(|it| it.clashes(gid));
                assert!(
                    other.config.name != config.name && !config.gids().any(clashes),
                    "{config:?} clashes with {other:?}"
                );
            }
            state.devices.push(DeviceState {
                config,
                is_link_up: true,
                failing_queries: BTreeMap::new(),
                is_lost: false,
                failing_destructions: 0,
                read_delay: 0,
                gate: Arc::default(),
                command_delays: BTreeMap::new(),
                firmware: Arc::default(),
                firmware_turn: Arc::default(),
                commands_now: 0,
                commands_at_once: 0,
                is_scripted: false,
                script: Script::default(),
            });
            state.devices.len() - 1
        });
        SimDevice::new(Arc::clone(&self.fabric), index)
    }

    /// The network as its provider sees it.
    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        &self.fabric
    }

    /// Makes these the faults from here on.
    pub fn set_faults(&self, faults: SimFaults) {
        self.fabric.enter(|state| state.faults = faults);
    }

    /// Makes this the time that a request or an answer travels, from here on; 2 us to 20 us by
    /// default. tokio's timers count milliseconds, so a task that sleeps meanwhile may sleep
    /// longer.
    pub fn set_latency(&self, latency: RangeInclusive<Duration>) {
        self.fabric.enter(|state| state.latency = latency);
    }

    /// Lets every violation from here on panic in the call that commits it, instead of being
    /// listed only.
    pub fn panic_on_violation(&self) {
        self.fabric.be_strict();
    }

    /// Returns the violations by the programs above, in order. A test asserts that there are none.
    #[must_use]
    pub fn violations(&self) -> Vec<SimViolation> {
        self.fabric.enter(|state| state.violations())
    }

    /// Returns the counts of events.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.fabric.enter(|state| state.counters)
    }

    /// Returns the counts of existing objects.
    pub(crate) fn census(&self) -> SimCensus {
        self.fabric.enter(|state| state.census())
    }
}
