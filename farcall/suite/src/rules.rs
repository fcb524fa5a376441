//! The rules that connections under test have in common.
//!
//! `FARCALL_RKEY_SCOPE` says which scope of keys they ask for: `auto`, as by default, `window` or
//! `region`.

use farcall::Config;

use crate::Harness;

/// The default rules, with the suite's limits and the scope of keys under test.
///
/// # Panics
///
/// When the variable names no scope.
#[must_use]
pub fn config() -> Config {
    let config = Config::default().with_limits(Harness::limits());
    #[cfg(feature = "rdma")]
    let config = config.with_rkey_scope(rkey_scope());
    config
}

/// The scope of keys under test.
///
/// # Panics
///
/// When the variable names none.
#[cfg(feature = "rdma")]
#[must_use]
pub fn rkey_scope() -> farcall::RkeyScope {
    match std::env::var("FARCALL_RKEY_SCOPE") {
        Ok(word) => word.parse().unwrap_or_else(|error| panic!("FARCALL_RKEY_SCOPE: {error}")),
        Err(_) => farcall::RkeyScope::default(),
    }
}
