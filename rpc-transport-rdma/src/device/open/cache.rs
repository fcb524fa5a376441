//! Which devices are open, what is known of their ports, and who is told when one is lost.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::counts::EventCounts;
use super::misses::Misses;
use super::watch::Watch;
use crate::device::{DeviceError, FoundPort, PortName, Search, find_port_by, usable_ports};
use crate::verbs::{Device, Gid, Port, PortAttributes, Provider, VerbsError};
use crate::worker::LaneShared;
use crate::{AsyncEventKind, DeviceStatus, PortChoice, RdmaConfig};

/// Told of a device that is lost, to let go of what keeps it open.
pub(crate) type OnLost = Box<dyn Fn(&Device) + Send + Sync>;

/// The devices of one provider, as far as they are in use.
pub(crate) struct Devices {
    provider: Box<dyn Provider>,
    /// The devices and ports that may be used; all if there are none.
    names: Vec<String>,
    choice: PortChoice,
    /// Held while devices are opened to look for a port, so that handshakes that come together look
    /// once. Whoever holds it is on a thread that may wait.
    searching: Mutex<()>,
    pub(super) shared: Arc<Shared>,
}

/// What the devices' tasks share with whoever looks for a port.
pub(super) struct Shared {
    cache: Mutex<Cache>,
    on_lost: OnLost,
}

#[derive(Default)]
struct Cache {
    opened: HashMap<String, Opened>,
    /// Ports of opened devices by the local address that they were found for.
    found: HashMap<IpAddr, FoundFor>,
    /// Addresses that were looked for in vain, a short time ago.
    missed: Misses,
    /// Grows whenever `found` is emptied, so that what was looked up before is not kept after.
    generation: u64,
    /// By name, because a device that comes back is the same to people.
    counts: BTreeMap<String, EventCounts>,
}

/// A device in use, which its task has an eye on.
struct Opened {
    device: Device,
    lanes: Vec<Weak<LaneShared>>,
}

/// A port without its device, which it must not keep open.
struct FoundFor {
    device: String,
    number: u8,
    gid_index: u8,
    gid: Gid,
    attributes: PortAttributes,
}

impl Devices {
    /// The devices of `provider`, of which none is opened yet.
    pub(crate) fn new(provider: Box<dyn Provider>, config: &RdmaConfig, on_lost: OnLost) -> Self {
        let shared = Arc::new(Shared { cache: Mutex::default(), on_lost });
        let (names, choice) = (config.devices.clone(), config.port_choice);
        Self { provider, names, choice, searching: Mutex::default(), shared }
    }

    /// Finds the port for a connection's local address. Devices in use are not opened once more,
    /// and those that are opened only to look are closed again.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] says what was looked for and what was found. It stands for searches of the
    /// next second, unless a device in use says that something changed.
    pub(crate) fn find(&self, address: IpAddr) -> Result<Port, Arc<DeviceError>> {
        if let Some(known) = self.shared.cache().known(address) {
            return known;
        }
        // A search that panicked has left nothing behind.
        let _searching = self.searching.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = {
            let cache = self.shared.cache();
            // Another search may have ended while this one waited for it.
            if let Some(known) = cache.known(address) {
                return known;
            }
            cache.generation
        };
        let found = self.search(address).map_err(Arc::new);
        let mut cache = self.shared.cache();
        if cache.generation == generation {
            match &found {
                Ok(port) if cache.is_watched(&port.device) => cache.keep(address, port),
                Ok(_) => {}
                Err(error) => cache.missed.keep(address, Arc::clone(error), Instant::now()),
            }
        }
        found
    }

    /// The ports that can serve some address, with their devices. Those that are opened only to
    /// look are closed when they are dropped.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] says what was found.
    pub(crate) fn usable(&self) -> Result<Vec<(Device, FoundPort)>, DeviceError> {
        // Beside searches for a port, two would open each device twice.
        let _searching = self.searching.lock().unwrap_or_else(PoisonError::into_inner);
        usable_ports(&*self.provider, &self.port_names()?, |name| self.open(name))
    }

    fn port_names(&self) -> Result<Vec<PortName>, DeviceError> {
        self.names.iter().map(|name| name.parse()).collect()
    }

    fn search(&self, address: IpAddr) -> Result<Port, DeviceError> {
        let names = self.port_names()?;
        let search = Search { address, names, choice: self.choice };
        find_port_by(&*self.provider, &search, |name| self.open(name))
    }

    fn open(&self, name: &str) -> Result<Device, VerbsError> {
        let opened = self.shared.cache().opened.get(name).map(|opened| opened.device.clone());
        opened.map_or_else(|| Device::open(&*self.provider, name), Ok)
    }

