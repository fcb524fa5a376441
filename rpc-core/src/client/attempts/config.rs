//! The rules for the calls of a method: gRPC's service config, as a value; and the budget of
//! attempts beside the first ones that a channel may still make.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tower::retry::budget::{Budget as _, TpsBudget};

use crate::call::options::MessageLimits;
use crate::compression::check_min_len;
use crate::method::{Method, split_path};
use crate::metrics::{RetryKind, retry_denied};
use crate::policy::retry::Tokens;
use crate::policy::retry_config::{HedgingPolicy, RetryBudget, RetryPolicy};
use crate::settings::{InvalidSetting, check_timeout, ensure};

/// The name for all methods that no other one fits.
const ALL: &str = "*";

/// Settings by method, as gRPC's service config has them: timeouts, retries and hedging.
///
/// Of several that fit a method, one applies, and whole: its own, else its service's, else that of
/// `*`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceConfig {
    /// By the path of a method with its first slash, by a service's full name, or by `*`.
    methods: HashMap<String, MethodConfig>,
    budget: RetryBudget,
}

impl ServiceConfig {
    /// A config that sets nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what applies to a method, `/shop.Catalog/Get` with its first slash or without, to the
    /// methods of a service, `shop.Catalog`, or to all that nothing else names, `*`.
    #[must_use]
    pub fn with_method(mut self, name: impl Into<String>, config: MethodConfig) -> Self {
        let name = name.into();
        // The names of methods are compared with paths, which begin with a slash.
        let is_bare = name.contains('/') && !name.starts_with('/');
        let name = if is_bare { format!("/{name}") } else { name };
        self.methods.insert(name, config);
        self
    }

    /// Sets how many attempts beside the first ones the channel may make; a fifth of its calls by
    /// default. All methods share it.
    #[must_use]
    pub fn with_budget(mut self, budget: RetryBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Returns the budget of the channel's attempts beside the first ones.
    #[must_use]
    pub fn budget(&self) -> RetryBudget {
        self.budget
    }

    /// Returns the settings of the method at `path`: its own, else its service's, else those of
    /// `*`.
    #[must_use]
    pub fn of(&self, path: &str) -> Option<&MethodConfig> {
        let own = self.methods.get(path);
        let service = || self.methods.get(split_path(path).0);
        own.or_else(service).or_else(|| self.methods.get(ALL))
    }

    /// The methods and services with settings of their own: methods by their paths, which begin
    /// with a slash, and services by their full names.
    pub(in crate::client) fn names(&self) -> impl Iterator<Item = &str> {
        self.methods.keys().map(String::as_str).filter(|name| *name != ALL)
    }

    /// Returns true if no method has any settings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.methods.is_empty()
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        for (name, config) in &self.methods {
            MethodConfig::check_name(name)?;
            config.check()?;
        }
        self.budget.check()
    }
}

/// Settings of the calls of a method.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct MethodConfig {
    /// Time after which calls end, all attempts together, whatever they set that is later. None by
    /// default; from 1 ms to a year.
    pub timeout: Option<Duration>,
    /// Lets calls wait while no server is connected, unless they say otherwise
    /// ([`crate::Readiness`]). Off by default.
    pub wait_for_ready: bool,
    /// Says that the method may be called twice, though its `.proto` does not. A call that may have
    /// been executed is then repeated. Off by default.
    pub idempotent: bool,
    /// Longest request, in bytes of its encoding. None by default.
    pub max_request_len: Option<usize>,
    /// Longest response, in bytes of its encoding. None by default.
    pub max_response_len: Option<usize>,
    /// Shortest request that is compressed, in bytes of its encoding, where the server accepts it;
    /// `u32::MAX` compresses none. At least 1. A stub's own `compress_from` comes before it, and
    /// the channel's [`Compression`](crate::Compression) behind it.
    pub compress_from: Option<u32>,
    /// Attempts one after another. None by default; not together with `hedging`.
    pub retry: Option<RetryPolicy>,
    /// Attempts side by side. None by default; not together with `retry`.
    pub hedging: Option<HedgingPolicy>,
}

impl MethodConfig {
    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets [`wait_for_ready`](Self::wait_for_ready).
    #[must_use]
    pub const fn with_wait_for_ready(mut self, waits: bool) -> Self {
        self.wait_for_ready = waits;
        self
    }

    /// Sets [`idempotent`](Self::idempotent).
    #[must_use]
    pub const fn with_idempotent(mut self, is_idempotent: bool) -> Self {
        self.idempotent = is_idempotent;
        self
    }

    /// Sets [`max_request_len`](Self::max_request_len).
    #[must_use]
    pub const fn with_max_request_len(mut self, bytes: usize) -> Self {
        self.max_request_len = Some(bytes);
        self
    }

    /// Sets [`max_response_len`](Self::max_response_len).
    #[must_use]
    pub const fn with_max_response_len(mut self, bytes: usize) -> Self {
        self.max_response_len = Some(bytes);
        self
    }

    /// Sets [`compress_from`](Self::compress_from).
    #[must_use]
    pub const fn with_compress_from(mut self, bytes: u32) -> Self {
        self.compress_from = Some(bytes);
        self
    }

    /// Sets [`retry`](Self::retry).
    #[must_use]
    pub const fn with_retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Sets [`hedging`](Self::hedging).
    #[must_use]
    pub const fn with_hedging(mut self, policy: HedgingPolicy) -> Self {
        self.hedging = Some(policy);
        self
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
        // `None` saves each call an insertion into its extensions.
        (limits != MessageLimits::NONE).then_some(limits)
    }

