//! gRPC clients at the address of a farcall server.
//!
//! h2 serves a connection that begins with HTTP/2's preface. Its calls travel over an in-process
//! link into the same kind of session that every farcall connection has. Routes, layers, limits,
//! deadlines, ages, drain and the list of connections are therefore the server's own.
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
mod pages;
mod piece;
mod service;
mod stream;

use std::sync::Arc;

use rpc_core::connect::Alpn;
use rpc_core::server::{Gateway, OtherProtocol, ServerConnection};
use rpc_core::wire::Spoken;

pub use self::cross_origin::WebOrigins;
pub use self::pages::Pages;

use self::connection::{Http, PortConnection};
use self::cross_origin::CrossOrigin;

/// The beginning of HTTP/2's preface, as long as farcall's own opening.
const PREFACE: &[u8] = b"PRI * HT";

/// gRPC over HTTP/2 on a farcall server's port, next to farcall's protocol.
#[derive(Debug, Clone, Default)]
pub struct GrpcPort {
    cross_origin: Arc<CrossOrigin>,
    pages: Option<Arc<dyn Pages>>,
}

impl GrpcPort {
    /// Allows pages of these origins to call by grpc-web.
    #[must_use]
    pub fn with_web_origins(self, origins: &WebOrigins) -> Self {
        Self { cross_origin: Arc::new(CrossOrigin::new(origins)), ..self }
    }

    /// Adds pages for operators.
    #[must_use]
    pub fn with_pages(self, pages: Option<Arc<dyn Pages>>) -> Self {
        Self { pages, ..self }
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
        PortConnection::new(gateway, Http::Two, &self.cross_origin, self.pages.clone())
    }
}

/// HTTP/1 on a farcall server's port, next to farcall's protocol.
#[derive(Debug, Clone, Default)]
pub struct Http1Port {
    cross_origin: Arc<CrossOrigin>,
    pages: Option<Arc<dyn Pages>>,
}

impl Http1Port {
    /// Allows pages of these origins to call by grpc-web.
    #[must_use]
    pub fn with_web_origins(self, origins: &WebOrigins) -> Self {
        Self { cross_origin: Arc::new(CrossOrigin::new(origins)), ..self }
    }

    /// Adds pages for operators.
    #[must_use]
    pub fn with_pages(self, pages: Option<Arc<dyn Pages>>) -> Self {
        Self { pages, ..self }
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
        // A peer that opens with a response is a server, not a client.
        Spoken::of(first) == Some(Spoken::Http1) && !first.starts_with(b"HTTP/")
    }

    fn serve(&self, gateway: Gateway) -> Arc<dyn ServerConnection> {
        PortConnection::new(gateway, Http::One, &self.cross_origin, self.pages.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http1_requests_are_recognized_by_their_methods() {
        for first in ["GET /hea", "POST /a.", "HEAD /he", "OPTIONS "] {
            assert!(Http1Port::default().is_begun_by(first.as_bytes()), "{first}");
        }
        for first in ["HTTP/1.1", "PRI * HT", "farcall\n", "SSH-2.0-"] {
            assert!(!Http1Port::default().is_begun_by(first.as_bytes()), "{first}");
        }
    }
}
