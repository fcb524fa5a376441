//! Servers in a test's own process, behind a network that fails when the test says so.
//!
//! A [`TestServer`] is a server without a port, and a [`Link`] is what its clients reach it over.
//! Both are streams in memory, so that a test with tokio's paused clock waits for no second of a
//! timeout:
//!
//! ```
//! # use farcall::{Server, Service};
//! use std::time::Duration;
//!
//! use farcall::testing::{Direction, TestServer};
//!
//! # async fn example(service: impl Service) {
//! let server = TestServer::start(Server::builder().add_service(service));
//! let channel = server.channel();
//! // A stub's calls work as over any other channel. In the middle of them:
//! server.link().set_latency(Duration::from_millis(80));
//! server.link().pause(Direction::ToClient);
//! server.link().resume(Direction::ToClient);
//! server.link().cut();
//! # drop(channel);
//! # }
//! ```
//!
//! What else a test can have in place of hosts and networks:
//!
//! - [`mock::MockChannel`](crate::mock::MockChannel) answers calls as the test says, without a
//!   server.
//! - `inproc://name` is a server in process at an address, for programs that are given addresses.
//! - [`sim`](crate::sim) has simulated RDMA devices, feature `sim`, with faults of their own: a
//!   link's streams are never upgraded to RDMA.
//! - [`Link::connector_to`] puts the same faults before a server that listens elsewhere.

mod lane;
mod link;
mod relay;
mod server;
#[cfg(test)]
mod tests;

pub use lane::Direction;
pub use link::{Link, LinkIncoming};
pub use server::TestServer;
