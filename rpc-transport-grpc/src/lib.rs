//! Real gRPC for farcall, by tonic's own client and server code.
//!
//! [`GrpcOver`] has clients that tonic generated call over a farcall channel. [`Served`] has
//! farcall serve what tonic's server serves. Both are one adapter, read in two directions: messages
//! are [`Raw`], so that tonic does everything of HTTP, and nothing is encoded again.
//!
//! ```text
//!   tonic's client ── http ──> GrpcOver: tonic's server code ── Raw ──> channel
//!   session ── Raw ──> Served: tonic's client code ── http ──> tonic's server
//! ```
#![doc(html_root_url = "https://docs.rs/rpc-transport-grpc/latest")]
#![forbid(unsafe_code)]

mod breakable;
mod compression;
mod over;
mod raw;
mod served;

pub use over::GrpcOver;
pub use raw::{Raw, RawCodec};
pub use served::{DescriptorError, HttpService, Served};
