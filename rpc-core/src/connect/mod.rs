//! From a byte stream to a connection: the handshake, and the upgrade of the path.
//!
//! Every connection starts on a [`Bootstrap`], a byte stream that also *is* a transport. The
//! client says Hello and offers upgrades; the server answers and accepts at most one; the client
//! tries the new path and says its verdict. The verdict, which travels in order on the bootstrap,
//! is the one place where the path is decided, for both sides at once:
//!
//! ```text
//!   Bootstrap ── declined, or no offer ──> transport of the bootstrap (the reason is kept)
//!       │ accepted
//!   Proving ──── verdict: failed ────────> transport of the bootstrap (the reason is kept)
//!       │ verdict: good
//!       └──────────────────────────────> upgraded transport, which keeps the bootstrap
//! ```

mod bootstrap;
mod client;
mod error;
mod handshake;
mod offered;
mod open_stream;
mod path_binding;
mod protocol;
mod reasons;
mod server;
mod turn_away;
mod upgrade;

pub use bootstrap::Bootstrap;
pub use client::{ClientConfig, UpgradePolicy, connect, handshake_failed};
pub use error::ConnectError;
pub(crate) use error::with_retry;
pub use handshake::HandshakeError;
pub use offered::{announce, is_announced, offered};
pub use open_stream::{Connecting, Handshake, OpenStream};
pub use path_binding::{PROOF_LEN, PathBinding};
pub use protocol::{Alpn, Gateway, OtherProtocol, Replayed};
pub use reasons::Fallback;
pub(crate) use server::identify;
pub use server::{Accepted, Opening, ServerHandshake, accept};
pub use upgrade::{Candidate, Declined, Obstacle, PendingOffer, Upgrade};

use crate::Negotiated;
pub use crate::policy::failover::Wanted;
use crate::transport::{Addresses, TransportStats};

impl ConnectionInfo {
    /// What a connection of another protocol says of itself.
    #[doc(hidden)]
    #[must_use]
    pub fn new(
        transport: &'static str,
        addresses: Addresses,
        calls_in_flight: usize,
        stats: TransportStats,
    ) -> Self {
        Self {
            transport,
            addresses,
            is_upgraded: false,
            wanted_upgrade: false,
            fallback: None,
            fallback_can_pass: false,
            is_without_device: false,
            compression: Negotiated::default(),
            calls_in_flight,
            stats,
        }
    }
}

/// What a connection says of itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The transport that carries its calls, for example `tcp` or `rdma`.
    pub transport: &'static str,
    /// Its two ends.
    pub addresses: Addresses,
    /// Whether it moved from the path that it started on to an upgraded one.
    pub is_upgraded: bool,
    /// Whether its client wanted an upgraded path, as `auto://` does.
    pub wanted_upgrade: bool,
    /// Why it did not move to an upgraded path. Never absent where one was wanted and is not in
    /// use.
    pub fallback: Option<String>,
    /// Whether that reason can pass while both processes run. The channel then tries again in the
    /// background.
    pub fallback_can_pass: bool,
    /// Set where the reason is that one side has no device at all, which is no fault.
    #[doc(hidden)]
    pub is_without_device: bool,
    /// Which directions may have compressed messages: none over RDMA.
    pub compression: Negotiated,
    /// The calls in flight on it at this moment.
    pub calls_in_flight: usize,
    /// What its transport has counted.
    pub stats: TransportStats,
}
