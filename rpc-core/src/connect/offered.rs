//! What a server can offer beside its bootstrap, asked when it begins to listen.
//!
//! A client learns why it has no upgraded path from the handshake. The server's operator learns it
//! here, before any client comes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use tracing::Level;

use super::upgrade::blocking;
use super::{Declined, Upgrade};

/// Asks what this host can offer to clients that connect to `local`, or to any of its addresses,
/// on a thread that may block.
///
/// # Errors
///
/// With the reason when it can offer nothing.
///
/// # Cancel safety
///
/// This function is cancel safe: the thread finishes its query alone.
pub async fn offered(upgrade: Arc<dyn Upgrade>, local: Option<IpAddr>) -> Result<String, Declined> {
    blocking(move || upgrade.check(local)).await
}

/// Writes the line of a server that begins to listen at `address`: that it does, and what it can
/// offer beside the bootstrap where its address has clients ask for that.
pub fn announce(address: &dyn fmt::Display, offered: Option<&Result<String, Declined>>) {
    match offered {
        None => tracing::info!(target: "farcall::server", %address, "listening"),
        Some(Ok(ports)) => tracing::info!(
            target: "farcall::server", %address, %ports, "listening: clients can have RDMA"
        ),
        Some(Err(reason)) => tracing::info!(
            target: "farcall::server", %address, %reason, "listening without RDMA"
        ),
    }
}

/// Whether the line of [`announce`] would be written: asking costs system calls.
#[must_use]
pub fn is_announced() -> bool {
    tracing::enabled!(target: "farcall::server", Level::INFO)
}
