//! The common part of clients' and servers' layers.
//!
//! tower's own layers work on both sides; their errors become statuses here. A client's call is a
//! [`ClientCall`](crate::client::ClientCall), and a server's request a
//! [`ServerRequest`](crate::server::ServerRequest).

mod interceptor;
mod methods;
mod trace;
mod trace_context;

pub use interceptor::{Intercept, InterceptorLayer, RequestHead};
pub(crate) use methods::method_indices;
pub use methods::{
    ForMethods, ForMethodsLayer, LayerError, UnknownMethod, for_methods, into_status,
};
pub(crate) use trace::in_trace;
pub use trace::{Trace, TraceLayer};

use std::net::SocketAddr;

use crate::Method;

/// The side of a call that a layer is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side that makes the call.
    Client,
    /// The side that answers it.
    Server,
}

/// A request that knows which method it calls.
pub trait Described {
    /// The method.
    fn method(&self) -> Method;

    /// The side that this request is seen on.
    fn side(&self) -> Side;

    /// The transport that the request came over, and the peer's address where it has one. `None` on
    /// the side that makes the call.
    fn peer(&self) -> Option<(&'static str, Option<SocketAddr>)>;
}
