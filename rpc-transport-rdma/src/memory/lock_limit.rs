//! The limit on memory that this process may pin.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// The present soft limit in bytes; `None` when there is none or it cannot be asked.
pub(crate) fn lock_limit_bytes() -> Option<u64> {
    let (soft, _hard) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}
