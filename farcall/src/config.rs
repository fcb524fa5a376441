//! How to connect and to serve, apart from the address.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rpc_core::connect::{ClientConfig, Upgrade, UpgradePolicy};
use rpc_core::server::ListenerSettings;
use rpc_core::{Backoff, ConnectBackoff, Keepalive, Limits, ReplayLimits};
#[cfg(feature = "sim")]
use rpc_transport_rdma::sim::SimNetwork;
#[cfg(any(feature = "rdma", feature = "sim"))]
use rpc_transport_rdma::{DeviceStatus, LaneInfo, RdmaConfig, RdmaUpgrade, RkeyScope};

use self::not_built_in::NotBuiltIn;
#[cfg(not(any(feature = "rdma", feature = "sim")))]
use self::not_built_in::NotBuiltIn as RdmaUpgrade;

/// The rules for connections, on either side. Clones share the RDMA devices that are in use.
#[derive(Debug, Clone)]
pub struct Config {
    limits: Limits,
    handshake_timeout: Duration,
    keepalive: Option<Keepalive>,
    progress_timeout: Option<Duration>,
    backoff: Backoff,
    connect_backoff: ConnectBackoff,
    replays: ReplayLimits,
    #[cfg(any(feature = "rdma", feature = "sim"))]
    rdma: RdmaConfig,
    #[cfg(feature = "sim")]
    network: Option<SimNetwork>,
    /// `None` inside where RDMA is not built in.
    upgrade: Arc<OnceLock<Option<Arc<RdmaUpgrade>>>>,
}

impl Default for Config {
    fn default() -> Self {
        let client = ClientConfig::default();
        Self {
            limits: client.limits,
            handshake_timeout: client.handshake_timeout,
            keepalive: client.keepalive,
            progress_timeout: client.progress_timeout,
            backoff: client.backoff,
            connect_backoff: client.connect_backoff,
            replays: client.replays,
            #[cfg(any(feature = "rdma", feature = "sim"))]
            rdma: RdmaConfig::default(),
            #[cfg(feature = "sim")]
            network: None,
            upgrade: Arc::default(),
        }
    }
}

