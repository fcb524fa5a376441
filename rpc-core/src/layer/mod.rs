//! The common part of clients' and servers' layers.
//!
//! tower's own layers work on both sides; their errors become statuses here. A client's call is a
//! [`ClientCall`](crate::client::ClientCall), and a server's request a
//! [`ServerRequest`](crate::server::ServerRequest).

mod interceptor;
mod methods;
mod trace;

pub use interceptor::{Intercept, InterceptorLayer, RequestHead};
pub(crate) use methods::method_indices;
pub use methods::{
    ForMethods, ForMethodsLayer, LayerError, UnknownMethod, for_methods, into_status,
};
pub use trace::{Trace, TraceLayer, record_transport};

use crate::Method;

/// A request that knows which method it calls.
pub trait Described {
    /// The method.
    fn method(&self) -> Method;

    /// The transport that the request came over; `None` where that is not known yet.
    fn transport(&self) -> Option<&'static str> {
        None
    }
}
