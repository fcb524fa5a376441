//! The workers in use, by device, and the choice of one for a new connection.
//!
//! A device gets its workers one after the other: another is made when all there are have
//! connections, until there are as many as the configuration says. Then a connection goes where
//! the fewest are. When all are full more are made, as far as the memory allows that the process
//! may lock, and go again when they are not needed. Workers of a device share the memory for large
//! frames, and nothing else.
//!
//! A connection of a core is on a worker of that core, so that no call wakes another thread: a core
//! gets a worker with its first connection, beside those of the configuration. Where there is no
//! memory for one, the connection goes where there is room.
//!
//! Making a worker registers memory and checks the device's windows, which takes up to half a
//! second. The list is not locked meanwhile: tasks of the runtime read it, and handshakes look for
//! workers of other devices. Handshakes that need a worker of the same device wait for the one that
//! makes it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rpc_core::handoff::current_core;
use tokio::runtime::Id;
use tokio::time::Instant;

use crate::quota::admission::Admission;
use crate::quota::semaphore::FairSemaphore;
use crate::verbs::Device;
use crate::worker::{Worker, WorkerShared};

/// The workers of all devices.
#[derive(Debug, Default)]
pub(crate) struct WorkerSet(Mutex<HashMap<String, OfDevice>>);

/// The workers of one device.
#[derive(Debug, Default)]
struct OfDevice {
    workers: Vec<Arc<Worker>>,
    /// Held by the handshake that makes a worker. Taken before the list's lock, never after it.
    making: Arc<Mutex<()>>,
    /// Number of times that an opening of the device was let go.
    let_go_count: u64,
    /// The handshakes of clients on the device.
    admission: Arc<Admission>,
    /// Set after a worker could not be made, until another is tried.
    paused_until: Option<Instant>,
    /// Set while a task looks for workers that are not needed.
    is_trimming: bool,
    /// The lanes that "auto" comes to, once they were looked up.
    auto_lanes: Option<u16>,
}

/// The choice of a worker for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// To a worker that there is, by its position.
    Existing(usize),
    /// To a new worker.
    New,
}

/// The parts of a worker's state that matter to a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) has_room: bool,
    /// Set if it misses too many receive slots to take new connections.
    pub(crate) is_worn: bool,
}

/// The numbers of workers that a device may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Workers that connections are spread over.
    pub(crate) spread: usize,
    /// Workers in all, as soon as the others are full.
    pub(crate) max: usize,
}

/// Part of a worker's places that have to be free before one that was made because it was full goes
/// again. Without it a connection that comes and goes would make and end a worker each time.
const ROOM_PART: usize = 4;

/// Part of the connections that may be unproven when a worker is made because the others are full:
/// clients that prove nothing get no memory by it.
const UNPROVEN_PART: usize = 4;

/// Time until another worker is tried after one could not be made.
const PAUSE: Duration = Duration::from_secs(1);

/// Decides, given the load of each worker, in the order of their numbers. Workers beyond those that
/// connections are spread over get what the others have no room for, so that they are left again. A
/// worn worker is replaced, and ends with its connections: there are at most twice as many workers
/// meanwhile. Pure.
pub(crate) fn choose(workers: impl IntoIterator<Item = Load>, counts: Counts) -> Choice {
    let workers: Vec<_> = workers.into_iter().collect();
    let whole = || (0..workers.len()).filter(|index| !workers[*index].is_worn);
    let load = |index: &usize| (!workers[*index].has_room, workers[*index].connections);
    let has_room = |index: &usize| workers[*index].has_room;
    let whole_count = whole().count();
    let may_spread = whole_count < counts.spread && workers.len() < 2 * counts.spread;
    let may_grow = whole_count < counts.max && workers.len() < 2 * counts.max;
    let least = whole().take(counts.spread).min_by_key(load).filter(has_room);
    match least.or_else(|| whole().find(has_room)).or_else(|| whole().next()) {
        Some(index) if has_room(&index) && (workers[index].connections == 0 || !may_spread) => {
            Choice::Existing(index)
        }
        Some(index) if !(may_spread || may_grow) => Choice::Existing(index),
        None if !may_spread => Choice::Existing((0..workers.len()).min_by_key(load).unwrap_or(0)),
        _ => Choice::New,
    }
}

