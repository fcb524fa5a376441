//! gRPC's [service config] as JSON, for channels of farcall.
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

/// A service config as values of farcall.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// Configs by the names that [`ChannelBuilder::method`] takes, in the order of the text.
    pub methods: Vec<(String, MethodConfig)>,
    /// Limit on attempts beside the first ones; `None` leaves the channel's.
    pub retry_budget: Option<RetryBudget>,
}

impl ServiceConfig {
    /// Reads gRPC's service config: `methodConfig` with `name`, `timeout`, `waitForReady`,
    /// `maxRequestMessageBytes`, `maxResponseMessageBytes`, `retryPolicy` and `hedgingPolicy`, and
    /// `retryThrottling`.
    ///
    /// Other keys belong to other clients and are left alone, load balancing among them:
    /// [`BalanceConfig`](farcall::balance::BalanceConfig) has it here. More than five attempts
    /// count as five, as in gRPC.
    ///
    /// # Errors
    ///
    /// Returns [`ServiceConfigError`] if the text is not JSON, a value has another type or is out
    /// of its range, or two parts name the same method. The error names the place.
    pub fn from_json(text: &str) -> Result<Self, ServiceConfigError> {
        json::read(text)
    }

    /// Sets the config of each method, and the retry budget, of a channel's builder.
    ///
    /// # Panics
    ///
    /// Panics if the program has put in a value out of its range. Parsing checks those of a text.
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
