//! The upgrade from the bootstrap to another path.

use std::net::IpAddr;

use futures::future::BoxFuture;
use thiserror::Error;

use super::{Bootstrap, PathBinding};
use crate::transport::{Addresses, Transport};

/// An upgrade, for example RDMA between the hosts that a TCP stream joins.
///
/// Its methods, and [`PendingOffer::connect`], may block: they are called on a thread for that.
pub trait Upgrade: std::fmt::Debug + Send + Sync + 'static {
    /// Its name in the handshake, the same on both sides.
    fn name(&self) -> &'static str;

    /// What this host can offer to clients that connect to `local`, or to any of its addresses, in
    /// words for the log. By default its name, for upgrades that every host can offer.
    ///
    /// # Errors
    ///
    /// With the reason when it can offer nothing.
    fn check(&self, _local: Option<IpAddr>) -> Result<String, Declined> {
        Ok(self.name().to_owned())
    }

    /// Prepares the client's end of a path beside a bootstrap.
    ///
    /// # Errors
    ///
    /// With the reason when this host cannot offer it.
    fn offer(&self, addresses: &Addresses) -> Result<Box<dyn PendingOffer>, Declined>;

    /// Prepares the server's end for a client's offer, up to the point where a first message can
    /// be received, and gives the blob of the answer with it.
    ///
    /// # Errors
    ///
    /// With the reason, which the client is told, when the path cannot be had.
    fn accept(
        &self,
        addresses: &Addresses,
        offer: &[u8],
    ) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined>;
}

/// The client's end of a path that is offered and not yet answered. Dropped, it is torn down.
pub trait PendingOffer: Send {
    /// The parameters for the peer.
    fn blob(&self) -> Vec<u8>;

    /// Joins the two ends.
    ///
    /// # Errors
    ///
    /// With the reason when the answer makes no sense or the device refuses.
    fn connect(self: Box<Self>, answer: &[u8]) -> Result<Box<dyn Candidate>, Declined>;
}

/// A path that is joined and not yet trusted. Dropped, it is torn down.
pub trait Candidate: Send {
    /// Binds the path to the TLS session that it was agreed on: from now on each side's probe
    /// carries its proof, and one without the peer's is none. Called before the client can send its
    /// probe, and not at all where the bootstrap has no TLS.
    ///
    /// # Errors
    ///
    /// When a probe has come already, which an honest client cannot have sent.
    fn bind(&mut self, binding: PathBinding) -> Result<(), Declined>;

    /// Proves the path from the client's end, with a message each way. The server's end answers
    /// by itself from the moment when it exists.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the path counts as not proven.
    fn prove(&mut self) -> BoxFuture<'_, Result<(), Declined>>;

    /// Whether the peer has shown that the path works, on the server's end: the client's probe has
    /// arrived over it. An honest client sends a good verdict only after its probe was answered.
    /// Without this check a client could make the server keep a path that carries nothing.
    fn is_probed(&self) -> bool;

    /// The link over the path. It keeps the bootstrap: when that ends, so does the link.
    fn into_transport(self: Box<Self>, bootstrap: Box<dyn Bootstrap>) -> Box<dyn Transport>;
}

/// Runs a step of an upgrade where it may block: devices are opened, memory is registered and
/// addresses are resolved by system calls.
pub(super) async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, Declined> + Send + 'static,
) -> Result<T, Declined> {
    let joined = tokio::task::spawn_blocking(step).await;
    joined.unwrap_or_else(|_| Err(Declined::new("preparing the path panicked")))
}

/// What stands in the way of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The program is built without it.
    NotBuiltIn,
    /// The host lacks a library.
    NoLibrary,
    /// The host's library cannot be loaded, or is too old.
    UnusableLibrary,
    /// A setting, or an address, excludes it.
    Excluded,
    /// The limit of the process on locked memory.
    LockLimit,
    /// What the device does is not to be trusted.
    Untrusted,
    /// The two sides have versions or parameters that do not fit.
    Incompatible,
    /// There is no device.
    NoDevice,
    /// There is no device of the name that a setting gives.
    NoSuchDevice,
    /// No port is active and has the address.
    NoPort,
    /// Connections or memory in use leave no room.
    InUse,
    /// The device or the system refused.
    Refused,
    /// It was agreed on, and carried no message.
    Unproven,
    /// The connection before this one lost it, and it is not due to be tried.
    Broken,
}

impl Obstacle {
    /// Returns true if the host has no device at all, or not even the library. Nothing is wrong
    /// then.
    #[must_use]
    pub fn is_without_device(self) -> bool {
        match self {
            Self::NoDevice | Self::NoLibrary => true,
            Self::NotBuiltIn
            | Self::UnusableLibrary
            | Self::Excluded
            | Self::LockLimit
            | Self::Untrusted
            | Self::Incompatible
            | Self::NoSuchDevice
            | Self::NoPort
            | Self::InUse
            | Self::Refused
            | Self::Unproven
            | Self::Broken => false,
        }
    }

    /// Returns true if it can go away while both processes run. A channel on TCP tries such a path
    /// again in the background.
    #[must_use]
    pub fn can_pass(self) -> bool {
        match self {
            Self::NotBuiltIn
            | Self::NoLibrary
            | Self::UnusableLibrary
            | Self::Excluded
            | Self::LockLimit
            | Self::Untrusted
            | Self::Incompatible => false,
            Self::NoDevice
            | Self::NoSuchDevice
            | Self::NoPort
            | Self::InUse
            | Self::Refused
            | Self::Unproven
            | Self::Broken => true,
        }
    }
}

/// Why a path cannot be had.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Declined {
    /// The reason, for people.
    pub reason: String,
    /// Its kind.
    pub obstacle: Obstacle,
}

crate::readable_debug!(Declined);

impl Declined {
    /// Declines for `reason`, which is the refusal of a device or the system.
    pub fn new(reason: impl Into<String>) -> Self {
        Self::with(Obstacle::Refused, reason)
    }

    /// Declines because of `obstacle`, for `reason`.
    pub fn with(obstacle: Obstacle, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), obstacle }
    }
}
