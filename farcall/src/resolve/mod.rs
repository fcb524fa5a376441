//! Where the endpoints of a channel come from: lists, DNS, etcd, or a resolver of the program's
//! own.

#[cfg(feature = "dns")]
mod dns;
#[cfg(feature = "etcd")]
mod etcd;
mod name;

#[cfg(feature = "dns")]
pub use dns::Dns;
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdRegistration};
pub use name::{DnsName, EtcdName, Scheme};
pub use rpc_core::client::endpoints::{Refresh, Resolve, ResolveError, StaticEndpoints};
