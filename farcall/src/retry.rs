//! Rules for calls by method: timeouts, retries and hedging, as in gRPC's service config.
//!
//! A channel repeats by itself what no handler has seen, and once what may have been executed, if
//! the method is idempotent by its `.proto`. Anything beyond that is a policy of the program's:
//! [`RetryPolicy`] makes a call again after a failure, if its method is idempotent or no handler
//! has seen it. [`HedgingPolicy`] makes several attempts side by side, of idempotent methods alone.
//! [`RetryBudget`] bounds what these policies repeat. What a channel repeats by itself has bounds
//! of its own.
//!
//! Each attempt goes to another endpoint, where the channel has several. All attempts share the
//! call's timeout. An attempt's request says in `grpc-previous-rpc-attempts` how many preceded it,
//! and a server's status may say in `grpc-retry-pushback-ms` when to try again, or `-1` for never.
//! Each attempt that fails has its line in the log.
//!
//! # Examples
//!
//! ```
//! # fn example() -> Result<(), farcall::AddressError> {
//! use farcall::Code;
//! use farcall::retry::{MethodConfig, RetryPolicy};
//!
//! let policy = RetryPolicy::default().with_retryable_codes([Code::Unavailable, Code::Aborted]);
//! let channel = farcall::Channel::builder("auto://shop:7000")?
//!     .method("shop.Catalog", MethodConfig::default().with_retry(policy))
//!     .connect_lazy();
//! # Ok(())
//! # }
//! ```
//!
//! The crate `farcall-service-config` reads gRPC's service config, which is JSON.

pub use rpc_core::client::attempts::MethodConfig;
pub use rpc_core::policy::retry_config::{Codes, HedgingPolicy, RetryBudget, RetryPolicy};
