//! The policies of retries and hedging, as a program or a service config sets them.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use tonic::Code;

use crate::settings::{
    InvalidSetting, check, check_period, check_timeout, define_settings, ensure,
};

/// The most attempts at one call that a policy may ask for, as in gRPC.
pub const MAX_ATTEMPTS: u32 = 5;

/// The range of attempts at one call.
pub const ATTEMPTS: RangeInclusive<u32> = 2..=MAX_ATTEMPTS;

/// The reason for it.
pub const AS_A_LOAD: &str = ": one is no retry, and more would flood the server";

/// The codes with their names in gRPC's specification, each at the index that is its number.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Attempts at a call one after another, until one succeeds.
///
/// A call is made again only when that can do no harm: its method is idempotent by its `.proto`
/// (`idempotency_level`) or by [`MethodConfig::with_idempotent`], or no handler has seen the call
/// ([`crate::NotExecuted`]). A call whose requests are a stream is never made again, and one whose
/// responses are a stream not after its first answer.
///
/// [`MethodConfig::with_idempotent`]: crate::client::attempts::MethodConfig::with_idempotent
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Attempts in all, the first among them. 3 by default; from 2 to 5.
    pub max_attempts: u32,
    /// The delay before the second attempt. 100 ms by default; from 1 ms to a year.
    pub initial_backoff: Duration,
    /// Delays grow up to this. 1 s by default; from the initial delay to a year.
    pub max_backoff: Duration,
    /// The factor from one delay to the next. 2 by default; a finite number above 0.
    ///
    /// Each delay is longer or shorter by up to a fifth, at random.
    pub backoff_multiplier: f64,
    /// The codes after which the call is made again. `UNAVAILABLE` by default; at least one, and
    /// not `OK`.
    pub retryable_codes: Codes,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::DEFAULTS
    }
}

impl RetryPolicy {
    /// The default policy.
    pub const DEFAULTS: Self = Self {
        max_attempts: 3,
        initial_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(1),
        backoff_multiplier: 2.0,
        retryable_codes: Codes::NONE.with(Code::Unavailable),
    };

    /// Sets [`max_attempts`](Self::max_attempts).
    #[must_use]
    pub const fn with_max_attempts(mut self, count: u32) -> Self {
        self.max_attempts = count;
        self
    }

    /// Sets [`initial_backoff`](Self::initial_backoff).
    #[must_use]
    pub const fn with_initial_backoff(mut self, delay: Duration) -> Self {
        self.initial_backoff = delay;
        self
    }

    /// Sets [`max_backoff`](Self::max_backoff).
    #[must_use]
    pub const fn with_max_backoff(mut self, delay: Duration) -> Self {
        self.max_backoff = delay;
        self
    }

    /// Sets [`backoff_multiplier`](Self::backoff_multiplier).
    #[must_use]
    pub const fn with_backoff_multiplier(mut self, factor: f64) -> Self {
        self.backoff_multiplier = factor;
        self
    }

    /// Sets [`retryable_codes`](Self::retryable_codes).
    #[must_use]
    pub fn with_retryable_codes(mut self, codes: impl Into<Codes>) -> Self {
        self.retryable_codes = codes.into();
        self
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        check_attempts("retry.max_attempts", self.max_attempts)?;
        check_timeout("retry.initial_backoff", self.initial_backoff)?;
        check_timeout("retry.max_backoff", self.max_backoff)?;
        ensure(
            self.max_backoff >= self.initial_backoff,
            "retry.max_backoff",
            self.max_backoff,
            "at least the initial backoff",
        )?;
        ensure(
            self.backoff_multiplier > 0.0 && self.backoff_multiplier.is_finite(),
            "retry.backoff_multiplier",
            self.backoff_multiplier,
            "a finite number above 0",
        )?;
        ensure(
            !self.retryable_codes.is_empty() && !self.retryable_codes.contains(Code::Ok),
            "retry.retryable_codes",
            self.retryable_codes,
            "at least one code, and not OK",
        )
    }
}

/// Attempts at a call side by side: one more after each delay until the first succeeds, which ends
/// the others.
///
/// Only calls of idempotent methods are hedged: by their `.proto` (`idempotency_level`) or by
/// [`MethodConfig::with_idempotent`]. A call whose requests are a stream is not, and for one whose
/// responses are a stream the first answer decides.
///
/// [`MethodConfig::with_idempotent`]: crate::client::attempts::MethodConfig::with_idempotent
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgingPolicy {
    /// Attempts in all, the first among them. 2 by default; from 2 to 5.
    pub max_attempts: u32,
    /// From one attempt to the next. 100 ms by default; zero sends all at once. At most a year.
    ///
    /// The 95th percentile of the method's latency hedges one call in twenty.
    pub hedging_delay: Duration,
    /// The codes after which the other attempts go on, and the next one is sent at once; any other
    /// one ends the call. `UNAVAILABLE` by default; not `OK`.
    pub non_fatal_codes: Codes,
}

impl Default for HedgingPolicy {
    fn default() -> Self {
        Self::DEFAULTS
    }
}

impl HedgingPolicy {
    /// The default policy.
    pub const DEFAULTS: Self = Self {
        max_attempts: 2,
        hedging_delay: Duration::from_millis(100),
        non_fatal_codes: Codes::NONE.with(Code::Unavailable),
    };

