//! TLS on TCP, implemented with rustls.
//!
//! [`ServerTls`] and [`ClientTls`] are handles to the files of a configuration: certificates, keys
//! and authorities, on disk or in memory. A reload reads the files again, and the next accept or
//! connect uses them. `socket` implements `Socket` (`connection::socket`) for a TCP stream with
//! TLS, for the driver that every connection has. `stream` joins the two, `session` is the state
//! under the lock, and `handshake` its beginning. `messages` has the messages for users.
//!
//! Only TLS 1.3 is supported. The TLS handshake negotiates the protocol, farcall's or gRPC's (ALPN,
//! `alpn`). Sessions are not resumed: a connection is long-lived, and a client would keep an
//! identity beyond the rotation that withdraws it.

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
mod messages;
#[cfg(test)]
mod pair;
mod pem;
mod pem_text;
mod renewal;
mod server;
mod session;
mod socket;
mod stream;

pub use alpn::AlpnPolicy;
pub use client::{ClientTls, ClientTlsConfig};
pub use error::TlsError;
pub use pem::Pem;
pub use server::{ClientCerts, ServerTls, ServerTlsConfig};

use std::sync::Arc;

use rustls::SupportedProtocolVersion;
use rustls::crypto::CryptoProvider;

/// The supported versions of TLS.
static VERSIONS: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Returns the cryptography. Choosing it here frees a program that links several from installing
/// one for the process.
fn provider() -> Arc<CryptoProvider> {
    #[cfg(feature = "tls-aws-lc-rs")]
    return Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(feature = "tls-aws-lc-rs"))]
    return Arc::new(rustls::crypto::ring::default_provider());
}
