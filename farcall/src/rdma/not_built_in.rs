//! The stand-in for the handle in a build without RDMA.

use std::sync::Arc;

use rpc_core::connect::Upgrade;

use super::refusal::Refusal;

/// A handle without devices. It is not exported, so a program cannot name it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rdma(());

impl Rdma {
    /// A path that refuses every connection, with the reason.
    pub(crate) fn upgrade(&self) -> Arc<dyn Upgrade> {
        Arc::new(Refusal::not_built_in())
    }
}
