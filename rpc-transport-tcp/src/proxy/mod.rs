//! The PROXY protocol of HAProxy, versions 1 and 2, as a server receives it: a proxy in front says
//! by the first bytes of a connection who its client is.
//!
//! `header` decodes, purely. `networks` has the addresses of the proxies that are believed. `read`
//! reads a header from a socket, and nothing beyond it. No crate does this: those that decode take
//! a buffer that may hold more than the header, and refuse headers that the specification has
//! receivers accept (a LOCAL command of an unknown family, an UNKNOWN line of many words).

mod header;
mod networks;
mod read;

#[cfg(feature = "fuzzing")]
pub(crate) use header::{Decoded, decode};
pub use networks::ProxyNetworks;
pub(crate) use read::read_client;
