//! Channels of farcall to the servers that a control plane names for a service, by xDS, as gRPC's
//! clients use it: Istio's, Envoy's.
//!
//! A channel finds the servers at `xds:///name`, once [`scheme`] is registered. gRPC's bootstrap
//! file ([`XdsBootstrap`]) names the control plane, or the address does: `xds://host:port/name`.
//! [`Xds`] is the resolver alone, for a channel to the control plane with settings of its own.
//!
//! # Examples
//!
//! ```
//! # fn example() -> Result<(), farcall::AddressError> {
//! let channel = farcall::Channel::builder("xds://10.0.0.9:18000/inventory.shop:7000")?
//!     .scheme(farcall_xds::scheme())
//!     .connect_lazy();
//! # drop(channel);
//! # Ok(())
//! # }
//! ```
//!
//! For the targets of a settings file: `settings.with_scheme(farcall_xds::scheme())`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

// scheme            `xds://`, and the channel to the control plane
// bootstrap, node   which control plane, and who asks
// session           what is asked for, told, accepted and rejected   (pure)
// resource          what is read of a resource: route, assignment   (pure)
// follow, shares    from a listener to weighted endpoints            (pure)
// resolver          the stream
//
// The crate `xds-client` has such a session. Its streams are tonic's own alone (the trait is
// sealed), so that it brings a second HTTP/2 client with settings of its own beside `grpc://`; it
// keeps every resource that a control plane sends, asked for or not; and its caller does not learn
// why a stream has failed.

mod api;
mod assignment;
mod bootstrap;
mod follow;
mod node;
mod resolver;
mod resource;
mod route;
mod scheme;
mod session;
mod shares;
#[cfg(test)]
mod tests;

pub use bootstrap::{XdsBootstrap, XdsControlPlane, XdsCredentials};
pub use node::XdsNode;
pub use resolver::Xds;
pub use scheme::scheme;
