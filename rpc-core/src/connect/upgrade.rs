//! The upgrade from the bootstrap to another path.
//!
//! A path is bound to the TLS session that it was agreed on. Each side's proof is 32 bytes that TLS
//! exports (RFC 8446, 7.5) for a label of that side, over both Hellos as they went over the stream,
//! offers included. Only the two ends of the session can make them, and a proof fits these Hellos
//! alone: neither a peer that knows where a path begins nor an end of another session can claim a
//! path, or have it lead elsewhere. The probes over the new path carry the proofs.
//!
//! A client learns why it has no upgraded path from the handshake. The server's operator learns it
//! from the line of a server that begins to listen, before any client comes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use thiserror::Error;
use tracing::Level;

use super::{Bootstrap, ConnectError, ConnectFault, HandshakeError};
use crate::handoff::blocking_at_home;
use crate::policy::failover::Wanted;
use crate::transport::{Addresses, Transport};

/// The length of a proof in bytes.
pub const PROOF_LEN: usize = 32;

/// The labels of the two proofs.
const CLIENT: &[u8] = b"EXPORTER-farcall upgrade client";
const SERVER: &[u8] = b"EXPORTER-farcall upgrade server";

/// An upgrade, for example RDMA between the hosts that a TCP stream joins.
///
/// Its methods, and [`PendingOffer::connect`], may block: they are called on a thread for that.
pub trait Upgrade: std::fmt::Debug + Send + Sync + 'static {
    /// Its name in the handshake, the same on both sides.
    fn name(&self) -> &'static str;

    /// Describes, for the log, the offers that this host can make to clients that connect to
    /// `local`, or to any of its addresses. By default it is the upgrade's name, for upgrades that
    /// every host can offer.
    ///
    /// # Errors
    ///
    /// Returns the reason if the host can offer nothing.
    fn check(&self, _local: Option<IpAddr>) -> Result<String, Declined> {
        Ok(self.name().to_owned())
    }

    /// Prepares the client's end of a path beside a bootstrap.
    ///
    /// # Errors
    ///
    /// Returns the reason when this host cannot offer it.
    fn offer(&self, addresses: &Addresses) -> Result<Box<dyn PendingOffer>, Declined>;

    /// Prepares the server's end for a client's offer, up to the point where a first message can
    /// be received, and gives the blob of the answer with it.
    ///
    /// # Errors
    ///
    /// Returns the reason, which the client is told, when the path cannot be had.
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
    /// Returns the reason when the answer makes no sense or the device refuses.
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
    /// Returns `Declined` if a probe has come already, which an honest client cannot have sent.
    fn bind(&mut self, binding: PathBinding) -> Result<(), Declined>;

    /// Proves the path from the client's end, with a message each way. The server's end answers
    /// by itself from the moment when it exists.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the path counts as not proven.
    fn prove(&mut self) -> BoxFuture<'_, Result<(), Declined>>;

    /// Returns true if the peer has proven the path to the server: the client's probe has arrived
    /// over it. An honest client sends a good verdict only after its probe was answered. Without
    /// this check a client could make the server keep a path that carries nothing.
    fn is_probed(&self) -> bool;

    /// The link over the path. It keeps the bootstrap: when that ends, so does the link.
    fn into_transport(self: Box<Self>, bootstrap: Box<dyn Bootstrap>) -> Box<dyn Transport>;
}

/// An obstacle to a path.
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
    /// The device's behavior is not trusted.
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

/// The end of the stream that this side is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

/// The proofs of both sides of a path.
#[derive(Clone, Copy)]
pub struct PathBinding {
    ours: [u8; PROOF_LEN],
    theirs: [u8; PROOF_LEN],
}

impl PathBinding {
    /// Binds by proofs that both sides know, for tests of paths.
    #[must_use]
    pub fn new(ours: [u8; PROOF_LEN], theirs: [u8; PROOF_LEN]) -> Self {
        Self { ours, theirs }
    }

    /// The proofs over these Hellos; none where the stream has no TLS.
    pub(crate) fn of(
        bootstrap: &dyn Bootstrap,
        end: End,
        client_hello: &[u8],
        server_hello: &[u8],
    ) -> Result<Option<Self>, HandshakeError> {
        let context = context(client_hello, server_hello);
        let client = bootstrap.export(CLIENT, &context)?;
        let server = bootstrap.export(SERVER, &context)?;
        let (Some(client), Some(server)) = (client, server) else { return Ok(None) };
        Ok(Some(match end {
            End::Client => Self { ours: client, theirs: server },
            End::Server => Self { ours: server, theirs: client },
        }))
    }

    /// Returns the proof of this side.
    #[must_use]
    pub fn ours(&self) -> &[u8; PROOF_LEN] {
        &self.ours
    }

