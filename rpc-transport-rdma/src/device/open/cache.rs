//! A cache of the devices in use and of their ports, shared with the devices' tasks.
//!
//! # Addresses without a port
//!
//! Looking for a port opens every device, which costs system calls and firmware commands; whose
//! connections come in by an address without one would make each handshake cost that. Devices that
//! are not in use send no event when an address or a port comes, so what was not found is looked
//! for again after [`KEPT_FOR`]. Time is an argument.
//!
//! # Ports that can serve
//!
//! A server names its ports when it begins to listen. Later changes are found by searches for a
//! port, and by the events of a device in use. Each is logged once, by the first that finds it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rpc_core::Deadline;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::AsyncEventKind;
use crate::device::{DeviceError, FoundPort, UsablePorts};
use crate::verbs::{Device, Gid, Port, PortAttributes};
use crate::worker::WorkerShared;

/// Told of a device that is lost, to let go of what keeps it open.
pub(crate) type OnLost = Box<dyn Fn(&Device) + Send + Sync>;

/// The state that the devices' tasks share with searches for a port.
pub(super) struct SharedCache {
    pub(super) cache: Mutex<Cache>,
    pub(super) on_lost: OnLost,
    /// The ports that may be used.
    pub(super) usable: UsablePorts,
}

#[derive(Default)]
pub(super) struct Cache {
    pub(super) opened: HashMap<String, Opened>,
    /// Ports of opened devices by what they were found for.
    found: HashMap<Wanted, FoundFor>,
    /// Addresses that were looked for in vain, a short time ago.
    pub(super) missed: Misses,
    /// Grows whenever `found` is emptied, so that what was looked up before is not kept after.
    pub(super) generation: u64,
    /// By name, because a device that comes back is the same to people.
    pub(super) counts: BTreeMap<String, EventCounts>,
    pub(super) told_ports: ToldPorts,
}

/// A device in use, which its task has an eye on.
pub(super) struct Opened {
    pub(super) device: Device,
    pub(super) workers: Vec<Weak<WorkerShared>>,
}

/// The key of a search for a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    /// The connection's local address.
    pub(super) address: IpAddr,
    /// The network interface that packets to the peer leave by, if it is known. A host has few.
    pub(super) interface: Option<u32>,
}

/// A port without its device, which it must not keep open.
struct FoundFor {
    device: String,
    number: u8,
    gid_index: u8,
    gid: Gid,
    attributes: PortAttributes,
}

impl Cache {
    pub(super) fn is_watched(&self, device: &Device) -> bool {
        self.opened.get(device.name()).is_some_and(|opened| opened.device.is_same(device))
    }

    /// Returns the cached result for an address: its port, or the reason why there is none.
    pub(super) fn known(&self, wanted: Wanted) -> Option<Result<Port, Arc<DeviceError>>> {
        if let Some(error) = self.missed.get(wanted.address, Instant::now()) {
            return Some(Err(error));
        }
        let found = self.found.get(&wanted)?;
        let device = self.opened.get(&found.device)?.device.clone();
        let FoundFor { number, gid_index, gid, attributes, .. } = *found;
        Some(Ok(Port { device, number, gid_index, gid, attributes }))
    }

    pub(super) fn keep(&mut self, wanted: Wanted, port: &Port) {
        let found = FoundFor {
            device: port.device.name().to_owned(),
            number: port.number,
            gid_index: port.gid_index,
            gid: port.gid,
            attributes: port.attributes,
        };
        self.found.insert(wanted, found);
    }

    pub(super) fn forget(&mut self) {
        self.found.clear();
        self.missed.clear();
        self.generation += 1;
    }
}

impl Opened {
    /// The workers that have not ended. One that was told to stop counts as ended although its task
    /// may not have run since: waiting for its end could take for ever.
    pub(super) fn live(&self) -> impl Iterator<Item = Arc<WorkerShared>> {
        let workers = self.workers.iter().filter_map(Weak::upgrade);
        workers.filter(|worker| !worker.is_dead() && !worker.stop.is_cancelled())
    }
}