impl WorkerSet {
    /// Returns the worker for a new connection on the device of this name, and the result of
    /// `attach` if the worker is new. Connections are spread over `lanes` workers, those of a core
    /// aside.
    ///
    /// `make` makes a worker with this number, beside one that exists already, which is of the same
    /// core if there is one. `attach` records it, before another handshake can find it. If `make`
    /// fails, the connection gets the worker with the fewest connections.
    ///
    /// Blocks for as long as `make` does. `make` is called again if an opening of the device is
    /// lost meanwhile: the worker may be of that one, and would keep it open.
    ///
    /// # Errors
    ///
    /// Returns the error of `make` if the device has no worker. The next call tries again.
    pub(crate) fn find<T, E: fmt::Display>(
        &self,
        device: &str,
        lanes: usize,
        make: impl Fn(Option<&Worker>, usize) -> Result<Worker, E>,
        attach: impl Fn(&Arc<WorkerShared>) -> Option<T>,
    ) -> Result<(Arc<Worker>, Option<T>), E> {
        let core = current_core().map(|core| core.id());
        let chosen = self.look(device, |of| (of.choose(core, lanes), Arc::clone(&of.making)));
        let making = match chosen {
            (Some(worker), _) => return Ok((worker, None)),
            (None, making) => making,
        };
        // It guards no data: after a panic of the one that made a worker the next one makes it.
        let _making = making.lock();
        loop {
            let found = self.look(device, |of| {
                let sibling = of.workers_at(core).next().or(of.workers.first()).cloned();
                of.choose(core, lanes).ok_or((sibling, of.free_number(), of.let_go_count))
            });
            let (sibling, number, let_go_count) = match found {
                // Another handshake has made it.
                Ok(worker) => return Ok((worker, None)),
                Err(found) => found,
            };
            let worker = match make(sibling.as_deref(), number) {
                Ok(worker) => Arc::new(worker),
                Err(error) => return self.look(device, |of| of.instead(core, lanes, error)),
            };
            let attached = self.look(device, |of| {
                let is_same = of.let_go_count == let_go_count;
                is_same.then(|| {
                    // Under the lock, so that a loss which the worker is told of finds it here.
                    let attached = attach(&worker.shared);
                    let place = of.workers.partition_point(|it| it.shared.number < number);
                    of.workers.insert(place, Arc::clone(&worker));
                    attached
                })
            });
            if let Some(attached) = attached {
                return Ok((worker, attached));
            }
        }
    }

    /// Returns the lanes that "auto" comes to for the device of this name: the result of the first
    /// `find`.
    pub(crate) fn auto_lanes(&self, device: &str, find: impl FnOnce() -> u16) -> u16 {
        let known = self.look(device, |of| of.auto_lanes);
        known.unwrap_or_else(|| {
            // The list is free meanwhile: this may read files.
            let lanes = find();
            self.look(device, |of| *of.auto_lanes.insert(lanes))
        })
    }

    /// Returns the admission of handshakes to the device of this name.
    pub(crate) fn admission(&self, device: &str) -> Arc<Admission> {
        self.look(device, |of| Arc::clone(&of.admission))
    }

    /// Returns the number of connections of the device of this name, those that are being made
    /// included.
    pub(crate) fn connection_count(&self, device: &str) -> usize {
        self.look(device, |of| of.workers.iter().map(|it| it.shared.connection_count()).sum())
    }

    /// Drops workers of a device that are not needed any more. Returns true if there are others to
    /// look for later.
    pub(crate) fn trim(&self, device: &str, lanes: usize) -> bool {
        self.look(device, |of| {
            of.trim(lanes);
            of.is_trimming = of.may_have_surplus(lanes);
            of.is_trimming
        })
    }