    /// Checks the name that a config is for: `/shop.Catalog/Get`, with its first slash or without,
    /// `shop.Catalog`, or `*`.
    ///
    /// # Errors
    ///
    /// Returns an error if it is none of them.
    pub fn check_name(name: &str) -> Result<(), InvalidSetting> {
        let method = name.strip_prefix('/').unwrap_or(name).split_once('/');
        let is_valid = match method {
            Some((service, method)) => {
                !service.is_empty() && !method.is_empty() && !method.contains('/')
            }
            // `/shop.Catalog` is neither: a service has no slash, and a method has two.
            None => !name.is_empty() && !name.starts_with('/'),
        };
        let rule = "a service's full name, such as shop.Catalog, or a method's, such as \
                    /shop.Catalog/Get";
        ensure(is_valid, "methods", name, rule)
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        if let Some(timeout) = self.timeout {
            check_timeout("methods.timeout", timeout)?;
        }
        if let Some(bytes) = self.compress_from {
            check_min_len("methods.compress_from", bytes)?;
        }
        match (&self.retry, &self.hedging) {
            (Some(_), Some(hedging)) => Err(InvalidSetting::new(
                "hedging.max_attempts",
                hedging.max_attempts,
                "\"off\", since the method has retries: one or the other is possible",
            )),
            (Some(policy), None) => policy.check(),
            (None, Some(policy)) => policy.check(),
            (None, None) => Ok(()),
        }
    }
}

/// The remainder of a [`RetryBudget`].
pub(super) enum Budget {
    Rate(TpsBudget),
    Tokens(Tokens),
}

impl Budget {
    pub(super) fn new(budget: RetryBudget) -> Self {
        match budget.tokens() {
            None => {
                let RetryBudget { period, min_per_second, ratio, .. } = budget;
                Self::Rate(TpsBudget::new(period, min_per_second, ratio))
            }
            Some(rules) => Self::Tokens(Tokens::new(rules)),
        }
    }

    /// A call begins.
    pub(super) fn called(&self) {
        // gRPC's tokens count only the ends of attempts; the rate is a share of the calls.
        if let Self::Rate(rate) = self {
            rate.deposit();
        }
    }

    /// An attempt has ended, and says nothing against its server.
    pub(super) fn succeeded(&self) {
        if let Self::Tokens(tokens) = self {
            tokens.succeeded();
        }
    }

    /// An attempt has ended with a status that its policy names.
    pub(super) fn failed(&self) {
        if let Self::Tokens(tokens) = self {
            tokens.failed();
        }
    }

    /// Takes one attempt of a call of `method` from the budget, and counts it when there is none.
    pub(super) fn take_for(&self, method: &Method, kind: RetryKind) -> bool {
        let is_allowed = self.take();
        if !is_allowed {
            retry_denied(method, kind);
        }
        is_allowed
    }

    /// Takes the right to one attempt beside the first; false when there is none.
    fn take(&self) -> bool {
        match self {
            Self::Rate(rate) => rate.withdraw(),
            Self::Tokens(tokens) => tokens.allow(),
        }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(_) => f.write_str("Rate"),
            Self::Tokens(tokens) => tokens.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_config_applies_and_whole() {
        let seconds = |count| MethodConfig::default().with_timeout(Duration::from_secs(count));
        let config = ServiceConfig::new()
            .with_method("shop.Cart", seconds(2))
            .with_method("shop.Cart/Get", seconds(1));
        let timeout = |config: &ServiceConfig, path| {
            config.of(path).and_then(|config| config.timeout).map(|it| it.as_secs())
        };
        assert_eq!(timeout(&config, "/shop.Cart/Get"), Some(1));
        assert_eq!(timeout(&config, "/shop.Cart/Put"), Some(2));
        assert_eq!(timeout(&config, "/shop.Carts/Get"), None);
        let config = config.with_method("*", seconds(3));
        assert_eq!(timeout(&config, "/shop.Carts/Get"), Some(3));
        assert_eq!(config.check(), Ok(()));
        let mut names: Vec<_> = config.names().collect();
        names.sort_unstable();
        assert_eq!(names, ["/shop.Cart/Get", "shop.Cart"]);
    }

    #[test]
    fn names_and_values_are_checked() {
        let plain = MethodConfig::default;
        for name in ["", "/", "//", "*/", "/shop.Cart", "/shop.Cart/", "shop/Cart/Get"] {
            let error = MethodConfig::check_name(name).unwrap_err();
            assert_eq!(error.name(), "methods", "{name}");
            assert!(ServiceConfig::new().with_method(name, plain()).check().is_err(), "{name}");
        }
        for name in ["*", "Cart", "shop.Cart", "shop.Cart/Get", "/shop.Cart/Get"] {
            assert_eq!(ServiceConfig::new().with_method(name, plain()).check(), Ok(()), "{name}");
        }
        let wrong = plain().with_retry(RetryPolicy::default().with_max_attempts(1));
        assert_eq!(wrong.check().unwrap_err().name(), "retry.max_attempts");
        let wrong = plain().with_timeout(Duration::ZERO);
        assert_eq!(wrong.check().unwrap_err().name(), "methods.timeout");
        let both =
            plain().with_retry(RetryPolicy::default()).with_hedging(HedgingPolicy::default());
        let config = ServiceConfig::new().with_method("*", both);
        assert_eq!(config.check().unwrap_err().name(), "hedging.max_attempts");
    }
}
