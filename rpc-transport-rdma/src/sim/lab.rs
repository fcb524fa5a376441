//! Devices of any model, their objects, and defects, for tests of farcall itself.
//!
//! Tests of a service need a device and its faults alone: farcall exports those, and none of these.

#[cfg(test)]
use std::net::IpAddr;
#[cfg(test)]
use std::sync::Arc;

use super::counters::SimCensus;
use super::device::SimDevice;
use super::device_config::SimDeviceConfig;
#[cfg(test)]
use super::hold::SimHold;
use super::network::SimNetwork;
#[cfg(test)]
use super::port::SimQuery;
#[cfg(test)]
use super::reach::SimReach;
use super::state::NetworkState;
#[cfg(test)]
use crate::sys::provider::Mtu;

/// Adds a device of a configuration.
///
/// # Panics
///
/// Panics as [`SimNetwork::add_device`] does.
pub fn add_device(network: &SimNetwork, config: SimDeviceConfig) -> SimDevice {
    network.add_device_with(config)
}

/// Returns the counts of existing objects.
#[must_use]
pub fn census(network: &SimNetwork) -> SimCensus {
    network.census()
}

/// Takes the device away as [`SimDevice::lose`] does, except that nothing is heard of work in
/// flight: only destroying its queue pair ends it.
pub fn lose_silently(device: &SimDevice) {
    device.lose_with(NetworkState::silence);
}

/// Breaks all completion queues of a device, each with an event, and the queue pairs that complete
/// into them: polling them is an error from here on.
pub fn break_completion_queues(device: &SimDevice) {
    device.enter(|state, index| {
        let queues = state.completion_queues.iter();
        let queues = queues.filter(|(_, queue)| queue.device == index);
        let queues: Vec<u32> = queues.map(|(id, _)| *id).collect();
        queues.into_iter().for_each(|id| state.break_completion_queue(id));
    });
}

/// Lets the next `count` destructions of a device's queue pairs fail.
pub fn fail_destructions(device: &SimDevice, count: u32) {
    device.enter(|state, index| state.devices[index].failing_destructions = count);
}

#[cfg(test)]
impl SimNetwork {
    /// Joins these pairs of addresses from here on, and no others.
    pub(crate) fn set_reach(&self, reach: SimReach) {
        self.fabric().enter(|state| state.paths.reach = reach);
    }

    /// Makes packets to an address leave by this network interface, from here on: by the GIDs of
    /// other interfaces they get lost. Programs that ask for the route get this answer.
    pub(crate) fn route_to(&self, address: IpAddr, interface: u32) {
        self.fabric().enter(|state| state.paths.routes.insert(address, interface));
    }

    /// Makes this the MTU of the path from one address to another, from here on. Messages and
    /// answers to READs get lost that have a longer packet.
    pub(crate) fn set_path_mtu(&self, from: IpAddr, to: IpAddr, mtu: Mtu) {
        self.fabric().enter(|state| state.paths.mtus.insert((from, to), mtu));
    }
}

#[cfg(test)]
impl SimDevice {
    /// Lets queries of a kind fail with an error number, from here on, while the device stays open
    /// and carries traffic. `None` lets them work again.
    pub(crate) fn fail_queries(&self, query: SimQuery, errno: Option<i32>) {
        self.enter(|state, index| {
            let failing = &mut state.devices[index].failing_queries;
            match errno {
                Some(errno) => failing.insert(query, errno),
                None => failing.remove(&query),
            }
        });
    }

    /// Lets registrations from here on take until what is given is dropped.
    pub(crate) fn hold_registrations(&self) -> SimHold {
        SimHold::new(self.enter(|state, index| Arc::clone(&state.devices[index].gate)))
    }
}