    /// Returns true, once, if a task has to [`trim`](Self::trim) the workers of a device from time
    /// to time.
    pub(crate) fn begins_trimming(&self, device: &str, lanes: usize) -> bool {
        self.look(device, |of| {
            of.may_have_surplus(lanes) && !std::mem::replace(&mut of.is_trimming, true)
        })
    }

    /// Does something with the workers of a device.
    fn look<R>(&self, device: &str, at: impl FnOnce(&mut OfDevice) -> R) -> R {
        at(self.lock().entry(device.to_owned()).or_default())
    }

    /// Drops the workers of an opening of a device, which keep the device open.
    pub(crate) fn drop_workers_of(&self, device: &Device) {
        let is_lost = |worker: &mut Arc<Worker>| worker.shared.attachment.device().is_same(device);
        let mut lost = Vec::new();
        {
            let mut all = self.lock();
            for of in all.values_mut() {
                lost.extend(of.workers.extract_if(.., is_lost));
            }
            if let Some(of) = all.get_mut(device.name()) {
                of.let_go_count += 1;
            }
        }
        // The lock is free: closing a device may wait for the system.
        drop(lost);
    }

    /// Returns the budgets of READs of each device: one for all workers, and one for those of each
    /// core.
    pub(crate) fn read_budgets(&self) -> HashMap<String, Vec<Arc<FairSemaphore>>> {
        let mut budgets = HashMap::<_, Vec<_>>::new();
        for (device, of) in &*self.lock() {
            let distinct = budgets.entry(device.clone()).or_default();
            for worker in &of.workers {
                if !distinct.iter().any(|it| Arc::ptr_eq(it, &worker.shared.reads)) {
                    distinct.push(Arc::clone(&worker.shared.reads));
                }
            }
        }
        budgets
    }

    /// Returns the result of `describe` for each worker, given the name of its device and its
    /// number there.
    pub(crate) fn map<T>(
        &self,
        mut describe: impl FnMut(&str, usize, &WorkerShared) -> T,
    ) -> Vec<T> {
        let all = self.lock();
        let mut said = Vec::new();
        for (device, of) in &*all {
            let workers = of.workers.iter().map(|worker| &*worker.shared);
            said.extend(workers.map(|worker| describe(device, worker.number, worker)));
        }
        said
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OfDevice>> {
        self.0.lock()
    }
}

impl OfDevice {
    /// The worker for another connection of that core, unless a new one is to be made.
    fn choose(&mut self, core: Option<Id>, lanes: usize) -> Option<Arc<Worker>> {
        // One that has ended is replaced, and so is one that is worn and has no connections.
        self.workers.retain(|worker| {
            let shared = &worker.shared;
            !(shared.is_dead() || shared.is_worn() && shared.connection_count() == 0)
        });
        self.trim(lanes);
        let here: Vec<_> = self.workers_at(core).collect();
        let counts = self.counts(core, here.len(), lanes);
        let load = |worker: &&Arc<Worker>| Load {
            connections: worker.shared.connection_count(),
            has_room: worker.shared.has_room(),
            is_worn: worker.shared.is_worn(),
        };
        if counts.max == 0 {
            return self.elsewhere();
        }
        match choose(here.iter().map(load), counts) {
            Choice::Existing(index) if here[index].shared.has_room() => Some(here[index].clone()),
            Choice::Existing(_) => self.elsewhere(),
            Choice::New => None,
        }
    }

    /// Returns the workers of that core, or those of none.
    fn workers_at(&self, core: Option<Id>) -> impl DoubleEndedIterator<Item = &Arc<Worker>> {
        self.workers.iter().filter(move |worker| worker.shared.core == core)
    }

    /// The worker with the fewest connections, whatever its core: one with room, if there is any.
    fn elsewhere(&self) -> Option<Arc<Worker>> {
        let load = |worker: &&Arc<Worker>| {
            let shared = &worker.shared;
            (shared.is_worn(), !shared.has_room(), shared.connection_count())
        };
        self.workers.iter().min_by_key(load).cloned()
    }

