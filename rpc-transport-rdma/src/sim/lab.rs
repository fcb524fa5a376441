//! Objects and defects of simulated devices, for tests of farcall itself.
//!
//! Tests of a service need devices, their ports, the network and its faults: farcall exports those,
//! and none of these.

#[cfg(test)]
use std::sync::Arc;

use super::counters::SimCensus;
use super::device::SimDevice;
use super::hold::SimHold;
use super::network::SimNetwork;
use super::state::NetworkState;

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

/// Waits until `hold` blocks a thread, and not only commands of a device's own.
///
/// A paused clock of tokio stands still as long as a thread of `spawn_blocking` works. So a test
/// that lets firmware go at a time of such a clock must let it go at once when a thread waits for
/// it, as a handshake's does: the time would not come.
pub async fn thread_is_blocked(hold: &SimHold) {
    hold.blocked().await;
}

#[cfg(test)]
impl SimDevice {
    /// Lets registrations from here on take until what is given is dropped.
    pub(crate) fn hold_registrations(&self) -> SimHold {
        SimHold::new(self.enter(|state, index| Arc::clone(&state.devices[index].gate)))
    }
}
