//! Checks that a process may open as many descriptors as its connections need.

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit};

/// Descriptors of a process beside its connections: pipes, the reactor's, the runtime's.
const OTHERS: u64 = 64;

/// Sees to it that a server or a client can have `connections` of them. Workers raise their own
/// limit as far as the hard one allows.
///
/// # Errors
///
/// Returns an error if the hard limit is too low, with what to do.
pub(super) fn require(connections: usize) -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("asking for RLIMIT_NOFILE")?;
    let needed = connections as u64 + OTHERS;
    ensure!(
        hard >= needed,
        "{connections} connections take {needed} descriptors, and the hard limit is {hard}: raise \
         it with `ulimit -Hn {needed}` as root, or LimitNOFILE= of the service"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_named_with_its_remedy() {
        require(1).unwrap();
        let text = require(usize::MAX >> 1).err().map(|error| error.to_string());
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // Where there is no limit nothing is too much.
        assert_eq!(text.is_some(), hard < u64::MAX >> 1);
        assert!(text.is_none_or(|text| text.contains("ulimit -Hn")));
    }
}
