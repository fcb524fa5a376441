//! The memory that a lane locks, and a lane's size where the process may lock little. Pure.
//!
//! The queues of hardware are memory of the process that counts as locked, like what is registered
//! (`sys::provider::queue_memory`). The default lane with all its connections takes 18 MiB on mlx5,
//! and Debian lets a process lock 8.

use crate::RdmaConfig;
use crate::proto::connection::{CONTROL_SLOT_LEN, CONTROL_SLOTS};
use crate::quota::slots::BASE;
use crate::verbs::queue_memory::{
    completion_queue_len, pages, queue_pair_len, shared_receive_queue_len,
};
use crate::verbs::{LockedMemory, QueuePairConfig};

/// Eighths of what can be locked that lanes take. Large frames have the rest.
const LANES_EIGHTHS: u64 = 5;

/// A lean connection: requests in flight, READs, and queue pairs for them.
const LEAN_SEND_DEPTH: u32 = 50;
const LEAN_READS: u8 = 4;
const LEAN_READ_QUEUE_PAIRS: u8 = 1;

/// Parts of the settings' slots that a lane for lean connections has: of the receive slots beside
/// the least of each connection, and of the send slots.
const LEAN_WIDENING_PART: u16 = 16;
const LEAN_SEND_PART: u32 = 4;

/// Connections of a device after which new ones, and new lanes, are lean: 1,024 others lock 72 MiB
/// on mlx5, with their parts of lanes.
pub(crate) const LEAN_FROM: usize = 1024;

/// The smallest lane. With a limit below what that takes, the device's refusal names the limit.
const MIN_SLOTS: u16 = 16;
const MIN_SEND_SLOTS: u32 = 4;

/// Slots to send from begin at multiples of a cache line.
const SLOT_UNIT: u64 = 64;

/// The most lanes that a device gets by itself.
const AUTO_LANES_MAX: usize = 8;

/// Returns the lanes of a device where the settings say "auto", given the memory that the process
/// may lock and its processors on the device's node. Lanes share what can be locked: with a limit
/// there is one.
pub(crate) fn auto_lanes(memory: LockedMemory, processors: usize) -> u16 {
    let count = memory.limit.map_or(processors.clamp(1, AUTO_LANES_MAX), |_| 1);
    // At most eight.
    u16::try_from(count).unwrap_or(1)
}

/// Bytes that all lanes of a device may lock; `None` without a limit.
pub(super) fn lanes_budget(memory: LockedMemory) -> Option<u64> {
    memory.free().map(|free| free / 8 * LANES_EIGHTHS)
}

/// The settings of a lane cut so that it locks at most `budget` bytes with all its connections, if
/// they have to be cut: lean connections first, and then fewer of them and fewer slots in turn.
pub(super) fn fit(config: &RdmaConfig, budget: u64) -> Option<RdmaConfig> {
    if lane_len(config) <= budget {
        return None;
    }
    let mut fitted = lean(config);
    for cut in 0_u32.. {
        // A lane below this would refuse every frame; the device's own refusal says more.
        let is_least = fitted.max_connections <= 1
            && fitted.receive_slots <= MIN_SLOTS
            && fitted.send_slots <= MIN_SEND_SLOTS;
        if is_least || lane_len(&fitted) <= budget {
            break;
        }
        // Connections first and slots next, in turn: either alone would leave the other unusable.
        if cut.is_multiple_of(2) {
            fitted.max_connections = (fitted.max_connections / 2).max(1);
        } else {
            let (receives, sends) = (fitted.receive_slots, fitted.send_slots);
            fitted.receive_slots = (receives / 2).max(MIN_SLOTS).min(receives);
            fitted.send_slots = (sends / 2).max(MIN_SEND_SLOTS).min(sends);
        }
    }
    Some(fitted)
}

/// The settings of a lane that is made for lean connections alone: their least window each, and
/// with the default settings 64 slots in which windows of busy ones widen.
pub(super) fn lean_lane(config: &RdmaConfig) -> RdmaConfig {
    let least = config.max_connections.saturating_mul(BASE);
    let receive_slots = least.saturating_add(u32::from(config.receive_slots / LEAN_WIDENING_PART));
    RdmaConfig {
        receive_slots: u16::try_from(receive_slots).unwrap_or(u16::MAX).min(config.receive_slots),
        send_slots: (config.send_slots / LEAN_SEND_PART).max(MIN_SEND_SLOTS).min(config.send_slots),
        ..lean(config)
    }
}

/// The settings with lean connections.
fn lean(config: &RdmaConfig) -> RdmaConfig {
    RdmaConfig {
        send_depth: config.send_depth.min(LEAN_SEND_DEPTH),
        max_reads: config.max_reads.min(LEAN_READS),
        read_queue_pairs: config.read_queue_pairs.min(LEAN_READ_QUEUE_PAIRS),
        ..config.clone()
    }
}

/// Bytes that a lane locks when it has all its connections.
pub(super) fn lane_len(config: &RdmaConfig) -> u64 {
    let slot_len = u64::from(config.slot_len);
    let slots_len =
        |count: u32, len: u64| pages(u64::from(count) * len.next_multiple_of(SLOT_UNIT));
    let slots = pages(u64::from(config.receive_slots) * slot_len)
        + slots_len(config.send_slots, slot_len)
        + slots_len(control_slots(config), CONTROL_SLOT_LEN as u64);
    let queues = completion_queue_len(config.completions_of_lane())
        + shared_receive_queue_len(config.receive_slots.into());
    slots + queues + u64::from(config.max_connections) * connection_len(config)
}

