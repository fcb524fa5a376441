//! The devices of a provider: which port serves an address, and which of them stay open.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::cache::{OnLost, Opened, SharedCache, Wanted};
use super::searching::{Searches, WAIT_MAX};
use super::watch::Watch;
use crate::device::{
    DeviceError, DeviceSurvey, FoundPort, PortName, Search, SurveyError, UsablePorts, find_port_by,
    usable_ports,
};
use crate::verbs::{Device, DeviceInfo, Port, Provider, VerbsError};
use crate::worker::WorkerShared;
use crate::{DeviceStatus, PortChoice, RdmaConfig};

/// The devices of one provider, as far as they are in use.
pub(crate) struct Devices {
    provider: Box<dyn Provider>,
    /// The devices and ports that may be used; all if there are none.
    names: Vec<String>,
    choice: PortChoice,
    gid_index: Option<u8>,
    /// Those that open devices, on threads that may block.
    searches: Searches,
    pub(super) shared: Arc<SharedCache>,
}

impl Devices {
    /// The devices of `provider`, of which none is opened yet.
    pub(crate) fn new(provider: Box<dyn Provider>, config: &RdmaConfig, on_lost: OnLost) -> Self {
        // A name that is none fails every search.
        let names = config.devices.iter().filter_map(|name| name.parse().ok()).collect();
        let usable = UsablePorts { names, gid_index: config.gid_index };
        let shared = Arc::new(SharedCache { cache: Mutex::default(), on_lost, usable });
        let (names, choice) = (config.devices.clone(), config.port_choice);
        let (gid_index, searches) = (config.gid_index, Searches::default());
        Self { provider, names, choice, gid_index, searches, shared }
    }

    /// Finds the port for a connection's local address. Where the peer's is known, an address that
    /// several interfaces have is used by way of the one that leads there. Devices in use are not
    /// opened once more, and those that are opened only to look are closed again.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] says what was looked for and what was found. It stands for searches of the
    /// next second, unless a device in use says that something changed.
    pub(crate) fn find(
        &self,
        address: IpAddr,
        peer: Option<IpAddr>,
    ) -> Result<Port, Arc<DeviceError>> {
        let interface = peer.and_then(|peer| self.provider.interface_to(address, peer));
        let wanted = Wanted { address, interface };
        if let Some(known) = self.shared.cache().known(wanted) {
            return known;
        }
        let _searching = self.searches.begin(WAIT_MAX).map_err(Arc::new)?;
        let generation = {
            let cache = self.shared.cache();
            // Another search may have ended while this one waited for it.
            if let Some(known) = cache.known(wanted) {
                return known;
            }
            cache.generation
        };
        let found = self.search(wanted).map_err(Arc::new);
        let mut cache = self.shared.cache();
        if cache.generation == generation {
            match &found {
                Ok(port) if cache.is_watched(&port.device) => cache.keep(wanted, port),
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
        let _searching = self.searches.begin(WAIT_MAX)?;
        let which = UsablePorts { names: self.port_names()?, gid_index: self.gid_index };
        let usable = usable_ports(&*self.provider, &which, |name| self.open(name));
        match &usable {
            Ok(usable) => {
                let found: Vec<_> = usable.iter().map(|(_, port)| port.clone()).collect();
                self.shared.tell_ports(None, &found);
            }
            Err(DeviceError::NoDevice | DeviceError::NoActivePort { .. }) => {
                self.shared.tell_ports(None, &[]);
            }
            Err(_) => {}
        }
        usable
    }

    /// All devices of the host, those that the settings exclude included.
    ///
    /// # Errors
    ///
    /// [`SurveyError`] if the devices cannot be listed.
    pub(crate) fn survey(&self) -> Result<Vec<DeviceSurvey>, SurveyError> {
        // It describes each device by itself, those that do not answer included.
        let _searching = self.searches.begin(WAIT_MAX).ok();
        let look = |DeviceInfo { name }| {
            let opened = self.open(&name);
            DeviceSurvey::new(name, opened)
        };
        Ok(self.provider.devices()?.into_iter().map(look).collect())
    }

    fn port_names(&self) -> Result<Vec<PortName>, DeviceError> {
        self.names.iter().map(|name| name.parse()).collect()
    }

    fn search(&self, wanted: Wanted) -> Result<Port, DeviceError> {
        let Wanted { address, interface } = wanted;
        let (names, choice, gid_index) = (self.port_names()?, self.choice, self.gid_index);
        let search = Search { address, names, choice, gid_index, interface };
        let look = |found: &[FoundPort]| self.shared.tell_ports(None, found);
        find_port_by(&*self.provider, &search, |name| self.open(name), look)
    }

    fn open(&self, name: &str) -> Result<Device, VerbsError> {
        let opened = self.shared.cache().opened.get(name).map(|opened| opened.device.clone());
        opened.map_or_else(|| Device::open(&*self.provider, name), Ok)
    }

    /// Records a new worker, which its device is kept open for. With the first one comes the
    /// device's task, which is to run in the worker's runtime. The caller spawns it, and holds no
    /// lock then: a runtime that is going away drops it at once, and dropped it lets go of
    /// everything that is recorded here.
    pub(crate) fn attach(&self, worker: &Arc<WorkerShared>) -> Option<Watch> {
        let device = worker.attachment.device();
        let mut cache = self.shared.cache();
        if cache.is_watched(device)
            && let Some(opened) = cache.opened.get_mut(device.name())
        {
            opened.workers.push(Arc::downgrade(worker));
            return None;
        }
        // What was found before was found of another opening, whose events may have been missed.
        cache.forget();
        let opened = Opened { device: device.clone(), workers: vec![Arc::downgrade(worker)] };
        cache.opened.insert(device.name().to_owned(), opened);
        drop(cache);
        Some(Watch::new(device.clone(), Arc::clone(&self.shared)))
    }

    /// Returns the state of every device that is or was in use.
    pub(crate) fn status(&self) -> Vec<DeviceStatus> {
        let cache = self.shared.cache();
        let mut names: Vec<_> = cache.counts.keys().chain(cache.opened.keys()).collect();
        names.sort();
        names.dedup();
        let known = names.into_iter().map(|name| {
            let opened = cache.opened.get(name);
            let status = DeviceStatus {
                device: name.clone(),
                is_open: opened.is_some(),
                lane_count: opened.map_or(0, |opened| opened.live().count()),
                pending_commands: 0,
                slowest_command: Duration::ZERO,
                locked_bytes: 0,
                events: cache.counts.get(name).cloned().unwrap_or_default().0,
            };
            (status, opened.map(|opened| opened.device.clone()))
        });
        let known: Vec<_> = known.collect();
        drop(cache);
        // Without the cache, which tasks of a runtime wait for: the system is asked.
        let ask = |(status, device): (DeviceStatus, Option<Device>)| match device {
            None => status,
            Some(device) => DeviceStatus {
                pending_commands: device.commands().pending(),
                slowest_command: device.commands().slowest(),
                locked_bytes: device.lockable_memory().locked,
                ..status
            },
        };
        known.into_iter().map(ask).collect()
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
