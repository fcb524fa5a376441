//! Real gRPC for farcall, by tonic's own client and server code.
//!
//! [`GrpcOver`] has clients that tonic generated call over a farcall channel, and [`GrpcPort`]
//! takes clients of gRPC at a server's port, as [`Http1Port`] does clients of HTTP/1. [`Served`]
//! has farcall serve what tonic's server serves, and [`GrpcConnector`] calls servers of gRPC. All
//! are one adapter, read in two directions: messages are [`Raw`], so that tonic does everything of
//! gRPC's HTTP, and nothing is encoded again. Only a unary call whose message has come whole goes
//! round tonic's server code.
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
pub use port::{GrpcPort, Http1Port, WebOrigins};
pub use raw::{Raw, RawCodec};
pub use served::{DescriptorError, HttpService, Served};
pub use target::{GrpcConnector, Scheme};
