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
mod info;
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
pub(crate) use error::with_retry;
pub use error::{ConnectError, ConnectErrorKind, ConnectFault};
pub use handshake::HandshakeError;
pub use info::ConnectionInfo;
pub use offered::{announce, is_announced, offered};
pub use open_stream::{Connecting, Handshake, OpenStream};
pub use path_binding::{PROOF_LEN, PathBinding};
pub use protocol::{Alpn, Gateway, OtherProtocol, Replayed};
pub use reasons::Fallback;
pub(crate) use server::identify;
pub use server::{Accepted, Opening, ServerHandshake, accept};
pub use upgrade::{Candidate, Declined, Obstacle, PendingOffer, Upgrade};

pub use crate::policy::failover::Wanted;
