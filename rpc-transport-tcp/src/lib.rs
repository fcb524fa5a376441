//! farcall over byte streams: TCP, on which every connection between hosts starts and to which it
//! falls back, Unix sockets within one, and streams that the program makes itself.
//!
//! [`TcpListener`] and [`TcpConnector`], [`UnixListener`] and [`UnixConnector`], [`StreamListener`]
//! and [`StreamConnector`] give the runtime its byte streams; after the handshake the stream
//! carries *records* (`codec::record`), each a single small frame or a chunk of a large one, so
//! that a large frame never holds up a small one for long. `send` orders what goes out, `codec`
//! decodes what comes in, and `pacing` says how much of large frames is under way; all three are
//! free of I/O. `connection` drives any kind of byte stream, `net` opens and accepts
//! them, and `proxy` reads the headers of proxies in front.
//! With the feature `tls`, `tls` puts TLS around TCP.
#![doc(html_root_url = "https://docs.rs/rpc-transport-tcp/latest")]
#![forbid(unsafe_code)]

mod codec;
mod connection;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod net;
mod pacing;
mod proxy;
mod send;
#[cfg(feature = "tls")]
pub mod tls;

pub use net::socket_access::SocketAccess;
pub use net::stream::{StreamConnector, StreamListener};
pub use net::tcp::{TcpConnector, TcpListener};
pub use net::unix::{UnixConnector, UnixListener};
pub use proxy::ProxyNetworks;
