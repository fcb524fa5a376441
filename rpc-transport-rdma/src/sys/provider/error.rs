//! The errors of creating and configuring verbs objects.
//!
//! Not here: failures of single work requests, which are completions, and of posting.
//!
//! # Devices that were taken away
//!
//! After a hot unplug or a reset of the firmware the kernel tears a device from its users: it
//! destroys what they made, and answers every later command with `EIO`, those that destroy
//! included. An object that cannot be destroyed would have to be leaked with all the memory that
//! the device may use through it, up to a gigabyte each time. But such an object is gone already.
//!
//! `EIO` alone does not say so: a driver may answer a single command with it. So the device is
//! asked for something harmless, and counts as taken away when it answers that with `EIO` too. The
//! pages themselves are safe in any case: the kernel holds what it pinned until the device can
//! reach it no longer, whatever this process unmaps.
//!
//! The other way is deliberately not taken: `RDMAV_ALLOW_DISASSOC_DESTROY` would have libibverbs
//! free its own structures too, and forbids taking events while anything is destroyed, which other
//! tasks do. Here these structures stay allocated, a few KiB for each object, so that an event
//! which names one names memory that is there.

use std::io;

/// Why a verbs object could not be made, changed or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The system refused an operation.
    #[error("cannot {operation}")]
    System {
        /// The operation that failed, as a verb phrase.
        operation: &'static str,
        /// The system's error.
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
        /// The resource that was requested.
        what: &'static str,
        /// The requested amount.
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
        /// The missing library, and the package to install.
        reason: String,
        /// Set if the library is not there at all.
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

/// Returns true if an object is gone although destroying it failed with `error`. `ask` is a
/// harmless query to its device.
#[cfg(any(feature = "ibverbs", feature = "sim"))]
pub(crate) fn is_gone<T>(error: &VerbsError, ask: impl FnOnce() -> Result<T, VerbsError>) -> bool {
    is_io(error) && ask().is_err_and(|error| is_io(&error))
}

#[cfg(any(feature = "ibverbs", feature = "sim"))]
fn is_io(error: &VerbsError) -> bool {
    let VerbsError::System { source, .. } = error else { return false };
    io::Error::raw_os_error(source) == Some(libc::EIO)
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

    fn error(errno: i32) -> VerbsError {
        VerbsError::system("try", io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn an_object_is_gone_when_its_device_answers_nothing() {
        assert!(is_gone(&error(libc::EIO), || Err::<(), _>(error(libc::EIO))));
        assert!(!is_gone(&error(libc::EIO), || Ok(())), "the device is there");
        assert!(!is_gone(&error(libc::EIO), || Err::<(), _>(error(libc::EINVAL))));
        assert!(!is_gone(&error(libc::EBUSY), || Err::<(), _>(error(libc::EIO))));
        assert!(!is_gone(&VerbsError::NoRuntime, || Err::<(), _>(error(libc::EIO))));
    }
}
