//! A path that refuses every connection: RDMA where it cannot be used.

use std::net::IpAddr;

use rpc_core::connect::{Candidate, Declined, Obstacle, PendingOffer, Upgrade};
use rpc_core::transport::Addresses;

/// The reason why this build has no RDMA.
#[cfg(target_os = "linux")]
pub(crate) const NOT_BUILT_IN: &str = "this program was built without farcall's feature `rdma`";

/// The reason why this build has no RDMA.
#[cfg(not(target_os = "linux"))]
pub(crate) const NOT_BUILT_IN: &str =
    "RDMA needs Linux, and this program was built for another system";

/// Stands in for RDMA where it cannot be used, and refuses every connection with the reason. It
/// opens no device.
#[derive(Debug)]
pub(crate) struct Refusal {
    reason: &'static str,
    obstacle: Obstacle,
}

impl Refusal {
    /// For connections under `require_encryption`.
    pub(crate) fn by_setting() -> Self {
        let reason = "RDMA is not encrypted, but require_encryption is set";
        Self { reason, obstacle: Obstacle::Excluded }
    }

    /// For calls that carry credentials.
    pub(crate) fn for_credentials() -> Self {
        let reason = "RDMA is not encrypted, but calls carry credentials";
        Self { reason, obstacle: Obstacle::Excluded }
    }

    /// For a build without RDMA.
    pub(crate) fn not_built_in() -> Self {
        Self { reason: NOT_BUILT_IN, obstacle: Obstacle::NotBuiltIn }
    }

    fn declined(&self) -> Declined {
        Declined::with(self.obstacle, self.reason)
    }
}

impl Upgrade for Refusal {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn check(&self, _: Option<IpAddr>) -> Result<String, Declined> {
        Err(self.declined())
    }

    fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
        Err(self.declined())
    }

    fn accept(&self, _: &Addresses, _: &[u8]) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
        Err(self.declined())
    }
}
