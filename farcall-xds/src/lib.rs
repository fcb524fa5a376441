//! farcall channels to the servers that an xDS control plane, such as Istio's or Envoy's, assigns
//! to a service.
//!
//! A channel finds the servers at `xds:///name` once [`scheme`] is registered. gRPC's bootstrap
//! file ([`XdsBootstrap`]) names the control plane, or the address does: `xds://host:port/name`.
//! [`Xds`] is the resolver alone, for a channel to the control plane with its own settings.
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
// bootstrap, node   the control plane, and the node that asks it
// session           requests, responses, ACKs and NACKs           (pure)
// resource          decoded resources: route, assignment          (pure)
// follow, shares    from a listener to weighted endpoints         (pure)
// resolver          the stream
//
// The crate `xds-client` has such a session, but does not fit. It only supports tonic's own streams
// (its trait is sealed), so it would add a second HTTP/2 client with its own settings next to
// `grpc://`. It keeps every resource that a control plane sends, requested or not. Its caller does
// not learn why a stream has failed.

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
