//! The handle to open RDMA devices.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rpc_core::connect::Upgrade;
use rpc_core::settings::expect_valid;
use rpc_transport_rdma::{
    DeviceStatus, DeviceSurvey, LaneInfo, RdmaConfig, RdmaUpgrade, SurveyError,
};

use super::refusal::{NOT_BUILT_IN, Refusal};

/// A handle to RDMA devices: those that are open, their memory and their counters. Clones are the
/// same handle.
///
/// Channels and servers take it from [`ChannelBuilder::rdma`](crate::ChannelBuilder::rdma) and
/// [`ServerBuilder::rdma`](crate::ServerBuilder::rdma). All that are given none share the
/// process-wide handle, [`Rdma::default`]. Each handle of [`Rdma::new`] opens a device once more,
/// with lanes (a task and a completion queue each) and pinned memory of its own, 5.8 MiB at least.
/// Under a memlock limit of 8 MiB, Debian's default, there is memory for one.
///
/// A lane's task runs in the tokio runtime of the connection that came first. A program with
/// several runtimes that end at different times gives the channels and servers of each a handle of
/// its own: the connections on a lane end with its runtime.
///
/// Nothing is opened before a connection asks for RDMA. A device stays open for the connections to
/// come, until the handle and all that was made with it are gone, or the device is. Its counters
/// ([`devices`](Self::devices)) stay as long as the handle.
///
/// The handle exists on Linux, with the feature `rdma` or `sim`. In other builds `auto://` stays on
/// TCP and `rdma://` fails, both with the reason.
///
/// # Examples
///
/// ```
/// # fn example() -> Result<(), farcall::AddressError> {
/// use farcall::{Channel, Rdma, RdmaConfig, Server};
///
/// let rdma = Rdma::new(RdmaConfig::default().with_devices(vec!["mlx5_0".to_owned()]));
/// let inventory = Channel::builder("auto://inventory:7000")?.rdma(&rdma).connect_lazy();
/// let orders = Server::builder().rdma(&rdma);
/// // Later, from anywhere:
/// for lane in rdma.lanes() {
///     println!("{}: {} connections", lane.device, lane.connection_count);
/// }
/// # drop((inventory, orders));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Rdma {
    shared: Arc<Shared>,
}

struct Shared {
    config: RdmaConfig,
    /// `None` for this machine's devices in a build that has simulated ones alone.
    devices: Option<Arc<RdmaUpgrade>>,
}

impl Default for Rdma {
    /// The process-wide handle: this machine's devices under [`RdmaConfig::default`]. Its devices
    /// close with the last channel, server and handle that uses them; the next use opens them
    /// again.
    fn default() -> Self {
        let config = RdmaConfig::default();
        let devices = PROCESS_WIDE.get_or_open(|| host_devices(&config));
        Self { shared: Arc::new(Shared { config, devices }) }
    }
}

/// The devices of the process-wide handle.
static PROCESS_WIDE: WeakDevices = WeakDevices::new();

/// Devices that live as long as something uses them.
struct WeakDevices(Mutex<Weak<RdmaUpgrade>>);

impl WeakDevices {
    const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// Returns the devices in use, or those that `open` makes.
    fn get_or_open(
        &self,
        open: impl FnOnce() -> Option<Arc<RdmaUpgrade>>,
    ) -> Option<Arc<RdmaUpgrade>> {
        // Held while it opens them: two callers would otherwise have devices of their own.
        let mut used = self.0.lock();
        if let Some(devices) = used.upgrade() {
            return Some(devices);
        }
        let devices = open()?;
        *used = Arc::downgrade(&devices);
        Some(devices)
    }
}

impl Rdma {
    /// A handle of its own to this machine's devices. It opens none before a connection asks for
    /// RDMA.
    ///
    /// # Panics
    ///
    /// Panics if a value is out of its range: see [`RdmaConfig::check`].
    #[must_use]
    #[track_caller]
    pub fn new(config: RdmaConfig) -> Self {
        expect_valid(config.check());
        Self { shared: Arc::new(Shared { devices: host_devices(&config), config }) }
    }