impl SharedCache {
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock()
    }

    pub(super) fn count(&self, device: &Device, kind: AsyncEventKind) {
        self.cache().counts.entry(device.name().to_owned()).or_default().count(kind);
    }

    pub(super) fn forget(&self) {
        self.cache().forget();
    }

    /// The workers of an opening that have not ended.
    pub(super) fn workers(&self, device: &Device) -> Vec<Arc<WorkerShared>> {
        let cache = self.cache();
        let opened = cache.opened.get(device.name());
        let opened = opened.filter(|opened| opened.device.is_same(device));
        opened.map(|opened| opened.live().collect()).unwrap_or_default()
    }

    /// Returns a token that ends with one of the workers of an opening. Without any, the opening is
    /// no longer in use, and no search finds it here.
    pub(super) fn next_stop(&self, device: &Device) -> Option<CancellationToken> {
        let mut cache = self.cache();
        if !cache.is_watched(device) {
            return None;
        }
        let opened = cache.opened.get_mut(device.name())?;
        let live: Vec<_> = opened.live().collect();
        opened.workers = live.iter().map(Arc::downgrade).collect();
        if let Some(worker) = live.first() {
            return Some(worker.stop.clone());
        }
        let removed = cache.opened.remove(device.name());
        cache.forget();
        drop(cache);
        // A worker that has ended by itself keeps the device open as well.
        (self.on_lost)(device);
        drop(removed);
        None
    }

    /// Lets go of an opening and gives the workers that it still had.
    pub(super) fn remove(&self, device: &Device) -> Vec<Arc<WorkerShared>> {
        let workers = self.workers(device);
        let removed = {
            let mut cache = self.cache();
            cache.forget();
            if cache.is_watched(device) { cache.opened.remove(device.name()) } else { None }
        };
        drop(removed);
        (self.on_lost)(device);
        workers
    }
}

impl SharedCache {
    /// Logs what changes by the ports of `device`, or by those of all devices, as they are now.
    pub(super) fn tell_ports(&self, device: Option<&str>, found: &[FoundPort]) {
        let usable = found.iter().filter(|port| self.usable.includes(port));
        let usable = usable.map(|port| (port.device.clone(), port.describe())).collect();
        // Not logged under the lock: a subscriber may take its time.
        let [appeared, vanished] = self.cache().told_ports.update(device, usable);
        for port in appeared {
            rpc_core::limited_log!(
                target: "farcall::rdma", process_wide, INFO, "an RDMA port has become usable", %port
            );
        }
        for port in vanished {
            rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide, INFO, "an RDMA port is no longer usable", %port
            );
        }
    }
}

/// Time for which a search that found nothing stands for others. One search a second costs a few
/// percent of a processor at worst (10 to 50 ms a device), and a person who brings a port up waits
/// no longer than that.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(1);

/// Addresses kept at most, so that it is bounded whatever asks; a host has fewer.
const COUNT_MAX: usize = 1024;

/// Searches that found nothing, by the local address that they looked for.
#[derive(Debug, Default)]
pub(super) struct Misses(HashMap<IpAddr, Miss>);

#[derive(Debug)]
struct Miss {
    until: Instant,
    error: Arc<DeviceError>,
}

impl Misses {
    /// Why nothing was found for an address, if it was looked for a short time ago.
    pub(super) fn get(&self, address: IpAddr, now: Instant) -> Option<Arc<DeviceError>> {
        let miss = self.0.get(&address).filter(|miss| now < miss.until)?;
        Some(Arc::clone(&miss.error))
    }

    /// Keeps why nothing was found for an address.
    pub(super) fn keep(&mut self, address: IpAddr, error: Arc<DeviceError>, now: Instant) {
        self.0.retain(|_, miss| now < miss.until);
        if self.0.len() < COUNT_MAX {
            let until = Deadline::after(now, KEPT_FOR).0;
            self.0.insert(address, Miss { until, error });
        }
    }

