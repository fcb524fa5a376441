//! The devices that the figures are measured on.

use clap::Args;

/// The devices of a client and a server on one machine. What is there by itself is the virtual
/// machine.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The RDMA device of clients.
    #[arg(long, value_name = "DEVICE", default_value = "rxe0")]
    pub(crate) client_device: String,
    /// The RDMA device of servers.
    #[arg(long, value_name = "DEVICE", default_value = "rxe1")]
    pub(crate) server_device: String,
    /// The address of the servers' device.
    #[arg(long, value_name = "ADDRESS", default_value = "10.0.1.1")]
    pub(crate) server_address: String,
}

impl Place {
    /// Returns the address that farcall's servers listen on, with any free port.
    pub(crate) fn address(&self, scheme: &str) -> String {
        format!("{scheme}://{}:0", self.server_address)
    }
}