    /// Returns true if `proof` is the peer's proof. The comparison takes the same time for every
    /// proof of the right length.
    #[must_use]
    pub fn is_theirs(&self, proof: &[u8]) -> bool {
        let pairs = self.theirs.iter().zip(proof);
        let difference = pairs.fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        proof.len() == PROOF_LEN && std::hint::black_box(difference) == 0
    }
}

/// It shows no proof.
impl fmt::Debug for PathBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathBinding")
    }
}

/// Runs a step of an upgrade where it may block: devices are opened, memory is registered and
/// addresses are resolved by system calls. A device that a core opens belongs to the core's home:
/// connections of all cores are on it.
pub(crate) async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, Declined> + Send + 'static,
) -> Result<T, Declined> {
    let joined = blocking_at_home(step).await;
    joined.unwrap_or_else(|_| Err(Declined::new("preparing the path panicked")))
}

/// Both Hellos, the first with its length before it, so that no other two read the same.
fn context(client_hello: &[u8], server_hello: &[u8]) -> Vec<u8> {
    let len = (client_hello.len() as u64).to_le_bytes();
    [&len[..], client_hello, server_hello].concat()
}

/// Asks what this host can offer to clients that connect to `local`, or to any of its addresses,
/// on a thread that may block.
///
/// # Errors
///
/// Returns the reason when it can offer nothing.
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
            target: "farcall::server", %address, %ports, "listening: clients can use RDMA"
        ),
        Some(Err(reason)) => tracing::info!(
            target: "farcall::server", %address, %reason, "listening without RDMA"
        ),
    }
}

/// Returns true if the line of [`announce`] would be written: asking costs system calls.
#[must_use]
pub fn is_announced() -> bool {
    tracing::enabled!(target: "farcall::server", Level::INFO)
}

/// The upgraded paths that a client tries.
#[derive(Debug, Clone, Default)]
pub enum UpgradePolicy {
    /// None: the bootstrap carries the connection.
    #[default]
    Never,
    /// The first that both sides can, of these; otherwise the bootstrap, and the reason is kept.
    Prefer(Vec<Arc<dyn Upgrade>>),
    /// This one, or no connection.
    Require(Arc<dyn Upgrade>),
}

impl UpgradePolicy {
    pub(crate) fn upgrades(&self, wanted: &Wanted) -> &[Arc<dyn Upgrade>] {
        match self {
            Self::Never => &[],
            Self::Prefer(_) if matches!(wanted, Wanted::Bootstrap(_)) => &[],
            Self::Prefer(upgrades) => upgrades,
            Self::Require(upgrade) => std::slice::from_ref(upgrade),
        }
    }

    /// The upgrade without which there is to be no connection.
    pub(crate) fn required(&self, wanted: &Wanted) -> Option<&Arc<dyn Upgrade>> {
        match self {
            Self::Prefer(upgrades) if *wanted == Wanted::Upgraded => upgrades.first(),
            Self::Never | Self::Prefer(_) => None,
            Self::Require(upgrade) => Some(upgrade),
        }
    }

    /// Checks that this host can have the path that an attempt is for, before anything is sent: a
    /// host without a device bothers no server.
    ///
    /// # Errors
    ///
    /// Returns `UpgradeRequired` if the attempt is for an upgraded path beside a connection in use,
    /// and no address of this host can have it.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the thread finishes its query alone.
    pub async fn check_host(&self, wanted: &Wanted, server: &str) -> Result<(), ConnectError> {
        let required = self.required(wanted).filter(|_| *wanted == Wanted::Upgraded);
        let Some(upgrade) = required else { return Ok(()) };
        let this = Arc::clone(upgrade);
        let checked = blocking(move || this.check(None)).await;
        checked.map(drop).map_err(|declined| {
            ConnectError::from(ConnectFault::UpgradeRequired {
                address: server.to_owned(),
                upgrade: upgrade.name(),
                reason: format!("this host: {declined}").into(),
                can_pass: declined.obstacle.can_pass(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_the_peers_whole_one_and_no_other() {
        let binding = PathBinding::new([1; PROOF_LEN], [2; PROOF_LEN]);
        assert!(binding.is_theirs(&[2; PROOF_LEN]));
        for forged in [&[1; PROOF_LEN][..], &[2; PROOF_LEN - 1], &[2; PROOF_LEN + 1], &[]] {
            assert!(!binding.is_theirs(forged));
        }
        for bit in 0..PROOF_LEN * 8 {
            let mut flipped = [2; PROOF_LEN];
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!binding.is_theirs(&flipped));
        }
    }

    #[test]
    fn bytes_moved_between_the_hellos_change_the_context() {
        assert_ne!(context(b"ab", b"c"), context(b"a", b"bc"));
        assert_ne!(context(b"", b"abc"), context(b"abc", b""));
    }
}
