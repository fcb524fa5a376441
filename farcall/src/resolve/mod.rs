//! Where the endpoints of a channel come from: lists, DNS, etcd, the control planes of xDS, or a
//! resolver of the program's own.

#[cfg(feature = "dns")]
mod dns;
#[cfg(feature = "etcd")]
mod etcd;
mod name;
#[cfg(feature = "xds")]
mod xds;

#[cfg(feature = "dns")]
pub use dns::Dns;
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdRegistration};
pub use name::{DnsName, EtcdName, Scheme, XdsName};
pub use rpc_core::client::endpoints::{Refresh, Resolve, ResolveError, StaticEndpoints};
#[cfg(feature = "xds")]
pub use xds::{Xds, XdsBootstrap, XdsControlPlane, XdsCredentials, XdsNode};
