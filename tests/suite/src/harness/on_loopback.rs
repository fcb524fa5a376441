//! RDMA on simulated devices beside byte streams inside the process.

use std::sync::Arc;

use farcall::RdmaConfig;
use farcall::rdma::LaneInfo;
use farcall::sim::SimNetwork;
use rpc_core::connect::{Candidate, Declined, PendingOffer, Upgrade};
use rpc_core::transport::Addresses;
use rpc_transport_rdma::RdmaUpgrade;

/// RDMA beside a byte stream inside the process, as if that were on the loopback interface: with
/// real sockets a paused clock would run away.
#[derive(Debug)]
pub struct OnLoopback(RdmaUpgrade);

impl OnLoopback {
    /// Opens the devices of `network`, of which one has the address 127.0.0.1.
    #[must_use]
    pub fn new(network: &SimNetwork, config: RdmaConfig) -> Arc<Self> {
        Arc::new(Self(RdmaUpgrade::with_provider(Box::new(network.provider()), config)))
    }

    /// Returns the addresses that both ends have.
    #[must_use]
    pub fn addresses() -> Addresses {
        let local = Some(([127, 0, 0, 1], 1).into());
        Addresses { local, peer: local, ..Addresses::default() }
    }

    /// Returns the lanes of this end.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneInfo> {
        self.0.lanes()
    }
}

impl Upgrade for OnLoopback {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
        self.0.offer(&Self::addresses())
    }

    fn accept(&self, _: &Addresses, o: &[u8]) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
        self.0.accept(&Self::addresses(), o)
    }
}
