//! The physical ports of a simulated device, by which its packets leave.

use super::numbers::Nanos;

/// The LAG port that a queue pair was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LagPortId {
    pub(crate) device: usize,
    /// Position of the port among those of the device.
    pub(crate) port: usize,
    /// Position of the LAG port among those of the port.
    pub(crate) index: usize,
}

/// A physical port.
#[derive(Debug, Default)]
pub(crate) struct LagPort {
    pub(crate) phase: LagPortPhase,
    /// Time at which all bytes that were given to it have left.
    pub(crate) free_at: Nanos,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LagPortPhase {
    #[default]
    Active,
    /// Packets that leave by it get lost, until its queue pairs move at this time.
    Lost { until: Nanos },
    /// Its queue pairs leave by the next LAG port.
    Moved,
}

impl LagPort {
    /// Returns the LAG port by which packets of `id` leave: that one, unless its queue pairs moved.
    /// `ports` are the LAG ports of each port of its device.
    pub(crate) fn carrier(ports: &mut [Vec<Self>], id: LagPortId) -> &mut Self {
        let ports = &mut ports[id.port];
        let count = ports.len();
        let mut in_turn = (id.index..id.index + count).map(|index| index % count);
        let found = in_turn.find(|index| ports[*index].phase != LagPortPhase::Moved);
        &mut ports[found.unwrap_or(id.index)]
    }
}
