//! The handle to open RDMA devices.

use std::fmt;
use std::sync::Arc;

use rpc_core::connect::Upgrade;
use rpc_core::settings::expect_valid;
use rpc_transport_rdma::{DeviceStatus, LaneInfo, RdmaConfig, RdmaUpgrade};

use super::refusal::Refusal;

/// A handle to RDMA devices: those that are open, their memory and their counters. Clones are the
/// same handle.
///
/// Channels and servers take it from [`ChannelBuilder::rdma`](crate::ChannelBuilder::rdma) and
/// [`ServerBuilder::rdma`](crate::ServerBuilder::rdma). One that is given none makes its own. A
/// process with several of them should give all the same: each handle opens a device once more,
/// with lanes (a task and a completion queue each) and pinned memory of its own, 5.4 MiB at least.
/// Under a memlock limit of 8 MiB, Debian's default, there is memory for one.
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
    /// A handle to this machine's devices under [`RdmaConfig::default`].
    fn default() -> Self {
        Self::new(RdmaConfig::default())
    }
}

impl Rdma {
    /// A handle to this machine's devices. It opens none before a connection asks for RDMA.
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
    #[should_panic(expected = "rdma.lanes is 0: at least 1, since connections are on lanes")]
    fn rdma_without_lanes_panics_where_it_is_set() {
        let _ = Rdma::new(RdmaConfig::default().with_lanes(0));
    }

    #[test]
    fn a_handle_that_is_not_used_has_opened_nothing() {
        let rdma = Rdma::new(RdmaConfig::default().with_lanes(3));
        assert_eq!((rdma.devices(), rdma.lanes(), rdma.config().lanes), (vec![], vec![], 3));
    }
}
