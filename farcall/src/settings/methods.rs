//! Settings of a target's calls by method: keys, and the builder's values.

use std::time::Duration;

use rpc_core::InvalidSetting;
use rpc_core::client::attempts::ServiceConfig;
use rpc_core::overlays::{RetryBudgetOverlay, compressed_from};
use rpc_core::policy::retry_config::{AS_A_LOAD, ATTEMPTS};
use rpc_core::settings::{
    COMPUTED, Checked, NO_TIME, Named, PERIOD, SERVED, Settings as _, TIMEOUT, define_overlay,
};

use super::invalid::{Conflicts, Invalid, set};
use super::value::CodeName;
use crate::retry::{Codes, HedgingPolicy, MethodConfig, RetryBudget, RetryPolicy};

const RETRY: RetryPolicy = RetryPolicy::DEFAULTS;
const HEDGING: HedgingPolicy = HedgingPolicy::DEFAULTS;

define_overlay! {
    /// Calls that failed are made again, if their method is idempotent or no handler has seen them.
    pub(super) RetryTable of RetryPolicy {
        /// Attempts in all, from 2 to 5; "off" makes none but the first.
        max_attempts: Option<u32> as CountOrOff = "\"off\"", Live, ATTEMPTS, AS_A_LOAD;
        /// The delay before the second attempt, by a fifth more or less.
        initial_backoff: Duration as Plain = "\"100ms\"", Live, TIMEOUT, NO_TIME;
        /// Delays grow up to this.
        max_backoff: Duration as Plain = "\"1s\"", Live, TIMEOUT, NO_TIME;
        /// The factor from one delay to the next.
        backoff_multiplier: f64 as Plain = "2.0", CodeOnly,
            Checked(|it: &f64| RETRY.with_backoff_multiplier(*it).check()), "";
        /// After which statuses.
        retryable_codes: Vec<CodeName> as Plain = "[\"UNAVAILABLE\"]", Live,
            Checked(|it: &Vec<CodeName>| RETRY.with_retryable_codes(codes(it)).check()), "";
    } tables {}
}

define_overlay! {
    /// Calls are made several times, side by side, if their method is idempotent. The first answer
    /// counts.
    pub(super) HedgingTable of HedgingPolicy {
        /// Attempts in all, from 2 to 5; "off" makes none but the first.
        max_attempts: Option<u32> as CountOrOff = "\"off\"", Live, ATTEMPTS, AS_A_LOAD;
        /// From one attempt to the next.
        hedging_delay: Duration as Plain = "\"100ms\"", Live, PERIOD, COMPUTED;
        /// The statuses after which the other attempts go on.
        non_fatal_codes: Vec<CodeName> as Plain = "[\"UNAVAILABLE\"]", Live,
            Checked(|it: &Vec<CodeName>| HEDGING.with_non_fatal_codes(codes(it)).check()), "";
    } tables {}
}

define_overlay! {
    /// Settings of a method, "/shop.Catalog/Get", of a service, "shop.Catalog", or of all that no
    /// other entry names, "*".
    pub(super) MethodTable of MethodConfig {
        /// After this calls end, all attempts together.
        timeout: Option<Duration> as OrOff = "\"off\"", Live, TIMEOUT, NO_TIME;
        /// Makes calls wait while no server can be reached.
        wait_for_ready: bool as Plain = "false", Live, .., "";
        /// Says that the method may be called twice, though its .proto does not.
        idempotent: bool as Plain = "false", Live, .., "";
        /// The longest request, in bytes of its encoding; "off" leaves that to the limits.
        max_request_len: Option<u64> as SizeOrOff = "\"off\"", Live, 1.., SERVED;
        /// The longest response, in the same way.
        max_response_len: Option<u64> as SizeOrOff = "\"off\"", Live, 1.., SERVED;
        /// From which length on requests are compressed, where the server accepts it; "off" is
        /// never. Unless it is set, the target's `compression.min_len` says.
        compress_from: Option<u64> as SizeOrOff = "\"off\"", Live, 1.., SERVED;
    } tables {
        retry: RetryTable = "retry", Live;
        hedging: HedgingTable = "hedging", Live;
    }
}

