//! Bytes that leave a device by its physical ports.

use std::time::Duration;

use crate::sim::state::{Event, LagPort, LagPortId, LagPortPhase, Nanos, NetworkState, nanos};

/// Time after which the queue pairs of a lost LAG port leave by another: the interval at which
/// Linux's bonding driver is set to look at links, `miimon=100`.
const MOVE_DELAY: Duration = Duration::from_millis(100);

impl NetworkState {
    /// Returns the LAG port of the next queue pair of an opening, which takes them in turn.
    pub(crate) fn next_lag_port(&mut self, context: u32, port: u8) -> Option<LagPortId> {
        let context = self.contexts.get_mut(&context)?;
        let port = usize::from(port).checked_sub(1)?;
        let count = self.devices[context.device].lag_ports.get(port)?.len();
        let index = context.queue_pairs_made % count;
        context.queue_pairs_made += 1;
        Some(LagPortId { device: context.device, port, index })
    }

    /// Lets bytes of a queue pair leave. Returns the time at which they have left.
    ///
    /// The queue pair and its port are busy independently: bytes that wait for their queue pair
    /// keep no others off the port.
    pub(crate) fn depart(&mut self, id: u32, len: u64) -> Nanos {
        let now = self.now;
        let Some(queue_pair) = self.queue_pairs.get_mut(&id).filter(|_| len > 0) else {
            return now;
        };
        let device = &mut self.devices[queue_pair.lag_port.device];
        let rate = device.config.ports[queue_pair.lag_port.port].rate;
        let port = LagPort::carrier(&mut device.lag_ports, queue_pair.lag_port);
        queue_pair.free_at = now.max(queue_pair.free_at) + time_of(len, rate.per_queue_pair);
        port.free_at = now.max(port.free_at) + time_of(len, rate.per_port);
        queue_pair.free_at.max(port.free_at)
    }

    /// Returns true if packets that leave by a LAG port get lost.
    pub(crate) fn is_dark(&mut self, id: LagPortId) -> bool {
        let carrier = LagPort::carrier(&mut self.devices[id.device].lag_ports, id);
        matches!(carrier.phase, LagPortPhase::Lost { .. })
    }

    /// Takes a LAG port away from each port of a device.
    pub(crate) fn lose_lag_port(&mut self, device: usize, index: usize) {
        let until = self.now + nanos(MOVE_DELAY);
        for ports in &mut self.devices[device].lag_ports {
            let others = ports.iter().enumerate().filter(|(other, _)| *other != index);
            let is_left = others.filter(|(_, port)| port.phase == LagPortPhase::Active).count() > 0;
            assert!(is_left, "no other LAG port is left: {ports:?}");
            if ports[index].phase == LagPortPhase::Active {
                ports[index].phase = LagPortPhase::Lost { until };
            }
        }
        self.agenda.schedule(until, Event::MoveLagPorts { device });
    }

    /// Moves the queue pairs of a device's LAG ports that were lost long enough ago.
    pub(crate) fn move_lag_ports(&mut self, device: usize) {
        let now = self.now;
        for port in self.devices[device].lag_ports.iter_mut().flatten() {
            if matches!(port.phase, LagPortPhase::Lost { until } if until <= now) {
                port.phase = LagPortPhase::Moved;
            }
        }
    }

    /// Brings the LAG ports of a device back.
    pub(crate) fn restore_lag_ports(&mut self, device: usize) {
        for port in self.devices[device].lag_ports.iter_mut().flatten() {
            port.phase = LagPortPhase::Active;
        }
    }
}

/// The time that so many bytes take at a rate in bytes per second, where 0 is no limit.
fn time_of(len: u64, rate: u64) -> Nanos {
    len.saturating_mul(1_000_000_000).checked_div(rate).unwrap_or(0)
}