impl Config {
    /// The same rules with these limits on what this side accepts.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The limits on what this side accepts.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The same rules with this bound on a handshake; 10 s by default. A dead RDMA path is found
    /// out within 3 s of it, so that `auto://` falls back to TCP in no less than that.
    #[must_use]
    pub fn with_handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// The same rules with this way to find a peer that is gone, or `None`; on by default.
    #[must_use]
    pub fn with_keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        self.keepalive = keepalive.into();
        self
    }

    /// Sets how long a peer may take nothing of what waits for it, or send nothing more of a large
    /// frame that it has begun, before its connection is ended; 60 s by default, never with `None`.
    #[must_use]
    pub fn with_progress_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.progress_timeout = timeout.into();
        self
    }

    /// The same rules with these delays before an RDMA path that has died is tried again.
    #[must_use]
    pub fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the delays before a channel connects again to a server that cannot be reached, or whose
    /// connections are of no use; gRPC's by default.
    #[must_use]
    pub fn with_connect_backoff(mut self, connect_backoff: ConnectBackoff) -> Self {
        self.connect_backoff = connect_backoff;
        self
    }

    /// The same rules with this bound on the idempotent calls that a channel makes once more after
    /// their connection ended under them.
    #[must_use]
    pub fn with_replays(mut self, replays: ReplayLimits) -> Self {
        self.replays = replays;
        self
    }

    /// The same rules with this configuration of RDMA. Devices are not shared with the original.
    #[cfg(any(feature = "rdma", feature = "sim"))]
    #[must_use]
    pub fn with_rdma(mut self, rdma: RdmaConfig) -> Self {
        self.rdma = rdma;
        self.upgrade = Arc::default();
        self
    }

    /// The same rules with this reach of the keys that RDMA peers are given to read large messages
    /// with: windows where they work, unless said otherwise. Devices are not shared with the
    /// original.
    #[cfg(any(feature = "rdma", feature = "sim"))]
    #[must_use]
    pub fn with_rkey_scope(self, rkey_scope: RkeyScope) -> Self {
        let mut rdma = self.rdma.clone();
        rdma.rkey_scope = rkey_scope;
        self.with_rdma(rdma)
    }

    /// Also uses RDMA devices whose READs may complete short without an error, as Soft-RoCE does on
    /// Linux 6.12 (see [`RdmaConfig::allow_untrusted_reads`]); they are declined otherwise. For
    /// tests, never for data that matters. Devices are not shared with the original.
    #[cfg(any(feature = "rdma", feature = "sim"))]
    #[must_use]
    pub fn with_untrusted_reads(self) -> Self {
        let mut rdma = self.rdma.clone();
        rdma.allow_untrusted_reads = true;
        self.with_rdma(rdma)
    }

    /// The same rules with the devices of a simulated network in place of this machine's. Devices
    /// are not shared with the original.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn with_simulated_rdma(mut self, network: &SimNetwork) -> Self {
        self.network = Some(network.clone());
        self.upgrade = Arc::default();
        self
    }

    /// What each RDMA device in use under these rules has of connections and memory.
    #[cfg(any(feature = "rdma", feature = "sim"))]
    #[must_use]
    pub fn rdma_lanes(&self) -> Vec<LaneInfo> {
        let upgrade = self.upgrade.get().and_then(Option::as_ref);
        upgrade.map(|upgrade| upgrade.lanes()).unwrap_or_default()
    }

    /// What is known of each RDMA device that is or was in use under these rules, with a count of
    /// what has happened to it.
    #[cfg(any(feature = "rdma", feature = "sim"))]
    #[must_use]
    pub fn rdma_devices(&self) -> Vec<DeviceStatus> {
        let upgrade = self.upgrade.get().and_then(Option::as_ref);
        upgrade.map(|upgrade| upgrade.devices()).unwrap_or_default()
    }

    /// What an endpoint brings to its server, its path apart.
    pub(crate) fn server(&self) -> ListenerSettings {
        let mut settings = ListenerSettings::default();
        settings.limits = Some(self.limits);
        settings.handshake_timeout = Some(self.handshake_timeout);
        settings.keepalive = Some(self.keepalive);
        settings.progress_timeout = Some(self.progress_timeout);
        settings
    }

    /// The way to RDMA; made once for all clones.
    pub(crate) fn rdma(&self) -> Arc<dyn Upgrade> {
        match self.upgrade.get_or_init(|| self.make_upgrade().map(Arc::new)) {
            Some(upgrade) => Arc::<RdmaUpgrade>::clone(upgrade),
            None => Arc::new(NotBuiltIn),
        }
    }

    fn make_upgrade(&self) -> Option<RdmaUpgrade> {
        #[cfg(feature = "sim")]
        if let Some(network) = &self.network {
            let provider = Box::new(network.provider());
            return Some(RdmaUpgrade::with_provider(provider, self.rdma.clone()));
        }
        self.make_hardware_upgrade()
    }

    #[cfg(feature = "rdma")]
    fn make_hardware_upgrade(&self) -> Option<RdmaUpgrade> {
        Some(RdmaUpgrade::new(self.rdma.clone()))
    }

    #[cfg(not(feature = "rdma"))]
    fn make_hardware_upgrade(&self) -> Option<RdmaUpgrade> {
        None
    }

    pub(crate) fn client(&self, policy: UpgradePolicy) -> ClientConfig {
        ClientConfig {
            limits: self.limits,
            policy,
            handshake_timeout: self.handshake_timeout,
            keepalive: self.keepalive,
            progress_timeout: self.progress_timeout,
            backoff: self.backoff,
            connect_backoff: self.connect_backoff,
            replays: self.replays,
        }
    }
}

mod not_built_in {
    //! RDMA where it is not built in: asked for, it says so.

    use rpc_core::connect::{Candidate, Declined, PendingOffer, Upgrade};
    use rpc_core::transport::Addresses;

    #[derive(Debug)]
    pub(super) struct NotBuiltIn;

    fn declined() -> Declined {
        Declined::new("farcall is built without its feature `rdma`")
    }

    impl Upgrade for NotBuiltIn {
        fn name(&self) -> &'static str {
            "rdma"
        }

        fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
            Err(declined())
        }

        fn accept(
            &self,
            _: &Addresses,
            _: &[u8],
        ) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
            Err(declined())
        }
    }
}
