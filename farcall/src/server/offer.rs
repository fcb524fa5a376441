//! RDMA as a listener offers it to its clients.

use std::net::IpAddr;
use std::sync::Arc;

use rpc_core::connect::{self, Declined, Upgrade};
use tokio::runtime::Handle;

use crate::Address;

/// RDMA at an address whose clients may ask for it.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) address: Address,
    /// The address that clients connect to, unless it is every address of this host.
    pub(super) local: Option<IpAddr>,
    pub(super) upgrade: Arc<dyn Upgrade>,
}

impl Offer {
    /// Asks which ports clients can have, and logs them. Fails if they can have none.
    pub(super) async fn check(&self) -> Result<(), Declined> {
        let offered = connect::offered(Arc::clone(&self.upgrade), self.local).await;
        if offered.is_ok() {
            connect::announce(&self.address, Some(&offered));
        }
        offered.map(drop)
    }

    /// Spawns a task that logs which ports clients can have, if a subscriber listens. The server
    /// does not wait for it, since a device may take long to open.
    pub(super) fn announce(self) {
        let runtime = Handle::try_current().ok().filter(|_| connect::is_announced());
        let Some(runtime) = runtime else { return };
        runtime.spawn(async move {
            let offered = connect::offered(self.upgrade, self.local).await;
            connect::announce(&self.address, Some(&offered));
        });
    }
}
