//! TLS on TCP, by rustls.
//!
//! [`ServerTls`] and [`ClientTls`] are handles to what their configurations name: certificates,
//! keys and authorities, in files or in memory. A reload reads the files again; the next accept or
//! connect has what they say. `socket` makes a `Socket` (`connection::socket`) of a
//! TCP stream with TLS around it, which the driver of every connection reads and writes. `stream`
//! joins the two, `session` is the state under the lock, and `handshake` its beginning. `words` has
//! the sentences that users read.
//!
//! TLS 1.3 alone is spoken. Which protocol is spoken over it, farcall's or gRPC's, is agreed on in
//! the handshake (ALPN, `alpn`). Sessions are not resumed: a connection
//! lives long, and a client would keep an identity past the rotation that withdraws it.

mod alpn;
#[cfg(test)]
mod alpn_tests;
#[cfg(test)]
mod barren_tests;
mod certificate_fault;
mod client;
mod error;
#[cfg(test)]
mod export_tests;
mod handshake;
#[cfg(test)]
mod pair;
mod pem;
mod pem_text;
mod renewal;
mod server;
mod session;
mod socket;
mod stream;
mod words;

pub use alpn::AlpnPolicy;
pub use client::{ClientTls, ClientTlsConfig};
pub use error::TlsError;
pub use pem::Pem;
pub use server::{ClientCerts, ServerTls, ServerTlsConfig};

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;

/// The versions of TLS that are spoken.
static VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The cryptography. It is named here, so that a program that has several in its build need not
/// install one for the process.
fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "tls-aws-lc-rs")]
    return Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(feature = "tls-aws-lc-rs"))]
    return Arc::new(rustls::crypto::ring::default_provider());
}
