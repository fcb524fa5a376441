//! Where the endpoints of a channel come from: lists, DNS, etcd, the control planes of xDS, or a
//! resolver of the program's own.

mod custom;
#[cfg(feature = "dns")]
mod dns;
#[cfg(feature = "etcd")]
mod etcd;
mod name;
#[cfg(feature = "xds")]
mod xds;

pub use custom::CustomScheme;
pub(crate) use custom::CustomSchemes;
#[cfg(feature = "dns")]
pub use dns::Dns;
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdRegistration};
pub(crate) use name::is_own;
pub use name::{CustomAddress, DnsName, Scheme};
pub use rpc_core::client::endpoints::{Refresh, Resolve, ResolveError, StaticEndpoints};
#[cfg(feature = "xds")]
pub use xds::{Xds, XdsBootstrap, XdsControlPlane, XdsCredentials, XdsNode};