impl RetryTable {
    fn policy(&self) -> Result<Option<RetryPolicy>, InvalidSetting> {
        let others = [
            self.initial_backoff.is_some(),
            self.max_backoff.is_some(),
            self.backoff_multiplier.is_some(),
            self.retryable_codes.is_some(),
        ];
        let count = match self.max_attempts {
            Some(Some(count)) => count,
            Some(None) => return Ok(None),
            None => return without_effect("retry.max_attempts", others.contains(&true)),
        };
        let policy = RETRY.with_max_attempts(count);
        set! { policy,
            self.initial_backoff => with_initial_backoff;
            self.max_backoff => with_max_backoff;
            self.backoff_multiplier => with_backoff_multiplier;
            self.retryable_codes.as_deref().map(codes) => with_retryable_codes;
        }
        policy.check().map(|()| Some(policy))
    }
}

impl HedgingTable {
    fn policy(&self) -> Result<Option<HedgingPolicy>, InvalidSetting> {
        let others = self.hedging_delay.is_some() || self.non_fatal_codes.is_some();
        let count = match self.max_attempts {
            Some(Some(count)) => count,
            Some(None) => return Ok(None),
            None => return without_effect("hedging.max_attempts", others),
        };
        let policy = HEDGING.with_max_attempts(count);
        set! { policy,
            self.hedging_delay => with_hedging_delay;
            self.non_fatal_codes.as_deref().map(codes) => with_non_fatal_codes;
        }
        policy.check().map(|()| Some(policy))
    }
}

/// No policy, which is an error where other keys of its table are set: they would do nothing.
fn without_effect<T>(name: &'static str, has_others: bool) -> Result<Option<T>, InvalidSetting> {
    match has_others {
        false => Ok(None),
        true => {
            let rule = "from 2 to 5, or \"off\": the other settings of its table do nothing alone";
            Err(InvalidSetting::new(name, format_args!("not set"), rule))
        }
    }
}

fn codes(names: &[CodeName]) -> Codes {
    names.iter().map(|name| name.0).collect()
}

impl MethodTable {
    /// Makes the rules for the method or service of that name.
    fn config(&self, name: &str, all: &mut Conflicts) -> MethodConfig {
        let len = |it: Option<u64>| it.map(|it| usize::try_from(it).unwrap_or(usize::MAX));
        let config = MethodConfig::default();
        set! { config,
            self.timeout.flatten() => with_timeout;
            self.wait_for_ready => with_wait_for_ready;
            self.idempotent => with_idempotent;
            self.max_request_len.and_then(len) => with_max_request_len;
            self.max_response_len.and_then(len) => with_max_response_len;
            self.compress_from.map(compressed_from) => with_compress_from;
        }
        let (mut config, tables) = (config, ["methods", name]);
        config.retry = all.value_within(&tables, self.retry.policy());
        config.hedging = all.value_within(&tables, self.hedging.policy());
        // Each value is in its range. Two of them may exclude each other.
        all.value_within(&tables, config.check().map(|()| config))
    }
}

/// The service config of a target.
pub(super) fn service_config(
    methods: &Named<MethodTable>,
    budget: &RetryBudgetOverlay,
    conflicts: &mut Conflicts,
) -> ServiceConfig {
    let mut all = ServiceConfig::new().with_budget(RetryBudget::resolve(budget));
    for (name, table) in &methods.0 {
        let config = table.config(name, conflicts);
        match MethodConfig::check_name(name) {
            Ok(()) => all = all.with_method(name, config),
            Err(error) => conflicts.0.push(Invalid {
                key: vec!["methods".to_owned(), name.clone()],
                value: error.value().to_owned(),
                rule: error.rule().to_owned(),
            }),
        }
    }
    all
}
