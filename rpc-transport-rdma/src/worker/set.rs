//! The workers in use, by device, and the choice of one for a new connection.
//!
//! A device gets its workers one after the other: another is made when all there are have
//! connections, until there are as many as the configuration says. Then a connection goes where
//! the fewest are. When all are full more are made, as far as the memory allows that the process
//! may lock, and go again when they are not needed. Workers of a device share the memory for large
//! frames, and nothing else.
//!
//! Making a worker registers memory and checks the device's windows, which takes up to half a
//! second. The list is not locked meanwhile: tasks of the runtime read it, and handshakes look for
//! workers of other devices. Handshakes that need a worker of the same device wait for the one that
//! makes it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::quota::admission::Admission;
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
    /// Returns the worker for a new connection on the device of this name, where connections are
    /// spread over `lanes` workers, and the result of `attach` if the worker is new.
    ///
    /// `make` makes a worker with this number, beside one that exists already. `attach` records it,
    /// before another handshake can find it. If `make` fails, the connection gets the worker with
    /// the fewest connections.
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
        let making = match self.look(device, |of| (of.choose(lanes), Arc::clone(&of.making))) {
            (Some(worker), _) => return Ok((worker, None)),
            (None, making) => making,
        };
        // It guards no data: after a panic of the one that made a worker the next one makes it.
        let _making = making.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let found = self.look(device, |of| {
                let first = of.workers.first().cloned();
                of.choose(lanes).ok_or((first, of.free_number(), of.let_go_count))
            });
            let (sibling, number, let_go_count) = match found {
                // Another handshake has made it.
                Ok(worker) => return Ok((worker, None)),
                Err(found) => found,
            };
            let worker = match make(sibling.as_deref(), number) {
                Ok(worker) => Arc::new(worker),
                Err(error) => return self.look(device, |of| of.instead(lanes, error)),
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

    /// Returns the admission of handshakes to the device of this name.
    pub(crate) fn admission(&self, device: &str) -> Arc<Admission> {
        self.look(device, |of| Arc::clone(&of.admission))
    }

    /// Drops workers of a device that are not needed any more. Returns true if there are others to
    /// look for later.
    pub(crate) fn trim(&self, device: &str, lanes: usize) -> bool {
        self.look(device, |of| {
            of.trim(lanes);
            of.is_trimming = of.workers.len() > lanes.max(1);
            of.is_trimming
        })
    }

    /// Returns true, once, if a task has to [`trim`](Self::trim) the workers of a device from time
    /// to time.
    pub(crate) fn begins_trimming(&self, device: &str, lanes: usize) -> bool {
        self.look(device, |of| {
            let has_surplus = of.workers.len() > lanes.max(1);
            has_surplus && !std::mem::replace(&mut of.is_trimming, true)
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
        // The list is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfDevice {
    /// The worker for another connection, unless a new one is to be made.
    fn choose(&mut self, lanes: usize) -> Option<Arc<Worker>> {
        // One that has ended is replaced, and so is one that is worn and has no connections.
        self.workers.retain(|worker| {
            let shared = &worker.shared;
            !(shared.is_dead() || shared.is_worn() && shared.connection_count() == 0)
        });
        self.trim(lanes);
        let counts = self.counts(lanes);
        let loads = self.workers.iter().map(|worker| Load {
            connections: worker.shared.connection_count(),
            has_room: worker.shared.has_room(),
            is_worn: worker.shared.is_worn(),
        });
        match choose(loads, counts) {
            Choice::Existing(index) => Some(Arc::clone(&self.workers[index])),
            Choice::New => None,
        }
    }

    /// The workers that there may be now.
    fn counts(&self, lanes: usize) -> Counts {
        let spread = lanes.max(1);
        let is_paused = self.paused_until.is_some_and(|until| Instant::now() < until);
        if is_paused && !self.workers.is_empty() {
            let count = self.workers.len();
            return Counts { spread: spread.min(count), max: count };
        }
        let workers = || self.workers.iter().map(|worker| &worker.shared);
        let unproven: usize = workers().map(|worker| worker.unproven.count()).sum();
        let connections: usize = workers().map(|worker| worker.connection_count()).sum();
        // Those of the device's first worker: the others are as large.
        let max = workers().next().map_or(spread, |worker| worker.workers_max);
        let may_grow = unproven.saturating_mul(UNPROVEN_PART) <= connections;
        Counts { spread, max: if may_grow { spread.max(max) } else { spread } }
    }

    /// The worker with the fewest connections, in place of one that could not be made.
    fn instead<T, E: fmt::Display>(
        &mut self,
        lanes: usize,
        error: E,
    ) -> Result<(Arc<Worker>, Option<T>), E> {
        self.paused_until = Some(Instant::now() + PAUSE);
        match self.choose(lanes) {
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

    /// Drops idle workers beyond `lanes`, the last ones first, that stood in for a worn one or were
    /// made because the others were full, once those have room again.
    fn trim(&mut self, lanes: usize) {
        let lanes = lanes.max(1);
        let has_room = |worker: &Arc<Worker>| {
            let (shared, places) = (&worker.shared, worker.shared.config.max_connections as usize);
            let free = places.saturating_sub(shared.connection_count());
            !shared.is_worn() && shared.has_room() && free >= places / ROOM_PART
        };
        while self.workers.len() > lanes && self.workers.iter().take(lanes).any(has_room) {
            let behind = self.workers.iter().skip(lanes);
            let idle = behind.rev().find(|worker| worker.shared.connection_count() == 0);
            let Some(number) = idle.map(|worker| worker.shared.number) else { return };
            self.workers.retain(|worker| worker.shared.number != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::Runtime;

    use super::*;
    use crate::RdmaConfig;
    use crate::testing::scripted::ScriptedDevice;

    /// Far longer than anything here takes.
    const LIMIT: Duration = Duration::from_secs(30);

    fn worker(device: &Device) -> Worker {
        let config = RdmaConfig { receive_slots: 64, ..RdmaConfig::default() };
        Worker::start(device, &config).unwrap()
    }

    fn find(
        workers: &WorkerSet,
        name: &str,
        make: impl Fn() -> Result<Worker, String>,
    ) -> Arc<Worker> {
        workers.find(name, 1, |_, _| make(), |_| None::<()>).unwrap().0
    }

    #[test]
    fn making_a_worker_blocks_no_reader_or_other_device() {
        let (runtime, workers) = (Runtime::new().unwrap(), Arc::new(WorkerSet::default()));
        let (began, begins) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel();
        let may_go_on = Mutex::new(may_go_on);
        let made = thread::scope(|scope| {
            let slow = scope.spawn(|| {
                let _inside = runtime.enter();
                find(&workers, "slow", || {
                    began.send(()).unwrap();
                    may_go_on.lock().unwrap().recv_timeout(LIMIT).unwrap();
                    Ok(worker(&ScriptedDevice::new().device()))
                })
            });
            begins.recv_timeout(LIMIT).unwrap();
            let (done, is_done) = mpsc::channel();
            let beside = Arc::clone(&workers);
            let handle = runtime.handle().clone();
            // It is not of the scope: a test that fails must end all the same.
            thread::spawn(move || {
                let _inside = handle.enter();
                let seen = beside.map(|device, _, _| device.to_owned());
                find(&beside, "other", || Ok(worker(&ScriptedDevice::new().device())));
                done.send(seen).unwrap();
            });
            let seen = is_done.recv_timeout(LIMIT / 10);
            let second = scope.spawn(|| {
                let _inside = runtime.enter();
                find(&workers, "slow", || panic!("there is one"))
            });
            go_on.send(()).unwrap();
            assert_eq!(seen.expect("neither had to wait"), [""; 0]);
            [slow.join().unwrap(), second.join().unwrap()]
        });
        assert!(Arc::ptr_eq(&made[0], &made[1]), "a device has one lane");
        let mut names = workers.map(|device, number, _| (device.to_owned(), number));
        names.sort();
        assert_eq!(names, [("other".to_owned(), 0), ("slow".to_owned(), 0)]);
    }

    #[tokio::test]
    async fn a_worker_that_cannot_be_made_is_tried_again() {
        let workers = WorkerSet::default();
        let refused = workers.find("sim", 1, |_, _| Err("no memory"), |_| None::<()>);
        assert_eq!(refused.map(drop), Err("no memory"));
        find(&workers, "sim", || Ok(worker(&ScriptedDevice::new().device())));
    }

    #[tokio::test]
    async fn a_worker_of_an_opening_that_is_lost_meanwhile_is_not_kept() {
        let workers = WorkerSet::default();
        let openings = [ScriptedDevice::new().device(), ScriptedDevice::new().device()];
        let made = Mutex::new(0);
        let found = find(&workers, openings[0].name(), || {
            let mut made = made.lock().unwrap();
            let worker = worker(&openings[*made]);
            *made += 1;
            if *made == 1 {
                workers.drop_workers_of(&openings[0]);
            }
            Ok(worker)
        });
        assert!(found.shared.attachment.device().is_same(&openings[1]));
        assert_eq!(workers.map(|_, number, _| number), [0]);
    }

    /// Four places each.
    fn whole(counts: &[usize]) -> Vec<Load> {
        let load = |&count| Load { connections: count, has_room: count < 4, is_worn: false };
        counts.iter().map(load).collect()
    }

    fn worn(connections: usize) -> Load {
        Load { connections, has_room: true, is_worn: true }
    }

    /// No more than are spread over.
    fn fixed(spread: usize) -> Counts {
        let spread = spread.max(1);
        Counts { spread, max: spread }
    }

    #[test]
    fn workers_are_made_as_connections_come_and_then_filled_evenly() {
        let mut counts: Vec<usize> = Vec::new();
        for _ in 0..10 {
            match choose(whole(&counts), fixed(3)) {
                Choice::Existing(index) => counts[index] += 1,
                Choice::New => counts.push(1),
            }
        }
        assert_eq!(counts, [4, 3, 3]);
        counts[1] = 0;
        assert_eq!(choose(whole(&counts), fixed(3)), Choice::Existing(1));
    }

    #[test]
    fn another_worker_is_made_when_all_are_full() {
        let counts = Counts { spread: 1, max: 3 };
        assert_eq!(choose(whole(&[3]), counts), Choice::Existing(0));
        assert_eq!(choose(whole(&[4]), counts), Choice::New);
        assert_eq!(choose(whole(&[4, 1]), counts), Choice::Existing(1));
        assert_eq!(choose(whole(&[3, 4]), counts), Choice::Existing(0));
        assert_eq!(choose(whole(&[4, 4]), counts), Choice::New);
        assert_eq!(choose(whole(&[4, 4, 4]), counts), Choice::Existing(0), "which says why not");
        assert_eq!(choose(whole(&[4]), fixed(1)), Choice::Existing(0), "for want of memory");
        assert_eq!(choose(whole(&[3, 1]), counts), Choice::Existing(0), "the second is left");
    }

    #[test]
    fn a_worn_worker_is_replaced_and_only_so_often() {
        let load = |connections| whole(&[connections])[0];
        assert_eq!(choose([worn(0)], fixed(1)), Choice::New);
        assert_eq!(choose([worn(5), load(3)], fixed(1)), Choice::Existing(1));
        assert_eq!(choose([worn(5), worn(3)], fixed(1)), Choice::Existing(1));
        let two = [worn(5), load(3)];
        assert_eq!(choose(two, fixed(2)), Choice::New, "as if the worn one were not there");
        let four = [worn(5), load(3), worn(1), worn(2)];
        assert_eq!(choose(four, fixed(2)), Choice::Existing(1));
    }

    #[test]
    fn a_worker_without_connections_is_used_before_another_is_made() {
        assert_eq!(choose(whole(&[1, 0]), fixed(8)), Choice::Existing(1));
        assert_eq!(choose([], fixed(0)), Choice::New, "there has to be one");
        assert_eq!(choose(whole(&[3]), fixed(0)), Choice::Existing(0));
    }
}
