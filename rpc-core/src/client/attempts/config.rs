//! What applies to the calls of a method: gRPC's service config, as a value.

use std::collections::HashMap;
use std::time::Duration;

use crate::call::descriptor::split_path;
use crate::call::message_limits::MessageLimits;
use crate::compression::check_min_len;
use crate::policy::retry::config::{HedgingPolicy, RetryBudget, RetryPolicy};
use crate::settings::{InvalidSetting, check_timeout, ensure};

/// Settings by method, as gRPC's service config has them: timeouts, retries and hedging.
///
/// Of several that fit a method, one applies, and whole: its own, else its service's, else the
/// default.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use farcall::retry::{HedgingPolicy, MethodConfig, RetryPolicy, ServiceConfig};
///
/// # fn example() -> Result<(), farcall::AddressError> {
/// let retried = MethodConfig::new().with_retries(RetryPolicy::new().with_max_attempts(4));
/// let hedged = HedgingPolicy::new().with_hedging_delay(Duration::from_millis(20));
/// let config = ServiceConfig::new()
///     .with_default(retried)
///     .with_method("/shop.Catalog/Get", MethodConfig::new().with_hedging(hedged));
/// let channel =
///     farcall::Channel::builder("auto://shop:7000")?.service_config(config).connect_lazy();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceConfig {
    default: Option<MethodConfig>,
    services: HashMap<String, MethodConfig>,
    /// By path, with its first slash.
    methods: HashMap<String, MethodConfig>,
    budget: RetryBudget,
}

impl ServiceConfig {
    /// A config that sets nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what applies to methods that nothing else names.
    #[must_use]
    pub fn with_default(mut self, config: MethodConfig) -> Self {
        self.default = Some(config);
        self
    }

    /// Sets what applies to the methods of a service, by its full name: `shop.Catalog`.
    #[must_use]
    pub fn with_service(mut self, name: impl Into<String>, config: MethodConfig) -> Self {
        self.services.insert(name.into(), config);
        self
    }

    /// Sets what applies to a method, by its full name: `/shop.Catalog/Get`, with its first slash
    /// or without.
    #[must_use]
    pub fn with_method(mut self, name: impl Into<String>, config: MethodConfig) -> Self {
        let name = name.into();
        let path = if name.starts_with('/') { name } else { format!("/{name}") };
        self.methods.insert(path, config);
        self
    }

    /// Sets how many attempts beside the first ones the channel may make; a fifth of its calls by
    /// default. All methods share it.
    #[must_use]
    pub fn with_budget(mut self, budget: RetryBudget) -> Self {
        self.budget = budget;
        self
    }

    /// How many attempts beside the first ones the channel may make.
    #[must_use]
    pub fn budget(&self) -> RetryBudget {
        self.budget
    }

    /// Returns the settings of the method at `path`: its own, else its service's, else the default.
    #[must_use]
    pub fn of(&self, path: &str) -> Option<&MethodConfig> {
        let own = self.methods.get(path);
        let service = || self.services.get(split_path(path).0);
        own.or_else(service).or(self.default.as_ref())
    }

    /// The methods and services with settings of their own: methods by their paths, which begin
    /// with a slash, and services by their full names.
    pub(in crate::client) fn names(&self) -> impl Iterator<Item = &str> {
        self.methods.keys().chain(self.services.keys()).map(String::as_str)
    }

    /// Whether no method has any settings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.default.is_none() && self.services.is_empty() && self.methods.is_empty()
    }

    /// Whether a method or service of that name has settings of its own.
    #[cfg(feature = "service-config")]
    pub(super) fn has(&self, name: &Name) -> bool {
        match name {
            Name::Default => self.default.is_some(),
            Name::Service(name) => self.services.contains_key(name),
            Name::Method(path) => self.methods.contains_key(path),
        }
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let configs = self.methods.values().chain(self.services.values());
        configs.chain(&self.default).try_for_each(MethodConfig::check)?;
        let names = self.methods.keys().map(|path| (path.as_str(), path.matches('/').count() == 2));
        let services = self.services.keys().map(|name| (name.as_str(), !name.contains('/')));
        for (name, is_valid) in names.chain(services) {
            let rule = "a service's full name, as shop.Catalog, or a method's, as \
                        /shop.Catalog/Get";
            ensure(is_valid && name.len() > 2, "service_config.name", name, rule)?;
        }
        self.budget.check()
    }
}

/// Whose settings a part of a service config has.
#[cfg(feature = "service-config")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    Default,
    Service(String),
    /// With its first slash.
    Method(String),
}

/// How a call is repeated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Repetition {
    /// Never, beyond what the channel does by itself.
    Never,
    /// After a failure.
    Retries(RetryPolicy),
    /// Before one.
    Hedging(HedgingPolicy),
}

/// What applies to the calls of a method.
#[derive(Debug, Clone, PartialEq)]
pub struct MethodConfig {
    timeout: Option<Duration>,
    is_wait_for_ready: bool,
    is_idempotent: bool,
    max_request_len: Option<usize>,
    max_response_len: Option<usize>,
    compress_from: Option<u32>,
    repetition: Repetition,
}

