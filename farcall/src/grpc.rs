//! gRPC, both ways. Feature `grpc`.
//!
//! - Clients of gRPC in any language call a [`Server`](crate::Server) at its TCP and Unix
//!   addresses, over HTTP/2: [`ServerBuilder::grpc_clients`](crate::ServerBuilder::grpc_clients).
//! - A [`Channel`](crate::Channel) to `grpc://host:port` calls a server of gRPC, and one to
//!   `grpcs://host:port` does so over TLS, which [`crate::tls`] sets.
//! - A [`Channel`](crate::Channel), with layers or without, becomes what tonic's clients take by
//!   [`GrpcOver::new`].
//! - tonic's server of one service (generated, health, reflection) becomes a service of farcall's
//!   by [`add_grpc_service`](crate::ServerBuilder::add_grpc_service), or [`Served::new`].
//! - tonic's `Routes`, with tower layers for HTTP around them, become services of farcall's by
//!   [`add_grpc_routes`](crate::ServerBuilder::add_grpc_routes), or [`Served::routes`].
//!
//! Messages pass as they are: nothing is encoded twice.
//!
//! # Examples
//!
//! A client that tonic has generated, over RDMA where both sides can:
//!
//! ```no_run
//! # struct GreeterClient<T>(T);
//! # impl<T> GreeterClient<T> { fn new(inner: T) -> Self { Self(inner) } }
//! # async fn example() -> Result<(), farcall::ConnectError> {
//! use farcall::grpc::GrpcOver;
//!
//! let channel = farcall::Channel::connect("auto://10.0.0.1:7000").await?;
//! let client = GreeterClient::new(GrpcOver::new(channel));
//! # drop(client.0);
//! # Ok(())
//! # }
//! ```

pub use rpc_transport_grpc::{DescriptorError, GrpcOver, HttpService, Served};
