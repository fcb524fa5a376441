//! One port: clients of gRPC at the address of a farcall server.
//!
//! A connection that begins with HTTP/2's preface is served by h2, and its calls go by a link
//! inside the process into the same session that every farcall connection has. So routes, layers,
//! limits, deadlines, ages, drain and the list of connections are the server's own.
//!
//! ```text
//!   HTTP/2 ── h2 ── service: tonic's server code ── channel ── link in the process ── session
//! ```

mod authority;
mod bodies;
mod client_frames;
#[cfg(test)]
mod closing_tests;
mod connection;
mod cross_origin;
mod flow;
mod header_list;
mod held;
mod http1;
mod http2;
mod linger;
mod noted_wakes;
mod piece;
mod service;
mod stream;

use std::sync::Arc;

use rpc_core::connect::Alpn;
use rpc_core::server::{Gateway, OtherProtocol, ServerConnection};
use rpc_core::wire::Spoken;

pub use self::cross_origin::WebOrigins;

use self::connection::{Http, PortConnection};
use self::cross_origin::CrossOrigin;

/// How HTTP/2 begins, as far as farcall's own beginning is long.
const PREFACE: &[u8] = b"PRI * HT";

/// gRPC over HTTP/2, beside farcall's protocol at the port of a server.
#[derive(Debug, Clone, Default)]
pub struct GrpcPort {
    cross_origin: Arc<CrossOrigin>,
}

impl GrpcPort {
    /// Gives pages of these origins leave to call by grpc-web.
    #[must_use]
    pub fn with_web_origins(self, origins: &WebOrigins) -> Self {
        Self { cross_origin: Arc::new(CrossOrigin::new(origins)) }
    }
}

impl OtherProtocol for GrpcPort {
    fn name(&self) -> &'static str {
        "grpc"
    }

    fn alpn(&self) -> Alpn {
        Alpn::GRPC
    }

    fn is_begun_by(&self, first: &[u8]) -> bool {
        first == PREFACE
    }

    fn serve(&self, gateway: Gateway) -> Arc<dyn ServerConnection> {
        PortConnection::new(gateway, Http::Two, &self.cross_origin)
    }
}

/// HTTP/1, beside farcall's protocol at the port of a server.
#[derive(Debug, Clone, Default)]
pub struct Http1Port {
    cross_origin: Arc<CrossOrigin>,
}

impl Http1Port {
    /// Gives pages of these origins leave to call by grpc-web.
    #[must_use]
    pub fn with_web_origins(self, origins: &WebOrigins) -> Self {
        Self { cross_origin: Arc::new(CrossOrigin::new(origins)) }
    }
}

impl OtherProtocol for Http1Port {
    fn name(&self) -> &'static str {
        "grpc-web"
    }

    fn alpn(&self) -> Alpn {
        Alpn::HTTP1
    }

    fn is_begun_by(&self, first: &[u8]) -> bool {
        // What a server of HTTP/1 begins with is no request.
        Spoken::of(first) == Some(Spoken::Http1) && !first.starts_with(b"HTTP/")
    }

    fn serve(&self, gateway: Gateway) -> Arc<dyn ServerConnection> {
        PortConnection::new(gateway, Http::One, &self.cross_origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http1_are_known_by_their_methods() {
        for first in ["GET /hea", "POST /a.", "HEAD /he", "OPTIONS "] {
            assert!(Http1Port::default().is_begun_by(first.as_bytes()), "{first}");
        }
        for first in ["HTTP/1.1", "PRI * HT", "farcall\n", "SSH-2.0-"] {
            assert!(!Http1Port::default().is_begun_by(first.as_bytes()), "{first}");
        }
    }
}
