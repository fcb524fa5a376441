//! What is known of the devices in use and of their ports, shared with the devices' tasks.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::counts::EventCounts;
use super::misses::Misses;
use super::told_ports::ToldPorts;
use crate::AsyncEventKind;
use crate::device::{DeviceError, FoundPort, UsablePorts};
use crate::verbs::{Device, Gid, Port, PortAttributes};
use crate::worker::WorkerShared;

/// Told of a device that is lost, to let go of what keeps it open.
pub(crate) type OnLost = Box<dyn Fn(&Device) + Send + Sync>;

/// What the devices' tasks share with the searches for a port.
pub(super) struct SharedCache {
    pub(super) cache: Mutex<Cache>,
    pub(super) on_lost: OnLost,
    /// The ports that may be used.
    pub(super) usable: UsablePorts,
}

#[derive(Default)]
pub(super) struct Cache {
    pub(super) opened: HashMap<String, Opened>,
    /// Ports of opened devices by the local address that they were found for.
    found: HashMap<IpAddr, FoundFor>,
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

    /// What is known of an address: its port, or why there is none.
    pub(super) fn known(&self, address: IpAddr) -> Option<Result<Port, Arc<DeviceError>>> {
        if let Some(error) = self.missed.get(address, Instant::now()) {
            return Some(Err(error));
        }
        let found = self.found.get(&address)?;
        let device = self.opened.get(&found.device)?.device.clone();
        let FoundFor { number, gid_index, gid, attributes, .. } = *found;
        Some(Ok(Port { device, number, gid_index, gid, attributes }))
    }

    pub(super) fn keep(&mut self, address: IpAddr, port: &Port) {
        let found = FoundFor {
            device: port.device.name().to_owned(),
            number: port.number,
            gid_index: port.gid_index,
            gid: port.gid,
            attributes: port.attributes,
        };
        self.found.insert(address, found);
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
        // The cache is whole between any two statements.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// What ends with one of the workers of an opening. Without any, the opening is not in use any
    /// more, and no search will find it here again.
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
        let usable = usable.map(|port| (port.device.clone(), port.words())).collect();
        // Not logged under the lock: a subscriber may take its time.
        let [appeared, vanished] = self.cache().told_ports.update(device, usable);
        for port in appeared {
            rpc_core::limited_log!(
                target: "farcall::rdma", of_process, INFO, "an RDMA port has become usable", %port
            );
        }
        for port in vanished {
            rpc_core::limited_log!(
                target: "farcall::rdma", of_process, INFO, "an RDMA port is usable no more", %port
            );
        }
    }
}
