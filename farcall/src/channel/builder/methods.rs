//! Settings of calls by their method.

#[cfg(any(test, feature = "settings"))]
use rpc_core::client::attempts::ServiceConfig;
use rpc_core::settings::expect_valid;

use super::ChannelBuilder;
use crate::retry::{MethodConfig, RetryBudget};

impl ChannelBuilder {
    /// Sets what applies to a method, `/shop.Catalog/Get`, to the methods of a service,
    /// `shop.Catalog`, or to all that nothing else names, `*`: timeouts, retries and hedging.
    /// Nothing by default.
    ///
    /// Of several configs that fit a method, one applies, and whole: its own, else its service's,
    /// else that of `*`. A later one replaces one of the same name, that of a settings file among
    /// them. From then on a reload of the file changes no method of this channel.
    ///
    /// # Panics
    ///
    /// Panics if the name is none of these, or a value is out of its range: see
    /// [`MethodConfig::check_name`] and [`MethodConfig::check`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farcall::retry::{HedgingPolicy, MethodConfig, RetryPolicy};
    ///
    /// # fn example() -> Result<(), farcall::AddressError> {
    /// let retry = RetryPolicy::default().with_max_attempts(4);
    /// let hedging = HedgingPolicy::default().with_hedging_delay(Duration::from_millis(20));
    /// let channel = farcall::Channel::builder("auto://shop:7000")?
    ///     .method("*", MethodConfig::default().with_retry(retry))
    ///     .method("/shop.Catalog/Get", MethodConfig::default().with_hedging(hedging))
    ///     .connect_lazy();
    /// # drop(channel);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn method(mut self, name: impl Into<String>, config: MethodConfig) -> Self {
        let name = name.into();
        expect_valid(MethodConfig::check_name(&name));
        expect_valid(config.check());
        self.service.change(|service| service.with_method(name, config));
        self
    }

    /// Sets the limit on attempts beside the first ones; a fifth of the calls by default. All
    /// methods share it.
    ///
    /// # Panics
    ///
    /// Panics if a value is out of its range: see [`RetryBudget::check`].
    #[track_caller]
    pub fn retry_budget(mut self, budget: RetryBudget) -> Self {
        expect_valid(budget.check());
        self.service.change(|service| service.with_budget(budget));
        self
    }

    /// Returns the settings by method that are in force.
    #[cfg(any(test, feature = "settings"))]
    pub(crate) fn service_config(&self) -> &ServiceConfig {
        self.service.resolve()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Channel;
    use crate::retry::RetryPolicy;

    fn builder() -> ChannelBuilder {
        Channel::builder("tcp://127.0.0.1:1").unwrap()
    }

    #[test]
    fn a_later_config_replaces_one_of_its_name() {
        let timeout = |seconds| MethodConfig::default().with_timeout(Duration::from_secs(seconds));
        let builder = builder()
            .method("t.T/M", timeout(1))
            .method("t.T", timeout(2))
            .method("*", timeout(3))
            .method("/t.T/M", timeout(4));
        let config = |path| builder.service_config().of(path).unwrap().timeout.unwrap().as_secs();
        assert_eq!([config("/t.T/M"), config("/t.T/N"), config("/t.U/M")], [4, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "methods is \"/Get\": a service's full name")]
    fn a_name_of_no_method_panics() {
        let _ = builder().method("/Get", MethodConfig::default());
    }

    #[test]
    #[should_panic(expected = "retry.max_attempts is 1: from 2 to 5")]
    fn a_value_out_of_its_range_panics() {
        let config =
            MethodConfig::default().with_retry(RetryPolicy::default().with_max_attempts(1));
        let _ = builder().method("*", config);
    }
}
