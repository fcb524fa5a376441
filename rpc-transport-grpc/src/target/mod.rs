//! `grpc://` and `grpcs://`: farcall's stubs call servers of gRPC.
//!
//! A connection over HTTP/2 takes the place of a session of farcall's in the same channel, which
//! connects, backs off, repeats and logs as ever. It is given whole calls, encoded, and answers
//! them with tonic's own client code.

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
