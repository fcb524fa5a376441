//! A call as the server sees it, from its head to the record of its end.

pub(in crate::server) mod context;
pub(in crate::server) mod handling;
pub(in crate::server) mod kinds;
pub(in crate::server) mod record;
pub(in crate::server) mod reply;

pub use context::{CallContext, buffer};
pub use kinds::{HandlerFuture, ServerCall, Service};