    /// The workers that there may be now of a core that has `count`; none where another core's is
    /// to be used.
    fn counts(&self, core: Option<Id>, count: usize, lanes: usize) -> Counts {
        let spread = spread(core, lanes);
        let is_paused = self.paused_until.is_some_and(|until| Instant::now() < until);
        if is_paused && !self.workers.is_empty() {
            return Counts { spread: spread.min(count), max: count };
        }
        let workers = || self.workers.iter().map(|worker| &worker.shared);
        let unproven: usize = workers().map(|worker| worker.unproven.count()).sum();
        let connections: usize = workers().map(|worker| worker.connection_count()).sum();
        // Those of the device's first worker: the others are as large.
        let max = workers().next().map_or(spread, |worker| worker.sizes.workers_max);
        let free = max.saturating_sub(self.workers.len());
        // The lanes of the configuration are made in any case.
        let spread = if core.is_none() { spread } else { spread.min(count + free) };
        let may_grow = unproven.saturating_mul(UNPROVEN_PART) <= connections;
        Counts { spread, max: if may_grow { spread.max(count + free) } else { spread } }
    }

    /// The worker with the fewest connections, in place of one that could not be made.
    fn instead<T, E: fmt::Display>(
        &mut self,
        core: Option<Id>,
        lanes: usize,
        error: E,
    ) -> Result<(Arc<Worker>, Option<T>), E> {
        self.paused_until = Some(Instant::now() + PAUSE);
        match self.choose(core, lanes) {
            Some(worker) => {
                let device = worker.shared.attachment.device().name();
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    process_wide, WARN, "cannot make another RDMA lane", device, %error
                );
                Ok((worker, None))
            }
            None => Err(error),
        }
    }

    /// The least number that no worker has.
    fn free_number(&self) -> usize {
        let is_taken = |number: &usize| self.workers.iter().any(|it| it.shared.number == *number);
        (0..).find(|number| !is_taken(number)).unwrap_or(self.workers.len())
    }

    /// Returns true if workers may be there that are not needed, now or when their core has ended.
    fn may_have_surplus(&self, lanes: usize) -> bool {
        let has_core = |worker: &Arc<Worker>| worker.shared.core.is_some();
        self.workers.iter().any(has_core) || self.workers.len() > spread(None, lanes)
    }

    /// Drops workers that have ended, and idle ones beyond those that connections are spread over,
    /// the last ones first, that stood in for a worn one or were made because the others were full,
    /// once those have room again.
    fn trim(&mut self, lanes: usize) {
        self.workers.retain(|worker| !worker.shared.is_dead());
        let mut cores: Vec<_> = self.workers.iter().map(|worker| worker.shared.core).collect();
        cores.dedup();
        for core in cores {
            while let Some(number) = self.surplus(core, spread(core, lanes)) {
                self.workers.retain(|worker| worker.shared.number != number);
            }
        }
    }

    /// The number of an idle worker of that core beyond the first `spread`.
    fn surplus(&self, core: Option<Id>, spread: usize) -> Option<usize> {
        let has_room = |worker: &Arc<Worker>| {
            let (shared, places) = (&worker.shared, worker.shared.config.max_connections as usize);
            let free = places.saturating_sub(shared.connection_count());
            !shared.is_worn() && shared.has_room() && free >= places / ROOM_PART
        };
        if !self.workers_at(core).take(spread).any(has_room) {
            return None;
        }
        let behind: Vec<_> = self.workers_at(core).skip(spread).collect();
        let idle = behind.iter().rev().find(|worker| worker.shared.connection_count() == 0);
        idle.map(|worker| worker.shared.number)
    }
}

/// The workers that connections of a core, or of none, are spread over.
fn spread(core: Option<Id>, lanes: usize) -> usize {
    if core.is_some() { 1 } else { lanes.max(1) }
}

#[cfg(test)]
mod tests;
