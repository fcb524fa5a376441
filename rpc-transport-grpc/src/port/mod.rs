//! One port: clients of gRPC at the address of a farcall server.
//!
//! A connection that begins with HTTP/2's preface is served by hyper, and its calls go by a link
//! inside the process into the same session that every farcall connection has. So routes, layers,
//! limits, deadlines, ages, drain and the list of connections are the server's own.
//!
//! ```text
//!   HTTP/2 ── hyper ── service: tonic's server code ── channel ── link in the process ── session
//! ```

mod bodies;
mod connection;
mod flow;
mod http1;
mod piece;
mod service;
mod stream;

use std::sync::Arc;

use rpc_core::connect::{Alpn, Gateway, OtherProtocol};
use rpc_core::server::ServerConnection;
use rpc_core::wire::Spoken;

use self::connection::{Http, PortConnection};

/// How HTTP/2 begins, as far as farcall's own beginning is long.
const PREFACE: &[u8] = b"PRI * HT";

/// gRPC over HTTP/2, beside farcall's protocol at the port of a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct GrpcPort;

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
        PortConnection::new(gateway, Http::Two)
    }
}

/// HTTP/1, beside farcall's protocol at the port of a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Http1Port;

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
        PortConnection::new(gateway, Http::One)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_http1_are_known_by_their_methods() {
        for first in ["GET /hea", "POST /a.", "HEAD /he", "OPTIONS "] {
            assert!(Http1Port.is_begun_by(first.as_bytes()), "{first}");
        }
        for first in ["HTTP/1.1", "PRI * HT", "farcall\n", "SSH-2.0-"] {
            assert!(!Http1Port.is_begun_by(first.as_bytes()), "{first}");
        }
    }
}
