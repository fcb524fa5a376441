//! The errors of creating and configuring verbs objects.
//!
//! Not here: failures of single work requests, which are completions, and of posting.

use std::io;

/// Why a verbs object could not be made, changed or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The system refused an operation.
    #[error("cannot {operation}")]
    System {
        /// What was tried, as a verb phrase.
        operation: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Memory could not be pinned.
    #[error(
        "cannot register {len} bytes: out of lockable memory; RLIMIT_MEMLOCK is {}; raise it with \
         `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit or a memlock line in \
         /etc/security/limits.conf, or configure smaller pools",
        describe_limit(*limit_bytes)
    )]
    MemoryLock {
        /// Length of the registration that failed.
        len: usize,
        /// The limit at that moment; `None` when there is none.
        limit_bytes: Option<u64>,
    },
    /// There is no device of this name.
    #[error("no RDMA device named {name:?}; found: {found:?}")]
    NoSuchDevice {
        /// The name that was looked for.
        name: String,
        /// The names there are.
        found: Vec<String>,
    },
    /// Something is more than a device or a format allows.
    #[error("{what} of {asked} exceeds the limit of {max}")]
    LimitExceeded {
        /// What was asked for.
        what: &'static str,
        /// How much of it.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// The completion queue has no room for the completions that a new queue could produce.
    #[error(
        "the completion queue has {free} of {capacity} entries left and {asked} more are needed"
    )]
    CompletionQueueFull {
        /// Entries needed.
        asked: u32,
        /// Entries left.
        free: u32,
        /// Entries in all.
        capacity: u32,
    },
    /// Objects of two devices or providers were mixed.
    #[error("{what} belongs to another device")]
    ForeignObject {
        /// The object that does not belong.
        what: &'static str,
    },
    /// The library that talks to devices cannot be used.
    #[error("{reason}")]
    Library {
        /// What is missing, and what to install.
        reason: String,
        /// Whether the library is not there at all.
        is_missing: bool,
    },
    /// An event was waited for outside a tokio runtime.
    #[error("waiting for completion events needs a tokio runtime")]
    NoRuntime,
}

impl VerbsError {
    /// A failed operation with what the system said.
    #[must_use]
    pub fn system(operation: &'static str, source: io::Error) -> Self {
        Self::System { operation, source }
    }

    /// A failed registration: `ENOMEM` is the limit on locked memory, everything else is as it is.
    #[must_use]
    pub fn registration(source: io::Error, len: usize, limit_bytes: Option<u64>) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOMEM) => Self::MemoryLock { len, limit_bytes },
            _ => Self::system("register memory", source),
        }
    }
}

fn describe_limit(limit_bytes: Option<u64>) -> String {
    match limit_bytes {
        Some(bytes) => format!("{bytes} bytes (`ulimit -l` shows {})", bytes / 1024),
        None => "unlimited, so the device or the machine is out of memory".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_lockable_memory_names_the_limit_and_how_to_raise_it() {
        let enomem = io::Error::from_raw_os_error(libc::ENOMEM);
        let text = VerbsError::registration(enomem, 1 << 20, Some(8 << 20)).to_string();
        for part in ["1048576", "RLIMIT_MEMLOCK is 8388608", "shows 8192", "ulimit -l unlimited"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn other_registration_errors_keep_their_source() {
        let error = VerbsError::registration(io::Error::from_raw_os_error(libc::EINVAL), 1, None);
        assert!(matches!(error, VerbsError::System { operation: "register memory", .. }));
    }
}
