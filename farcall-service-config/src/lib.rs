//! gRPC's [service config] in JSON, for farcall channels.
//!
//! [service config]: https://github.com/grpc/grpc/blob/master/doc/service_config.md
//!
//! # Examples
//!
//! ```
//! use farcall::Channel;
//! use farcall_service_config::ServiceConfig;
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ServiceConfig::from_json(
//!     r#"{"methodConfig": [{
//!         "name": [{"service": "shop.Catalog"}],
//!         "timeout": "2s",
//!         "retryPolicy": {
//!             "maxAttempts": 3,
//!             "initialBackoff": "0.1s",
//!             "maxBackoff": "1s",
//!             "backoffMultiplier": 2,
//!             "retryableStatusCodes": ["UNAVAILABLE"]
//!         }
//!     }]}"#,
//! )?;
//! let channel = config.apply(Channel::builder("auto://shop:7000")?).connect_lazy();
//! # drop(channel);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod json;

use farcall::ChannelBuilder;
use farcall::retry::{MethodConfig, RetryBudget};

pub use json::ServiceConfigError;

/// A service config in farcall's types.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// Configs by the names that [`ChannelBuilder::method`] accepts, in the order of the text.
    pub methods: Vec<(String, MethodConfig)>,
    /// Limit on attempts beyond the first ones; `None` keeps the channel's.
    pub retry_budget: Option<RetryBudget>,
}

impl ServiceConfig {
    /// Reads gRPC's service config.
    ///
    /// Supported keys are `methodConfig` with `name`, `timeout`, `waitForReady`,
    /// `maxRequestMessageBytes`, `maxResponseMessageBytes`, `retryPolicy` and `hedgingPolicy`, and
    /// `retryThrottling`. Other keys belong to other clients and are ignored. That includes load
    /// balancing, which [`BalanceConfig`](farcall::balance::BalanceConfig) configures here. More
    /// than five attempts count as five, as in gRPC.
    ///
    /// # Errors
    ///
    /// Returns [`ServiceConfigError`] if the text is not JSON, a value has another type or is out
    /// of its range, or two parts name the same method. The error names the place.
    pub fn from_json(text: &str) -> Result<Self, ServiceConfigError> {
        json::read(text)
    }

    /// Sets the config of each method, and the retry budget, on a channel's builder.
    ///
    /// # Panics
    ///
    /// Panics if the program has set a value out of its range. Parsing checks the values of a text.
    #[track_caller]
    pub fn apply(self, builder: ChannelBuilder) -> ChannelBuilder {
        let builder = match self.retry_budget {
            Some(budget) => builder.retry_budget(budget),
            None => builder,
        };
        let set = |builder: ChannelBuilder, (name, config)| builder.method(name, config);
        self.methods.into_iter().fold(builder, set)
    }
}
