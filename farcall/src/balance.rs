//! Load balancing among the servers of a channel.
//!
//! A channel has many endpoints where its address is a list, `tcp://a:7000,b:7000`, or a name,
//! `dns:///inventory:7000`, and where the program has a resolver of its own
//! ([`crate::ChannelBuilder::connect_with_resolver`]). Each call goes to one of them, by the
//! [`Policy`]. Endpoints that fail are left out for a while ([`OutlierDetection`]);
//! [`crate::Channel::endpoints`] tells.
//!
//! # Examples
//!
//! ```
//! # fn example() -> Result<(), farcall::AddressError> {
//! use farcall::balance::{BalanceConfig, Policy};
//!
//! let channel = farcall::Channel::builder("auto://10.0.0.1:7000,10.0.0.2:7000")?
//!     .balance(BalanceConfig::default().with_policy(Policy::RoundRobin))
//!     .connect_lazy();
//! # Ok(())
//! # }
//! ```

pub use rpc_core::balance::{
    BalanceConfig, Connectivity, Endpoint, EndpointStatus, OutlierDetection, Policy,
};
pub use rpc_core::client::endpoints::HashKey;
