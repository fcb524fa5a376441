//! The addresses of the two ends of a link.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

// On Windows the crate refuses to compile, in one sentence. An import that is not there would add
// errors to it.
#[cfg(windows)]
pub(crate) use std::convert::Infallible as UCred;
#[cfg(not(windows))]
pub(crate) use tokio::net::unix::UCred;

use super::identity::{Identity, TlsInfo};

/// The two ends of a link, where they have addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses {
    /// This end.
    pub local: Option<SocketAddr>,
    /// The peer's end.
    pub peer: Option<SocketAddr>,
    /// The path or `@name` of the Unix socket that joins them.
    pub unix: Option<String>,
    /// The user, group and process at the peer's end of a Unix socket, as the kernel knows them
    /// from the moment when it connected or listened.
    pub credentials: Option<UCred>,
    /// The name of the byte stream that joins them, where the program made it.
    pub stream: Option<String>,
    /// TLS session of the link, with the peer's identity. `None` without TLS.
    pub tls: Option<Arc<TlsInfo>>,
}

impl Addresses {
    /// The peer's identity, which TLS has verified.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.tls.as_ref()?.identity.as_ref()
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.unix {
            return write!(f, "unix://{name}");
        }
        if let Some(name) = &self.stream {
            return match self.peer {
                Some(peer) => write!(f, "{name} to {peer}"),
                None => f.write_str(name),
            };
        }
        match (self.local, self.peer) {
            (Some(local), Some(peer)) => write!(f, "{local} <-> {peer}"),
            (None, Some(peer)) => write!(f, "{peer}"),
            (Some(local), None) => write!(f, "{local}"),
            (None, None) => f.write_str("in process"),
        }
    }
}
