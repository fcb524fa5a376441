//! farcall over TCP: the transport that every connection starts on, and the one it falls back to.
//!
//! [`TcpListener`] and [`TcpConnector`] give the runtime its byte streams; after the handshake the
//! stream carries *records* (`record`), whole small frames or pieces of large ones, so that a
//! large frame never holds up a small one for long. What goes out is ordered in `outgoing`, what
//! comes in is put together in `incoming`; both are free of I/O. `transport` is the driver.
#![forbid(unsafe_code)]

mod bootstrap;
mod incoming;
mod outgoing;
mod record;
mod socket;
mod spare;
mod transport;

pub use socket::{TcpConnector, TcpListener};
