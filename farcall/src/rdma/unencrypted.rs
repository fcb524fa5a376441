//! RDMA where encryption is required: it is not used, and says why.

use std::net::IpAddr;

use rpc_core::connect::{Candidate, Declined, PendingOffer, Upgrade};
use rpc_core::transport::Addresses;

/// Stands in the place of RDMA where encryption is required. No device is opened.
#[derive(Debug)]
pub(crate) struct Unencrypted {
    reason: &'static str,
}

impl Unencrypted {
    /// Under `require_encryption`.
    pub(crate) fn by_setting() -> Self {
        Self { reason: "RDMA is not encrypted, and require_encryption is set" }
    }

    /// Where calls carry credentials.
    pub(crate) fn for_credentials() -> Self {
        Self { reason: "RDMA is not encrypted, and calls carry credentials" }
    }

    fn declined(&self) -> Declined {
        Declined::new(self.reason)
    }
}

impl Upgrade for Unencrypted {
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