impl Default for MethodConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl MethodConfig {
    /// A config that sets nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            timeout: None,
            is_wait_for_ready: false,
            is_idempotent: false,
            max_request_len: None,
            max_response_len: None,
            compress_from: None,
            repetition: Repetition::Never,
        }
    }

    /// Ends calls after this, all attempts together, whatever they set that is later. From 1 ms to
    /// a year.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Lets calls wait while no server is connected, unless they say otherwise
    /// ([`crate::Readiness`]).
    #[must_use]
    pub const fn with_wait_for_ready(mut self, waits: bool) -> Self {
        self.is_wait_for_ready = waits;
        self
    }

    /// Says that the method may be called twice, though its `.proto` does not. A call that may have
    /// been executed is then repeated.
    #[must_use]
    pub const fn with_idempotent(mut self, is_idempotent: bool) -> Self {
        self.is_idempotent = is_idempotent;
        self
    }

    /// Refuses requests that are longer, in bytes of their encoding.
    #[must_use]
    pub const fn with_max_request_len(mut self, bytes: usize) -> Self {
        self.max_request_len = Some(bytes);
        self
    }

    /// Refuses responses that are longer, in bytes of their encoding.
    #[must_use]
    pub const fn with_max_response_len(mut self, bytes: usize) -> Self {
        self.max_response_len = Some(bytes);
        self
    }

    /// Compresses requests from that length on, in bytes of their encoding, where the server
    /// accepts it; `u32::MAX` compresses none. A stub's own `compress_from` comes before it, and
    /// the channel's [`Compression`](crate::Compression) behind it. At least 1.
    #[must_use]
    pub const fn with_compress_from(mut self, bytes: u32) -> Self {
        self.compress_from = Some(bytes);
        self
    }

    /// Makes calls again that have failed. It takes the place of a hedging policy.
    #[must_use]
    pub const fn with_retries(mut self, policy: RetryPolicy) -> Self {
        self.repetition = Repetition::Retries(policy);
        self
    }

    /// Makes calls several times, side by side. It takes the place of a retry policy.
    #[must_use]
    pub const fn with_hedging(mut self, policy: HedgingPolicy) -> Self {
        self.repetition = Repetition::Hedging(policy);
        self
    }

    /// After what calls end.
    #[must_use]
    pub const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether calls wait while no server is connected.
    #[must_use]
    pub const fn is_wait_for_ready(&self) -> bool {
        self.is_wait_for_ready
    }

    /// Whether the method may be called twice, though its `.proto` does not say so.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    /// How calls are repeated.
    #[must_use]
    pub const fn repetition(&self) -> &Repetition {
        &self.repetition
    }

    /// The limits on its messages, and from where on they are compressed, if it says anything.
    pub(super) fn message_limits(&self) -> Option<MessageLimits> {
        let (request, response) = (self.max_request_len, self.max_response_len);
        let mut limits = MessageLimits::NONE;
        if let Some(bytes) = request {
            limits = limits.with_max_encoding(bytes);
        }
        if let Some(bytes) = response {
            limits = limits.with_max_decoding(bytes);
        }
        if let Some(bytes) = self.compress_from {
            limits = limits.with_compress_from(bytes as usize);
        }
        (limits != MessageLimits::NONE).then_some(limits)
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        if let Some(timeout) = self.timeout {
            check_timeout("service_config.timeout", timeout)?;
        }
        if let Some(bytes) = self.compress_from {
            check_min_len("service_config.compress_from", bytes)?;
        }
        match &self.repetition {
            Repetition::Never => Ok(()),
            Repetition::Retries(policy) => policy.check(),
            Repetition::Hedging(policy) => policy.check(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_config_applies_and_whole() {
        let seconds = |count| MethodConfig::new().with_timeout(Duration::from_secs(count));
        let config = ServiceConfig::new()
            .with_service("shop.Cart", seconds(2))
            .with_method("shop.Cart/Get", seconds(1));
        let timeout = |config: &ServiceConfig, path| {
            config.of(path).and_then(MethodConfig::timeout).map(|it| it.as_secs())
        };
        assert_eq!(timeout(&config, "/shop.Cart/Get"), Some(1));
        assert_eq!(timeout(&config, "/shop.Cart/Put"), Some(2));
        assert_eq!(timeout(&config, "/shop.Carts/Get"), None);
        let config = config.with_default(seconds(3));
        assert_eq!(timeout(&config, "/shop.Carts/Get"), Some(3));
        assert_eq!(config.check(), Ok(()));
    }

    #[test]
    fn names_and_values_are_checked() {
        let plain = MethodConfig::new;
        let of_method = |name: &str| ServiceConfig::new().with_method(name, plain()).check();
        for name in ["", "/", "Get", "/shop.Cart", "/shop/Cart/Get"] {
            assert_eq!(of_method(name).unwrap_err().name(), "service_config.name", "{name}");
        }
        let service = ServiceConfig::new().with_service("shop.Cart/Get", plain()).check();
        assert_eq!(service.unwrap_err().name(), "service_config.name");
        let retries = plain().with_retries(RetryPolicy::new().with_max_attempts(1));
        let config = ServiceConfig::new().with_default(retries);
        assert_eq!(config.check().unwrap_err().name(), "retry.max_attempts");
        let config = ServiceConfig::new().with_default(plain().with_timeout(Duration::ZERO));
        assert_eq!(config.check().unwrap_err().name(), "service_config.timeout");
    }
}
