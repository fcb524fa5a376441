//! Where the endpoints of a channel come from: lists, DNS, or a resolver of the program's own.

#[cfg(feature = "dns")]
mod dns;
mod name;

#[cfg(feature = "dns")]
pub use dns::Dns;
pub use name::{DnsName, Scheme};
pub use rpc_core::client::endpoints::{Refresh, Resolve, ResolveError, StaticEndpoints};
