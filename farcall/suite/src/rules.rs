//! The rules that connections under test have in common.
//!
//! `FARCALL_RKEY_SCOPE` says which scope of keys they ask for: `auto`, as by default, `window` or
//! `region`. Windows are for hardware: on Soft-RoCE a connection that uses them stalls now and then,
//! as `docs/adr/0005-keys-reach-one-frame-where-windows-work.md` tells.

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
    let config = config.with_rdma(scoped(farcall::RdmaConfig::default()));
    config
}

/// The same rules of RDMA with the scope of keys under test.
///
/// # Panics
///
/// When the variable names none.
#[cfg(feature = "rdma")]
#[must_use]
pub fn scoped(mut rdma: farcall::RdmaConfig) -> farcall::RdmaConfig {
    if let Ok(word) = std::env::var("FARCALL_RKEY_SCOPE") {
        let scope = word.parse::<farcall::RkeyScope>();
        rdma.rkey_scope = scope.unwrap_or_else(|error| panic!("FARCALL_RKEY_SCOPE: {error}"));
    }
    rdma
}
