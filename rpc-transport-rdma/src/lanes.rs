//! The lanes in use, by device, and the choice of one for a new connection.
//!
//! A device gets its lanes one after the other: another is made when all there are have
//! connections, until there are as many as the configuration says. Then a connection goes where
//! the fewest are. Lanes of a device share the memory for large frames, and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lane::{Lane, LaneShared};
use crate::verbs::Device;

/// The lanes of all devices.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Mutex<HashMap<String, Vec<Arc<Lane>>>>);

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// To a lane that there is, by its position.
    Existing(usize),
    /// To a new lane.
    New,
}

/// Decides, given how many connections each lane has. Pure.
pub(crate) fn choose(counts: impl IntoIterator<Item = usize>, lanes_max: usize) -> Choice {
    let counts: Vec<_> = counts.into_iter().collect();
    match (0..counts.len()).min_by_key(|index| counts[*index]) {
        Some(index) if counts[index] == 0 || counts.len() >= lanes_max => Choice::Existing(index),
        _ => Choice::New,
    }
}

impl Lanes {
    /// The lane for a new connection on the device of this name, which has up to `lanes_max`.
    /// Another is made by `make`, beside one that there is already; `attach` is told of it before
    /// anybody else can find it, and what it says comes back with the lane.
    ///
    /// # Errors
    ///
    /// What `make` says.
    pub(crate) fn find<T, E>(
        &self,
        device: &str,
        lanes_max: usize,
        make: impl FnOnce(Option<&Lane>) -> Result<Lane, E>,
        attach: impl FnOnce(&Arc<LaneShared>) -> Option<T>,
    ) -> Result<(Arc<Lane>, Option<T>), E> {
        let mut all = self.lock();
        let lanes = all.entry(device.to_owned()).or_default();
        // One that has ended is replaced.
        lanes.retain(|lane| !lane.shared.is_dead());
        let counts = lanes.iter().map(|lane| lane.shared.connection_count());
        if let Choice::Existing(index) = choose(counts, lanes_max) {
            return Ok((Arc::clone(&lanes[index]), None));
        }
        let lane = Arc::new(make(lanes.first().map(|lane| &**lane))?);
        let attached = attach(&lane.shared);
        lanes.push(Arc::clone(&lane));
        Ok((lane, attached))
    }

    /// Lets go of the lanes of an opening of a device, which keep it open.
    pub(crate) fn let_go_of(&self, device: &Device) {
        let is_lost = |lane: &mut Arc<Lane>| lane.shared.attachment.device().is_same(device);
        let mut lost = Vec::new();
        for lanes in self.lock().values_mut() {
            lost.extend(lanes.extract_if(.., is_lost));
        }
        // The lock is free: closing a device may wait for the system.
        drop(lost);
    }

    /// What `describe` says of each lane, given the name of its device and its number there.
    pub(crate) fn map<T>(&self, mut describe: impl FnMut(&str, usize, &LaneShared) -> T) -> Vec<T> {
        let all = self.lock();
        let mut said = Vec::new();
        for (device, lanes) in &*all {
            let lanes = lanes.iter().enumerate();
            said.extend(lanes.map(|(number, lane)| describe(device, number, &lane.shared)));
        }
        said
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Lane>>>> {
        // The list is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_made_as_connections_come_and_then_filled_evenly() {
        let mut counts: Vec<usize> = Vec::new();
        for _ in 0..10 {
            match choose(counts.iter().copied(), 3) {
                Choice::Existing(index) => counts[index] += 1,
                Choice::New => counts.push(1),
            }
        }
        assert_eq!(counts, [4, 3, 3]);
        counts[1] = 0;
        assert_eq!(choose(counts, 3), Choice::Existing(1));
    }

    #[test]
    fn a_lane_without_connections_is_used_before_another_is_made() {
        assert_eq!(choose([1, 0], 8), Choice::Existing(1));
        assert_eq!(choose([], 0), Choice::New, "there has to be one");
        assert_eq!(choose([5], 0), Choice::Existing(0));
    }
}