    /// Takes note of a new lane, which the port's device is kept open for. With the first one comes
    /// the device's task, which is to run in the lane's runtime. The caller spawns it, and holds no
    /// lock then: a runtime that is going away drops it at once, and dropped it lets go of all that
    /// this takes note of.
    pub(crate) fn attach(&self, port: &Port, lane: &Arc<LaneShared>) -> Option<Watch> {
        let device = &port.device;
        let mut cache = self.shared.cache();
        let lane = Arc::downgrade(lane);
        if cache.is_watched(device)
            && let Some(opened) = cache.opened.get_mut(device.name())
        {
            opened.lanes.push(lane);
            return None;
        }
        // What was found before was found of another opening, of whose events nobody is sure.
        cache.forget();
        let opened = Opened { device: device.clone(), lanes: vec![lane] };
        cache.opened.insert(device.name().to_owned(), opened);
        drop(cache);
        Some(Watch::new(device.clone(), Arc::clone(&self.shared)))
    }

    /// What is known of every device that is or was in use.
    pub(crate) fn status(&self) -> Vec<DeviceStatus> {
        let cache = self.shared.cache();
        let mut names: Vec<_> = cache.counts.keys().chain(cache.opened.keys()).collect();
        names.sort();
        names.dedup();
        let status = names.into_iter().map(|name| DeviceStatus {
            device: name.clone(),
            is_open: cache.opened.contains_key(name),
            lane_count: cache.opened.get(name).map_or(0, |opened| opened.live().count()),
            events: cache.counts.get(name).cloned().unwrap_or_default().0,
        });
        status.collect()
    }
}

impl Cache {
    fn is_watched(&self, device: &Device) -> bool {
        self.opened.get(device.name()).is_some_and(|opened| opened.device.is_same(device))
    }

    /// What is known of an address: its port, or why there is none.
    fn known(&self, address: IpAddr) -> Option<Result<Port, Arc<DeviceError>>> {
        if let Some(error) = self.missed.get(address, Instant::now()) {
            return Some(Err(error));
        }
        let found = self.found.get(&address)?;
        let device = self.opened.get(&found.device)?.device.clone();
        let FoundFor { number, gid_index, gid, attributes, .. } = *found;
        Some(Ok(Port { device, number, gid_index, gid, attributes }))
    }

    fn keep(&mut self, address: IpAddr, port: &Port) {
        let found = FoundFor {
            device: port.device.name().to_owned(),
            number: port.number,
            gid_index: port.gid_index,
            gid: port.gid,
            attributes: port.attributes,
        };
        self.found.insert(address, found);
    }

    fn forget(&mut self) {
        self.found.clear();
        self.missed.clear();
        self.generation += 1;
    }
}

impl Opened {
    /// The lanes that have not ended. One that was told to stop counts as ended although its task
    /// may not have run since: whoever waited for its end would find it still there, and no time
    /// for it to go.
    fn live(&self) -> impl Iterator<Item = Arc<LaneShared>> {
        let lanes = self.lanes.iter().filter_map(Weak::upgrade);
        lanes.filter(|lane| !lane.is_dead() && !lane.stop.is_cancelled())
    }
}

impl Shared {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        // The cache is whole between any two statements.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, device: &Device, kind: AsyncEventKind) {
        self.cache().counts.entry(device.name().to_owned()).or_default().count(kind);
    }

    pub(super) fn forget(&self) {
        self.cache().forget();
    }

    /// The lanes of an opening that have not ended.
    pub(super) fn lanes(&self, device: &Device) -> Vec<Arc<LaneShared>> {
        let cache = self.cache();
        let opened = cache.opened.get(device.name());
        let opened = opened.filter(|opened| opened.device.is_same(device));
        opened.map(|opened| opened.live().collect()).unwrap_or_default()
    }

    /// What ends with one of the lanes of an opening. Without any, the opening is not in use any
    /// more and nobody will find it here again.
    pub(super) fn next_stop(&self, device: &Device) -> Option<CancellationToken> {
        let mut cache = self.cache();
        if !cache.is_watched(device) {
            return None;
        }
        let opened = cache.opened.get_mut(device.name())?;
        let live: Vec<_> = opened.live().collect();
        opened.lanes = live.iter().map(Arc::downgrade).collect();
        if let Some(lane) = live.first() {
            return Some(lane.stop.clone());
        }
        let removed = cache.opened.remove(device.name());
        cache.forget();
        drop(cache);
        // A lane that has ended by itself keeps the device open as well.
        (self.on_lost)(device);
        drop(removed);
        None
    }

    /// Lets go of an opening and gives the lanes that it still had.
    pub(super) fn remove(&self, device: &Device) -> Vec<Arc<LaneShared>> {
        let lanes = self.lanes(device);
        let removed = {
            let mut cache = self.cache();
            cache.forget();
            if cache.is_watched(device) { cache.opened.remove(device.name()) } else { None }
        };
        drop(removed);
        (self.on_lost)(device);
        lanes
    }
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices")
            .field("provider", &self.provider)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
