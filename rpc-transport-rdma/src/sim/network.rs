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
use super::reach::SimReach;
use super::state::{DeviceState, LagPort, NetworkState, Script};
use super::violation::SimViolation;
use crate::sim::device_config::SimDeviceConfig;
use crate::sys::provider::Mtu;

/// A network of simulated devices. Clones are the same network.
///
/// A [violation](SimViolation) that no test reads by [`violations`](Self::violations) does not go
/// unnoticed: the drop of the last clone panics with it. One that is committed later, by something
/// that still uses the devices, panics when the last of those goes. During another panic they are
/// logged as errors instead.
#[derive(Debug, Clone)]
pub struct SimNetwork {
    handle: Arc<NetworkHandle>,
}

/// The last clone of a network takes it along.
#[derive(Debug)]
struct NetworkHandle {
    fabric: Arc<Fabric>,
}

impl Drop for NetworkHandle {
    fn drop(&mut self) {
        self.fabric.expect_no_unread_violations();
    }
}

impl PartialEq for SimNetwork {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }
}

impl Eq for SimNetwork {}

impl SimNetwork {
    /// An empty network. All chances are drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { handle: Arc::new(NetworkHandle { fabric: Fabric::new(seed) }) }
    }

    /// Adds a device with the addresses of its port. A connection uses the device that has its
    /// local address; one device can serve both ends.
    ///
    /// # Panics
    ///
    /// Panics if the network has a device of that name, or one with an equal address on the same
    /// interface, or if the number of ports, or of a port's LAG ports, is not from 1 to 8.
    pub fn add_device(&self, name: &str, addresses: &[IpAddr]) -> SimDevice {
        self.add_device_with(SimDeviceConfig::new(name, addresses))
    }

    /// Adds a device of a configuration: with several ports, or ports of other kinds.
    ///
    /// # Panics
    ///
    /// Panics as [`add_device`](Self::add_device) does.
    pub fn add_device_with(&self, mut config: SimDeviceConfig) -> SimDevice {
        let port_count = u8::try_from(config.ports.len()).ok().filter(|it| (1..=8).contains(it));
        config.attributes.port_count = port_count.expect("a device has 1 to 8 ports");
        let lag_ports = config.ports.iter().map(|port| {
            assert!((1..=8).contains(&port.lag_ports), "a port has 1 to 8 LAG ports");
            (0..port.lag_ports).map(|_| LagPort::default()).collect()
        });
        let lag_ports = lag_ports.collect();
        let index = self.fabric().enter(|state| {
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
                lag_ports,
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
        SimDevice::new(Arc::clone(self.fabric()), index)
    }

    /// The network as its provider sees it.
    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        &self.handle.fabric
    }

    /// Makes these the faults from here on.
    pub fn set_faults(&self, faults: SimFaults) {
        self.fabric().enter(|state| state.faults = faults);
    }

    /// Makes this the time that a request or an answer travels, from here on; 2 us to 20 us by
    /// default. tokio's timers count milliseconds, so a task that sleeps meanwhile may sleep
    /// longer.
    pub fn set_latency(&self, latency: RangeInclusive<Duration>) {
        self.fabric().enter(|state| state.latency = latency);
    }

    /// Joins the pairs of addresses that `reach` names, from here on, and no others. All by
    /// default. Packets between others get lost without an error, as behind a firewall, and queue
    /// pairs send them again until they give up.
    pub fn set_reach(&self, reach: SimReach) {
        self.fabric().enter(|state| state.paths.reach = reach);
    }

    /// Makes packets to an address leave by the network interface with this index, from here on.
    /// Those that leave by a GID of another interface get lost. Programs that ask for the route to
    /// that address get this answer.
    pub fn route_to(&self, address: IpAddr, interface: u32) {
        self.fabric().enter(|state| state.paths.routes.insert(address, interface));
    }

    /// Makes this the MTU of the path from one address to another, from here on: of that direction
    /// alone. Messages, and answers to READs, get lost without an error if they have a longer
    /// packet. By default paths carry whatever their ports send.
    pub fn set_path_mtu(&self, from: IpAddr, to: IpAddr, mtu: Mtu) {
        self.fabric().enter(|state| state.paths.mtus.insert((from, to), mtu));
    }

    /// Lets every violation from here on panic in the call that commits it, instead of being
    /// listed only.
    pub fn panic_on_violation(&self) {
        self.fabric().be_strict();
    }

    /// Returns the violations by the programs above, in order. A test asserts that there are none.
    /// Those that it returns count as read.
    #[must_use]
    pub fn violations(&self) -> Vec<SimViolation> {
        self.fabric().enter(NetworkState::violations)
    }

    /// Returns the counts of events.
    #[must_use]
    pub fn counters(&self) -> SimCounters {
        self.fabric().enter(|state| state.counters.clone())
    }

    /// Returns the counts of existing objects.
    pub(crate) fn census(&self) -> SimCensus {
        self.fabric().enter(|state| state.census())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const VIOLATION: SimViolation = SimViolation::NotConnected { number: 7 };

    const UNREAD: &str = "no test has read violations of a simulated network: \
                          queue pair 7: posted before it was connected";

    fn network() -> (SimNetwork, SimDevice) {
        let network = SimNetwork::new(1);
        let device = network.add_device("sim0", &[[10, 0, 0, 1].into()]);
        (network, device)
    }

    fn message(end: impl FnOnce()) -> Option<String> {
        let panic = catch_unwind(AssertUnwindSafe(end)).err()?;
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
    }

    #[test]
    fn the_last_clone_panics_with_unread_violations() {
        let (network, _device) = network();
        let other = network.clone();
        network.fabric().enter(|state| state.report(VIOLATION));
        assert_eq!(message(|| drop(network)), None, "another can read them");
        assert_eq!(message(|| drop(other)).as_deref(), Some(UNREAD));
    }

    #[test]
    fn violations_that_were_read_make_no_panic() {
        let (network, device) = network();
        network.fabric().enter(|state| state.report(VIOLATION));
        assert_eq!(network.violations(), [VIOLATION]);
        assert_eq!(network.violations(), [VIOLATION], "again");
        assert_eq!(message(|| drop((network, device))), None);
    }

    #[test]
    fn a_violation_after_the_last_clone_panics_at_the_end() {
        let (network, device) = network();
        network.fabric().enter(|state| state.report(VIOLATION));
        assert_eq!(network.violations(), [VIOLATION]);
        drop(network);
        device.enter(|state, _| state.report(VIOLATION));
        assert_eq!(message(|| drop(device)).as_deref(), Some(UNREAD));
    }

    #[test]
    fn unread_violations_replace_no_other_panic() {
        let (network, _device) = network();
        network.fabric().enter(|state| state.report(VIOLATION));
        let shown = message(move || {
            let _network = network;
            panic!("the test's own");
        });
        assert_eq!(shown.as_deref(), Some("the test's own"));
    }
}