/// Control slots of a lane: those of each connection, and of one that still drains its queue pairs
/// when the next one comes.
pub(super) fn control_slots(config: &RdmaConfig) -> u32 {
    // Each takes receive slots, so there are never 65,536.
    let connections = config.max_connections.min(u32::from(config.receive_slots) / BASE);
    (connections + 1) * CONTROL_SLOTS
}

/// Bytes that a connection locks: its queue pairs with the drain WR of each.
fn connection_len(config: &RdmaConfig) -> u64 {
    let inline_max = QueuePairConfig::default().inline_max;
    let messages = queue_pair_len(config.send_depth.saturating_add(1), inline_max);
    let reads = queue_pair_len(u32::from(config.reads_of_queue_pair()) + 1, 0);
    messages + u64::from(config.read_queue_pairs) * reads
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_connection_takes_40_kib_and_a_lean_one_20() {
        assert_eq!(connection_len(&RdmaConfig::default()), 40 << 10);
        let lean = fit(&RdmaConfig::default(), 5 * MIB).unwrap();
        assert_eq!(connection_len(&lean), 20 << 10);
    }

    /// The figures of the book, and of `farcall doctor`.
    #[test]
    fn a_lane_takes_17_9_mib_of_which_5_8_are_slots() {
        let config = RdmaConfig::default();
        let queues = completion_queue_len(config.completions_of_lane())
            + shared_receive_queue_len(config.receive_slots.into())
            + u64::from(config.max_connections) * connection_len(&config);
        let tenths = |len: u64| (10 * len + MIB / 2) / MIB;
        assert_eq!([lane_len(&config), lane_len(&config) - queues].map(tenths), [179, 58]);
    }

    #[test]
    fn a_connection_has_41_kib_of_a_full_lean_lane() {
        let part = |config: &RdmaConfig| lane_len(config) / u64::from(config.max_connections);
        let [full, lean] = [RdmaConfig::default(), lean_lane(&RdmaConfig::default())];
        assert_eq!((lean.receive_slots, lean.send_slots), (832, 64));
        assert_eq!([part(&full), part(&lean)].map(|len| len >> 10), [71, 41]);
    }

    #[test]
    fn a_lane_under_eight_mib_has_64_lean_connections() {
        let memory = LockedMemory { locked: 0, limit: Some(8 * MIB) };
        let budget = lanes_budget(memory).unwrap();
        let fitted = fit(&RdmaConfig::default(), budget).unwrap();
        let sizes = (fitted.receive_slots, fitted.send_slots, fitted.max_connections);
        assert_eq!(sizes, (512, 128, 64));
        let lean = (fitted.send_depth, fitted.max_reads, fitted.read_queue_pairs);
        assert_eq!(lean, (50, 4, 1));
        assert_eq!(completion_queue_len(fitted.completions_of_lane()), MIB / 2);
        assert!(lane_len(&fitted) + 3 * MIB <= 8 * MIB, "{}", lane_len(&fitted));
    }

    #[test]
    fn auto_lanes_are_the_nodes_processors_up_to_eight() {
        let lanes = |limit, processors| auto_lanes(LockedMemory { locked: 0, limit }, processors);
        assert_eq!([0, 1, 3, 8, 64].map(|count| lanes(None, count)), [1, 1, 3, 8, 8]);
        assert_eq!(lanes(Some(1 << 40), 64), 1, "lanes share what can be locked");
    }

    #[test]
    fn a_lane_that_fits_is_left_as_it_is() {
        let config = RdmaConfig::default();
        assert_eq!(fit(&config, lane_len(&config)), None);
        assert_eq!(lanes_budget(LockedMemory::default()), None);
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "hundreds of cases, and it keeps those that fail in a file")]
        fn a_lane_fits_its_budget_or_is_the_smallest(
            budget in 0_u64..64 * MIB,
            receive_slots in 3_u16..,
            send_slots in 1_u32..5000,
            max_connections in 1_u32..5000,
            read_queue_pairs in 0_u8..=8,
        ) {
            let config = RdmaConfig {
                receive_slots, send_slots, max_connections, read_queue_pairs,
                ..RdmaConfig::default()
            };
            let fitted = fit(&config, budget).unwrap_or_else(|| config.clone());
            let is_least = fitted.max_connections == 1
                && fitted.receive_slots <= MIN_SLOTS
                && fitted.send_slots <= MIN_SEND_SLOTS;
            prop_assert!(lane_len(&fitted) <= budget || is_least);
            prop_assert!(lane_len(&fitted) <= lane_len(&config));
            prop_assert_eq!(fitted.check(), Ok(()));
        }

        #[test]
        #[cfg_attr(miri, ignore = "hundreds of cases, and it keeps those that fail in a file")]
        fn a_lean_lane_has_as_many_connections_in_less_memory(
            receive_slots in 3_u16..,
            send_slots in 1_u32..5000,
            max_connections in 1_u32..,
        ) {
            let config =
                RdmaConfig { receive_slots, send_slots, max_connections, ..RdmaConfig::default() };
            let lane = lean_lane(&config);
            prop_assert_eq!(control_slots(&lane), control_slots(&config));
            prop_assert!(lane_len(&lane) <= lane_len(&config));
            prop_assert_eq!(lane.check(), Ok(()));
        }
    }
}
