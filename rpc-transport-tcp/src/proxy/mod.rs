//! The receiving side of HAProxy's PROXY protocol, versions 1 and 2: a proxy in front announces its
//! client in the first bytes of a connection.
//!
//! `header` decodes, without I/O. `networks` has the addresses of trusted proxies. `read` reads a
//! header from a socket, and nothing beyond it. No crate does this: existing decoders take a buffer
//! that may hold more than the header. They also refuse headers that the specification requires
//! receivers to accept: a LOCAL command of an unknown family, and an UNKNOWN line with further
//! fields.

mod header;
mod networks;
mod read;

#[cfg(feature = "fuzzing")]
pub(crate) use header::{Decoded, decode};
pub use networks::ProxyNetworks;
pub(crate) use read::read_client;