    /// Forgets everything, because a device has said that something changed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A device, and the description of one of its ports.
type Known = BTreeSet<(String, String)>;

/// The ports that can serve. Absent before the first search.
#[derive(Debug, Default)]
pub(super) struct ToldPorts(Option<Known>);

impl ToldPorts {
    /// Takes the ports that can serve now, those of `device` or all, and returns what appears and
    /// what vanishes with that.
    pub(super) fn update(&mut self, device: Option<&str>, usable: Known) -> [Vec<String>; 2] {
        let Some(before) = self.0.take() else {
            // The ports of one device are not all.
            self.0 = device.is_none().then_some(usable);
            return [const { Vec::new() }; 2];
        };
        let others = before.iter().filter(|(of, _)| device.is_some_and(|device| device != of));
        let now: Known = others.cloned().chain(usable).collect();
        let names = |(_, port): &(String, String)| port.clone();
        let appeared = now.difference(&before).map(names).collect();
        let vanished = before.difference(&now).map(names).collect();
        self.0 = Some(now);
        [appeared, vanished]
    }
}

/// Counts by kind, in the order in which the kinds first came. There are few.
#[derive(Debug, Clone, Default)]
pub(super) struct EventCounts(pub(super) Vec<(AsyncEventKind, u64)>);

impl EventCounts {
    pub(super) fn count(&mut self, kind: AsyncEventKind) {
        match self.0.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, count)) => *count += 1,
            None => self.0.push((kind, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::DeviceStatus;

    use super::*;

    #[test]
    fn what_was_not_found_is_kept_for_its_time_and_bounded() {
        let (mut misses, now) = (Misses::default(), Instant::now());
        let address = |index: u32| IpAddr::from(index.to_be_bytes());
        for index in 0..2 * u32::try_from(COUNT_MAX).unwrap() {
            misses.keep(address(index), Arc::new(DeviceError::NoDevice), now);
        }
        assert_eq!(misses.0.len(), COUNT_MAX);
        assert!(misses.get(address(0), now + KEPT_FOR / 2).is_some());
        assert!(misses.get(address(0), now + KEPT_FOR).is_none());
        misses.keep(address(7), Arc::new(DeviceError::NoDevice), now + KEPT_FOR);
        assert_eq!(misses.0.len(), 1, "what is too old makes way");
        misses.clear();
        assert!(misses.get(address(7), now + KEPT_FOR).is_none());
    }

    #[test]
    fn each_change_is_reported_once() {
        let known = |ports: &[&str]| -> Known {
            ports.iter().map(|&port| (port[..1].to_owned(), port.to_owned())).collect()
        };
        let mut ports = ToldPorts::default();
        let none: [Vec<String>; 2] = Default::default();
        assert_eq!(ports.update(Some("a"), known(&["a:1"])), none);
        assert_eq!(ports.update(None, known(&["a:1", "b:1"])), none);
        assert_eq!(ports.update(None, known(&["a:1", "b:1"])), none);
        let vanished = [vec![], vec!["a:1".to_owned()]];
        assert_eq!(ports.update(Some("a"), known(&[])), vanished);
        assert_eq!(ports.update(None, known(&["b:1"])), none);
        let appeared = [vec!["a:2".to_owned()], vec![]];
        assert_eq!(ports.update(Some("a"), known(&["a:2"])), appeared);
    }

    #[test]
    fn events_are_counted_by_kind() {
        let mut counts = EventCounts::default();
        for kind in
            [AsyncEventKind::PortError, AsyncEventKind::Other(99), AsyncEventKind::PortError]
        {
            counts.count(kind);
        }
        let status = DeviceStatus {
            device: "sim".to_owned(),
            is_open: true,
            lane_count: 1,
            pending_commands: 0,
            slowest_command: Duration::ZERO,
            locked_bytes: 0,
            events: counts.0,
        };
        assert_eq!(status.event_count(AsyncEventKind::PortError), 2);
        assert_eq!(status.event_count(AsyncEventKind::Other(99)), 1);
        assert_eq!(status.event_count(AsyncEventKind::PortActive), 0);
    }
}
