//! A simulated network as a test holds it.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::counters::{SimCensus, SimCounters};
use super::device::SimDevice;
use super::fabric::Fabric;
use super::faults::SimFaults;
use super::provider::SimProvider;
use super::state::DeviceState;
use super::violation::SimViolation;
use crate::verbs::{DeviceAttributes, Gid, Mtu, ReceiveDrain, ReceiveOrder};

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

/// What a simulated device is like.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimDeviceConfig {
    /// Name by which it is opened.
    pub name: String,
    /// GIDs of its port.
    pub gids: Vec<Gid>,
    /// Its limits. Those of Soft-RoCE by default, where that has round ones.
    pub attributes: DeviceAttributes,
    /// MTU of its port; 4096 by default.
    pub mtu: Mtu,
    /// The longest message; 8 MiB by default.
    pub message_len_max: u32,
    /// The most that can be sent inline; 512 bytes by default.
    pub inline_max: u32,
    /// Why its READs are not to be trusted, as a driver's are that are known to complete short;
    /// `None` by default. [`SimFaults::short_read`] makes READs short.
    pub read_defect: Option<String>,
    /// What programs are told of the receive slots of a queue pair that dies: by default that they
    /// are told of the last, and that none is missing then. [`SimFaults`] make it otherwise.
    pub receive_drain: ReceiveDrain,
}

impl SimDeviceConfig {
    /// A device whose port has these addresses.
    #[must_use]
    pub fn new(name: &str, addresses: &[IpAddr]) -> Self {
        Self {
            name: name.to_owned(),
            gids: addresses.iter().copied().map(Gid::from_ip).collect(),
            attributes: DeviceAttributes {
                port_count: 1,
                queue_pairs_max: 65_536,
                send_depth_max: 16_384,
                completions_max: 32_767,
                shared_receives_max: 16_384,
                windows_max: 65_536,
                reads_in_max: 16,
                reads_out_max: 16,
            },
            mtu: Mtu::B4096,
            message_len_max: 8 << 20,
            inline_max: 512,
            read_defect: None,
            receive_drain: ReceiveDrain { order: ReceiveOrder::Posted, ..ReceiveDrain::SPECIFIED },
        }
    }
}

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
    /// If the network has a device of that name, or one with such an address.
    pub fn add_device(&self, name: &str, addresses: &[IpAddr]) -> SimDevice {
        self.add_device_with(SimDeviceConfig::new(name, addresses))
    }

    /// Adds a device.
    ///
    /// # Panics
    ///
    /// As [`SimNetwork::add_device`].
    pub fn add_device_with(&self, config: SimDeviceConfig) -> SimDevice {
        let index = self.fabric.enter(|state| {
            for other in &state.devices {
                let clashes = |gid| other.config.gids.contains(gid);
                assert!(
                    other.config.name != config.name && !config.gids.iter().any(clashes),
                    "{config:?} clashes with {other:?}"
                );
            }
            state.devices.push(DeviceState {
                config,
                is_link_up: true,
                is_lost: false,
                failing_destructions: 0,
                read_delay: 0,
                gate: Arc::default(),
            });
            state.devices.len() - 1
        });
        SimDevice::new(Arc::clone(&self.fabric), index)
    }

    /// What opens the network's devices. A service's tests say `Rdma::simulated`, whose
    /// documentation is not to lead to verbs.
    #[doc(hidden)]
    #[must_use]
    pub fn provider(&self) -> SimProvider {
        SimProvider::new(Arc::clone(&self.fabric))
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

    /// What the programs above did that they may not, in order. A test asserts that it is nothing.
    #[must_use]
    pub fn violations(&self) -> Vec<SimViolation> {
        self.fabric.enter(|state| state.violations())
    }

    /// How often what has happened.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.fabric.enter(|state| state.counters)
    }

    /// What exists now.
    #[must_use]
    pub fn census(&self) -> SimCensus {
        self.fabric.enter(|state| state.census())
    }
}
