//! farcall over byte streams: TCP, on which every connection between hosts starts and to which it
//! falls back, Unix sockets within one, and streams that the program makes itself.
//!
//! [`TcpListener`] and [`TcpConnector`], [`UnixListener`] and [`UnixConnector`], [`StreamListener`]
//! and [`StreamConnector`] give the runtime its byte streams; after the handshake the stream
//! carries *records* (`record`), whole small frames or pieces of large ones, so that a large frame
//! never holds up a small one for long. What goes out is ordered in `outgoing`, what comes in is
//! put together in `incoming`; both are free of I/O. `transport` is the driver, the same for every
//! kind of byte stream; `socket` is what it asks of one.
#![doc(html_root_url = "https://docs.rs/rpc-transport-tcp/latest")]
#![forbid(unsafe_code)]

mod bootstrap;
mod driver;
mod frame_buffer;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gathered;
mod giving_way;
mod incoming;
mod outgoing;
mod piece_len;
mod pieces_received;
mod queue;
mod read_buffer;
mod reading;
mod receipts;
mod record;
mod reserving;
mod socket;
mod socket_file;
mod spare;
mod stream;
mod tcp;
mod transport;
mod unix;
mod unread;
mod writing;

pub use stream::{StreamConnector, StreamListener};
pub use tcp::{TcpConnector, TcpListener};
pub use unix::{UnixConnector, UnixListener};