    /// A handle to the devices of a simulated network, for tests without hardware.
    ///
    /// # Panics
    ///
    /// Panics if a value is out of its range: see [`RdmaConfig::check`].
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::sim::SimNetwork;
    /// use farcall::{Rdma, RdmaConfig};
    ///
    /// let network = SimNetwork::new(1);
    /// network.add_device("sim0", &["127.0.0.1".parse()?]);
    /// let rdma = Rdma::simulated(&network, RdmaConfig::default());
    /// # drop(rdma);
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    #[cfg(feature = "sim")]
    #[must_use]
    #[track_caller]
    pub fn simulated(network: &crate::sim::SimNetwork, config: RdmaConfig) -> Self {
        expect_valid(config.check());
        let provider = Box::new(network.provider());
        let devices = Some(Arc::new(RdmaUpgrade::with_provider(provider, config.clone())));
        Self { shared: Arc::new(Shared { config, devices }) }
    }

    /// Returns true if this build can use the RDMA devices of a machine: it has the feature `rdma`.
    #[must_use]
    pub const fn is_built_in() -> bool {
        cfg!(feature = "rdma")
    }

    /// Returns the settings of RDMA.
    #[must_use]
    pub fn config(&self) -> &RdmaConfig {
        &self.shared.config
    }

    /// Returns the status of each device that this handle has opened, open or closed since, with
    /// counts of its events.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceStatus> {
        self.shared.devices.as_ref().map_or_else(Vec::new, |devices| devices.devices())
    }

    /// Returns the connections, the memory and the counters of each lane of the open devices.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneInfo> {
        self.shared.devices.as_ref().map_or_else(Vec::new, |devices| devices.lanes())
    }

    /// Surveys all RDMA devices of this host: their limits and ports, and the faults of those that
    /// cannot be used. It opens each device for a moment, and may block.
    ///
    /// # Errors
    ///
    /// Returns an error if the devices cannot be listed, for example because libibverbs is not
    /// installed.
    pub fn survey(&self) -> Result<Vec<DeviceSurvey>, SurveyError> {
        self.opened()?.survey()
    }

    /// Describes the port that serves connections at a local address, `mlx5_0:1 (10.0.0.1)`. It may
    /// block.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is no such port.
    pub fn port_at(&self, address: IpAddr) -> Result<String, SurveyError> {
        Ok(self.opened()?.check(Some(address))?)
    }

    fn opened(&self) -> Result<&RdmaUpgrade, SurveyError> {
        self.shared.devices.as_deref().ok_or_else(|| SurveyError::new(NOT_BUILT_IN))
    }

    /// Returns true if both are handles to the same devices.
    #[cfg(feature = "metrics")]
    pub(crate) fn has_same_devices(&self, other: &Self) -> bool {
        match (&self.shared.devices, &other.shared.devices) {
            (Some(devices), Some(others)) => Arc::ptr_eq(devices, others),
            (None, None) => true,
            _ => false,
        }
    }

    /// The process-wide handle if it has these settings, and one of its own otherwise.
    #[cfg(feature = "settings")]
    pub(crate) fn with_config(config: RdmaConfig) -> Self {
        if config == RdmaConfig::default() { Self::default() } else { Self::new(config) }
    }

    /// The path that connections are offered.
    pub(crate) fn upgrade(&self) -> Arc<dyn Upgrade> {
        match &self.shared.devices {
            Some(devices) => Arc::<RdmaUpgrade>::clone(devices),
            None => Arc::new(Refusal::not_built_in()),
        }
    }
}

#[cfg(feature = "rdma")]
fn host_devices(config: &RdmaConfig) -> Option<Arc<RdmaUpgrade>> {
    Some(Arc::new(RdmaUpgrade::new(config.clone())))
}

#[cfg(not(feature = "rdma"))]
fn host_devices(_: &RdmaConfig) -> Option<Arc<RdmaUpgrade>> {
    None
}

