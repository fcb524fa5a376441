//! The plan of a simulation: connections of each kind, over lanes of a shape.

use crate::RdmaConfig;
use crate::quota::slots::BASE;

/// Messages that a lane handles in a tick.
pub(super) const BATCH: usize = 8;

/// Ticks that a message takes to the other end. With [`BATCH`] that makes 64 messages a round trip
/// that a lane can handle: more than one window, far less than the windows of all.
pub(super) const DELAY: usize = 4;

/// A round trip without waiting, in ticks.
pub(super) const ROUND_TRIP: usize = 2 * DELAY;

/// Connections that are made when all others are there, one after the other.
pub(super) const NEWCOMERS: u32 = 16;

/// Load of the active connections, as a part of the lanes' capacity.
pub(super) const ACTIVE_LOAD: f64 = 0.2;

/// The shape of a server's lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Receive slots of a lane.
    pub slots: u32,
    /// The length of one, in bytes.
    pub slot_len: u32,
    /// Connections of a lane at most.
    pub connections_max: u32,
    /// The largest window.
    pub credits_max: u32,
}

impl Shape {
    /// A lane as [`RdmaConfig`] has it by itself; many connections need many.
    #[must_use]
    pub fn usual() -> Self {
        let config = RdmaConfig::default();
        Self {
            slots: config.receive_slots.into(),
            slot_len: config.slot_len,
            connections_max: config.max_connections,
            credits_max: config.max_credits,
        }
    }

    /// Returns a shape with as many slots for a connection as the usual lane has, in as few queues
    /// as possible. The length of a queue is a 16-bit number, as the device's limits commonly are.
    #[must_use]
    pub fn pooled(connections: u32) -> Self {
        let usual = Self::usual();
        let each = usual.slots / usual.connections_max;
        let wanted = connections.saturating_add(NEWCOMERS).saturating_mul(each);
        let slots = wanted.clamp(usual.slots, u16::MAX.into());
        Self { slots, connections_max: slots / each, ..usual }
    }

    /// This shape with so many slots.
    #[must_use]
    pub fn with_slots(self, slots: u32) -> Self {
        Self { slots, connections_max: slots / BASE, ..self }
    }
}

/// The behavior of connections, in percent of them; the others are idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Those that always have something to send.
    pub greedy_percent: u32,
    /// Those that call now and then: a fifth of what the lanes can handle, all together.
    pub active_percent: u32,
}

/// The plan of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Decides every chance.
    pub seed: u64,
    /// Number of connections.
    pub connections: u32,
    /// Their behavior.
    pub mix: Mix,
    /// Shape of the lanes.
    pub shape: Shape,
}

impl Plan {
    /// Returns the number of lanes for the connections, with room for newcomers.
    #[must_use]
    pub fn lane_count(&self) -> u32 {
        (self.connections + NEWCOMERS).div_ceil(self.shape.connections_max.max(1))
    }

    /// Returns the number of greedy connections.
    #[must_use]
    pub fn greedy_count(&self) -> u32 {
        part(self.connections, self.mix.greedy_percent)
    }

    /// Returns the number of active connections.
    #[must_use]
    pub fn active_count(&self) -> u32 {
        part(self.connections, self.mix.active_percent)
    }

    /// Ticks in which every greedy connection gets so many messages through, if all get the same;
    /// not less than 64 round trips.
    pub(super) fn ticks_for(&self, messages: u32) -> u64 {
        let all = u64::from(self.greedy_count()) * u64::from(messages);
        let a_tick = u64::from(self.lane_count()) * BATCH as u64;
        all.div_ceil(a_tick).max(64 * ROUND_TRIP as u64)
    }
}

fn part(of: u32, percent: u32) -> u32 {
    let count = u64::from(of) * u64::from(percent.min(100)) / 100;
    u32::try_from(count).unwrap_or(of)
}
