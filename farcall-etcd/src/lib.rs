//! farcall servers that register with [etcd], and channels that find them there.
//!
//! [etcd]: https://etcd.io
//!
//! A server registers with an [`EtcdRegistration`]. A channel finds all servers under a prefix at
//! `etcd://host:2379/prefix` once [`scheme`] is registered. [`Etcd`] is the resolver alone, for a
//! channel to etcd with its own settings.
//!
//! | address | servers are called over |
//! |---|---|
//! | `etcd://host:2379/prefix` | RDMA when both sides can, otherwise TCP |
//! | `etcd+rdma://`, `etcd+tcp://` | RDMA, TCP |
//! | `etcd+grpc://`, `etcd+grpcs://` | gRPC, gRPC over TLS |
//! | `etcd:///prefix` | the same, from an etcd at port 2379 of this host |
//!
//! # Examples
//!
//! ```
//! # fn example() -> Result<(), farcall::AddressError> {
//! let channel = farcall::Channel::builder("etcd://10.0.0.9:2379/services/inventory")?
//!     .scheme(farcall_etcd::scheme())
//!     .connect_lazy();
//! # drop(channel);
//! # Ok(())
//! # }
//! ```
//!
//! Targets in a settings file can have such addresses, too:
//!
//! ```no_run
//! # fn example() -> Result<(), farcall::SettingsError> {
//! let settings = farcall::Settings::load("farcall.toml")?.with_scheme(farcall_etcd::scheme());
//! let channel = settings.channel("inventory")?;
//! # drop(channel);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod api;
mod registration;
mod resolver;
mod scheme;
#[cfg(test)]
mod tests;

pub use registration::EtcdRegistration;
pub use resolver::Etcd;
pub use scheme::scheme;
