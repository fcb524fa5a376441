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
mod error;
pub(crate) mod handshake;
pub(crate) mod info;
pub(crate) mod upgrade;

pub use bootstrap::{Alpn, Bootstrap, Replayed};
pub(crate) use error::with_retry;
pub use error::{ConnectError, ConnectErrorKind, ConnectFault};
pub use handshake::{HandshakeError, handshake_failed};
pub use info::{ConnectionInfo, Fallback};
pub use upgrade::{
    Candidate, Declined, Obstacle, PROOF_LEN, PathBinding, PendingOffer, Upgrade, UpgradePolicy,
    announce, is_announced, offered,
};

pub use crate::policy::failover::Wanted;
