//! `grpc://` and `grpcs://`: farcall stubs that call gRPC servers.
//!
//! Inside a channel, an HTTP/2 connection takes the place of a farcall session. The channel
//! connects, backs off, retries and logs as usual. It hands the connection whole, encoded calls,
//! and tonic's own client code makes them.

mod call;
mod connection;
mod connector;
mod first_frame;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod go_away_tests;
mod goodbye;
mod http_error;
#[cfg(test)]
mod keepalive_tests;
mod message_body;
mod ping_pace;
mod response;
mod scheme;
#[cfg(test)]
mod test_stream;

pub use connector::GrpcConnector;
pub use scheme::Scheme;
