//! gRPC for farcall, built on tonic's own client and server code.
//!
//! * [`GrpcOver`] runs tonic-generated clients over a farcall channel.
//! * [`GrpcPort`] accepts gRPC clients on a server's port, and [`Http1Port`] accepts HTTP/1
//!   clients.
//! * [`Served`] lets a farcall server host tonic services.
//! * [`GrpcConnector`] calls gRPC servers.
//!
//! All four are one adapter, read in two directions. Messages are [`Raw`], so tonic handles all of
//! gRPC's HTTP and nothing is encoded twice. Only a unary call whose message arrives whole bypasses
//! tonic's server code.
//!
//! ```text
//!   tonic's client ── http ──> GrpcOver: tonic's server code ── Raw ──> channel
//!   HTTP/2 ── h2 ── http ──> GrpcPort: tonic's server code ── Raw ──> session
//!   session ── Raw ──> Served: tonic's client code ── http ──> tonic's server
//!   channel ── Raw ──> GrpcConnector: tonic's client code ── http ── hyper ── HTTP/2
//! ```
#![doc(html_root_url = "https://docs.rs/rpc-transport-grpc/latest")]
#![forbid(unsafe_code)]

mod breakable;
mod compression;
mod content_type;
mod frames;
mod over;
mod port;
mod raw;
mod served;
mod target;
#[cfg(test)]
mod test_stream;

pub use over::GrpcOver;
pub use port::{GrpcPort, Http1Port, Pages, WebOrigins};
pub use raw::{Raw, RawCodec};
pub use served::{DescriptorError, HttpService, Served};
pub use target::{GrpcConnector, Scheme};