    /// Sets [`max_attempts`](Self::max_attempts).
    #[must_use]
    pub const fn with_max_attempts(mut self, count: u32) -> Self {
        self.max_attempts = count;
        self
    }

    /// Sets [`hedging_delay`](Self::hedging_delay).
    #[must_use]
    pub const fn with_hedging_delay(mut self, delay: Duration) -> Self {
        self.hedging_delay = delay;
        self
    }

    /// Sets [`non_fatal_codes`](Self::non_fatal_codes).
    #[must_use]
    pub fn with_non_fatal_codes(mut self, codes: impl Into<Codes>) -> Self {
        self.non_fatal_codes = codes.into();
        self
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// The first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        check_attempts("hedging.max_attempts", self.max_attempts)?;
        check_period("hedging.hedging_delay", self.hedging_delay)?;
        ensure(
            !self.non_fatal_codes.contains(Code::Ok),
            "hedging.non_fatal_codes",
            self.non_fatal_codes,
            "codes of failures, and not OK",
        )
    }
}

define_settings! {
    /// Attempts beside the first ones that the calls of a target may have.
    ///
    /// A budget by time: a share of the calls of the last seconds, and some more a second in any
    /// case. [`throttling`](Self::throttling) is another rule.
    RetryBudget, RetryBudgetOverlay, "retry_budget", [const], derive(Copy, PartialEq) {
        /// For each call under a policy.
        ///
        /// 0.2 by default, Finagle's value; from 0 to 10.
        ratio, with_ratio: f32 as Plain = 0.2, Live, 0.0..=10.0, "";
        /// In a second in any case.
        ///
        /// It is for channels with few calls. 10 by default, Finagle's value; at most 1,000,000.
        min_per_second, with_min_per_second: u32 as Plain = 10, Live, ..=1_000_000, "";
        /// Time for which a call counts.
        ///
        /// 10 s by default, Finagle's value; from 1 s to 60 s.
        period, with_period: Duration as Plain = Duration::from_secs(10), CodeOnly,
            Duration::from_secs(1)..=Duration::from_secs(60), "";
    } private {
        /// gRPC's rule, in place of the others.
        tokens: Option<Throttling> = None;
    }
}

impl RetryBudget {
    /// gRPC's retry throttling: a failure takes a token, a success brings `token_ratio` of one, and
    /// there are no repetitions while no more than half of `max_tokens` are left.
    ///
    /// `max_tokens` are from 1 to 1,000. The ratio is above 0 and at most 1,000; decimal places
    /// beyond the third are cut off.
    #[must_use]
    pub const fn throttling(max_tokens: u32, token_ratio: f64) -> Self {
        Self { tokens: Some(Throttling { max_tokens, token_ratio }), ..Self::DEFAULTS }
    }

    /// Returns the rule of gRPC, if it is that one.
    pub(crate) fn tokens(&self) -> Option<Throttling> {
        self.tokens
    }

    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    ///
    /// Returns the first that is not.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()?;
        self.tokens.map_or(Ok(()), |tokens| tokens.check())
    }
}

/// The numbers of [`RetryBudget::throttling`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttling {
    /// Tokens at the beginning, and at most.
    pub(crate) max_tokens: u32,
    /// Tokens that a success brings.
    pub(crate) token_ratio: f64,
}

impl Throttling {
    fn check(&self) -> Result<(), InvalidSetting> {
        let (tokens, ratio) = (self.max_tokens, self.token_ratio);
        ensure(
            (1..=1000).contains(&tokens),
            "retry_throttling.max_tokens",
            tokens,
            "from 1 to 1000",
        )?;
        ensure(
            (0.001..=1000.0).contains(&ratio),
            "retry_throttling.token_ratio",
            ratio,
            "from 0.001 to 1000",
        )
    }
}

/// A set of status codes, as a policy names them.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Codes(u32);

impl Codes {
    /// No code.
    pub const NONE: Self = Self(0);

    /// The same set with `code` in it.
    #[must_use]
    pub const fn with(self, code: Code) -> Self {
        Self(self.0 | 1 << code as u32)
    }

    /// Returns true if `code` is in it.
    #[must_use]
    pub const fn contains(self, code: Code) -> bool {
        self.0 & 1 << code as u32 != 0
    }

    /// Returns true if no code is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Code> for Codes {
    fn from_iter<I: IntoIterator<Item = Code>>(codes: I) -> Self {
        codes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl<const N: usize> From<[Code; N]> for Codes {
    fn from(codes: [Code; N]) -> Self {
        codes.into_iter().collect()
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = (0..).zip(NAMES);
        f.debug_list()
            .entries(numbers.filter(|(number, _)| self.0 & 1 << number != 0).map(|(_, name)| name))
            .finish()
    }
}

fn check_attempts(name: &'static str, count: u32) -> Result<(), InvalidSetting> {
    check(name, &count, ATTEMPTS, AS_A_LOAD)
}

/// The code of a name such as `UNAVAILABLE`, in capitals or not.
#[must_use]
pub fn code_of_name(name: &str) -> Option<Code> {
    let number = (0..).zip(NAMES).find(|(_, it)| it.eq_ignore_ascii_case(name));
    number.map(|(number, _)| Code::from_i32(number))
}

#[cfg(test)]
#[path = "retry_config_tests.rs"]
mod tests;