impl fmt::Debug for Rdma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rdma")
            .field("config", self.config())
            .field("devices", &self.devices())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "rdma.lanes is 0: at least 1, since every connection needs a lane")]
    fn rdma_without_lanes_panics_where_it_is_set() {
        let _ = Rdma::new(RdmaConfig::default().with_lanes(Some(0)));
    }

    #[test]
    fn a_handle_that_is_not_used_has_opened_nothing() {
        let rdma = Rdma::new(RdmaConfig::default().with_lanes(Some(3)));
        assert_eq!((rdma.devices(), rdma.lanes(), rdma.config().lanes), (vec![], vec![], Some(3)));
    }

    #[cfg(feature = "sim")]
    #[test]
    fn survey_lists_devices_and_the_port_of_an_address() {
        let network = crate::sim::SimNetwork::new(1);
        network.add_device("sim0", &["10.0.0.1".parse().unwrap()]);
        let rdma = Rdma::simulated(&network, RdmaConfig::default());
        let survey = rdma.survey().unwrap();
        let device = &survey[0];
        let seen = (device.name.as_str(), device.max_reads, device.ports[0].active_mtu);
        assert_eq!(seen, ("sim0", 16, 4096));
        let port = rdma.port_at("10.0.0.1".parse().unwrap());
        assert_eq!(port.unwrap(), "sim0:1 (10.0.0.1)");
        let error = rdma.port_at("10.0.0.2".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("no active RDMA port has"), "{error}");
        assert!(!error.is_library_missing());
    }

    #[cfg(feature = "rdma")]
    #[test]
    fn servers_share_the_process_wide_devices() {
        let devices = |rdma: &Rdma| Arc::as_ptr(rdma.shared.devices.as_ref().unwrap());
        let rdma = Rdma::default();
        let servers = [(); 2].map(|()| crate::Server::builder().build());
        for server in &servers {
            assert_eq!(devices(server.rdma()), devices(&rdma));
        }
        assert_ne!(devices(&Rdma::new(RdmaConfig::default())), devices(&rdma));
    }

    #[cfg(feature = "settings")]
    #[cfg(feature = "rdma")]
    #[test]
    fn settings_share_the_process_wide_devices_unless_configured() {
        let devices = |text: &str| {
            let settings = crate::Settings::parse("farcall.toml", text).unwrap();
            (Arc::as_ptr(settings.rdma().shared.devices.as_ref().unwrap()), settings)
        };
        let rdma = Rdma::default();
        let shared = Arc::as_ptr(rdma.shared.devices.as_ref().unwrap());
        assert_eq!(devices("[rdma]\nlanes = 1").0, shared);
        assert_ne!(devices("[rdma]\nlanes = 2").0, shared);
    }

    #[cfg(feature = "sim")]
    #[tokio::test]
    async fn one_opening_serves_all_and_closes_with_the_last_user() {
        use rpc_transport_rdma::sim::lab;

        use crate::{Channel, Server};

        let network = crate::sim::SimNetwork::new(1);
        network.add_device("sim0", &["127.0.0.1".parse().unwrap()]);
        let cell = WeakDevices::new();
        let open = || {
            let (config, provider) = (RdmaConfig::default(), Box::new(network.provider()));
            Some(Arc::new(RdmaUpgrade::with_provider(provider, config)))
        };
        let handle = || {
            let (config, devices) = (RdmaConfig::default(), cell.get_or_open(open));
            Rdma { shared: Arc::new(Shared { config, devices }) }
        };
        for _ in 0..2 {
            let mut served = Vec::new();
            let mut channels = Vec::new();
            for _ in 0..2 {
                let server = Server::builder().rdma(&handle()).build();
                let listener = server.bind("rdma://127.0.0.1:0").await.unwrap();
                let address = listener.local_address().clone();
                served.push(tokio::spawn(listener.serve()));
                let channel = Channel::builder(address).unwrap().rdma(&handle());
                channels.push(channel.connect().await.unwrap());
            }
            assert_eq!(lab::census(&network).contexts, 1);
            drop(channels);
            for served in served {
                served.abort();
                let _ = served.await;
            }
            let closed = async {
                while lab::census(&network).contexts > 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(60), closed).await.unwrap();
        }
    }
}
