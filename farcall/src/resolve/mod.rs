//! Sources of a channel's endpoints: lists, DNS, schemes that the program registers, or a resolver
//! of its own.
//!
//! The crates `farcall-etcd` and `farcall-xds` have resolvers of etcd's servers and of those that a
//! control plane of xDS names, each with a [`CustomScheme`].

mod custom;
#[cfg(feature = "dns")]
mod dns;

pub use crate::address::{CustomAddress, DnsName, Scheme};
pub use custom::CustomScheme;
pub(crate) use custom::CustomSchemes;
#[cfg(feature = "dns")]
pub use dns::Dns;
pub use rpc_core::client::endpoints::{Refresh, Resolve, ResolveError, StaticEndpoints};
