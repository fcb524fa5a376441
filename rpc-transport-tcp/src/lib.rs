//! farcall over byte streams: TCP, Unix sockets, and streams that the program makes itself.
//!
//! Every connection between hosts starts on TCP and falls back to it. [`TcpListener`] and
//! [`TcpConnector`], [`UnixListener`] and [`UnixConnector`], [`StreamListener`] and
//! [`StreamConnector`] give the runtime its byte streams. After the handshake, a stream carries
//! *records* (`codec::record`). A record is a single small frame or a chunk of a large one, so a
//! large frame never delays a small one for long.
//!
//! * `send` orders the outgoing frames, `codec` decodes incoming bytes, and `pacing` limits the
//!   bytes of large frames in flight. All three are free of I/O.
//! * `connection` drives any kind of byte stream.
//! * `net` opens and accepts streams, and `proxy` reads the PROXY headers of proxies in front.
//! * `tls` wraps TCP in TLS (feature `tls`).
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
