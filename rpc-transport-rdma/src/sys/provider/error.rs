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
//! tasks do. Here these structures stay allocated, so that an event which names one names memory
//! that is there. On mlx5 their queues stay with them, 12 MiB for a full lane of the default size.

use std::io;
use std::time::Duration;

use super::commands::FirmwareCommand;
use super::locked_memory::LockedMemory;

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
    /// Memory could not be locked for the device, or the device is out of something.
    #[error(
        "cannot {operation}, which takes {need} bytes: {}",
        describe_shortage(*need, *locked, *limit_bytes, *device_max)
    )]
    MemoryLock {
        /// The attempted operation, as a verb phrase.
        operation: &'static str,
        /// Bytes that it would have locked; for queues of hardware other than mlx5 an estimate.
        need: u64,
        /// Bytes that the process had locked at that moment.
        locked: u64,
        /// The limit at that moment; `None` when there is none.
        limit_bytes: Option<u64>,
        /// The number of such objects that the device has for all processes, if it is known.
        device_max: Option<u32>,
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
    #[error("{what} of {wanted} exceeds the limit of {max}")]
    LimitExceeded {
        /// The resource that was requested.
        what: &'static str,
        /// The requested amount.
        wanted: u64,
        /// The limit.
        max: u64,
    },
    /// The completion queue has no room for the completions that a new queue could produce.
    #[error("the completion queue has {free} of {capacity} entries left, but {wanted} are needed")]
    CompletionQueueFull {
        /// Entries needed.
        wanted: u32,
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
    /// The firmware of a device has not answered a command for long.
    #[error(
        "the firmware of {device} has not answered a command for {age:?} ({command:?}); reset the \
         device if it stays so"
    )]
    Stuck {
        /// The device.
        device: String,
        /// The command.
        command: FirmwareCommand,
        /// Time since the command began.
        age: Duration,
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

    /// Memory that cannot be locked: `need` bytes in addition to what is. `device_max` is the
    /// number of such objects that the device has.
    #[must_use]
    pub fn out_of_memory(
        operation: &'static str,
        need: u64,
        memory: LockedMemory,
        device_max: Option<u32>,
    ) -> Self {
        let LockedMemory { locked, limit: limit_bytes } = memory;
        Self::MemoryLock { operation, need, locked, limit_bytes, device_max }
    }

    /// A failed operation that locks `need` bytes: `ENOMEM` is told with all that may be short,
    /// and everything else as it is.
    #[cfg(feature = "ibverbs")]
    pub(crate) fn locking(
        operation: &'static str,
        source: io::Error,
        need: u64,
        device_max: Option<u32>,
    ) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOMEM) => {
                Self::out_of_memory(operation, need, LockedMemory::current(), device_max)
            }
            _ => Self::system(operation, source),
        }
    }

    /// Returns true if the limit on locked memory is what stands in the way.
    #[must_use]
    pub fn is_over_lock_limit(&self) -> bool {
        let Self::MemoryLock { need, locked, limit_bytes, .. } = self else { return false };
        limit_bytes.is_some_and(|limit| locked.saturating_add(*need) > limit)
    }
}

/// Ways to raise the limit on locked memory.
pub(crate) const RAISE_LOCK_LIMIT: &str = "raise it with `ulimit -l unlimited`, \
     LimitMEMLOCK=infinity in a systemd unit or a memlock line in /etc/security/limits.conf";

fn describe_shortage(
    need: u64,
    locked: u64,
    limit_bytes: Option<u64>,
    device_max: Option<u32>,
) -> String {
    let device = device_max.map(|max| format!(", which has {max} of them for all processes"));
    let device = device.unwrap_or_default();
    let Some(limit) = limit_bytes else {
        return format!(
            "out of memory; RLIMIT_MEMLOCK is unlimited, so the host or the device is out of \
             it{device}"
        );
    };
    let shown = limit / 1024;
    if locked.saturating_add(need) > limit {
        return format!(
            "out of lockable memory; RLIMIT_MEMLOCK is {limit} bytes (`ulimit -l` shows {shown}), \
             of which {locked} are locked; {RAISE_LOCK_LIMIT}, or configure smaller pools"
        );
    }
    format!(
        "out of memory; RLIMIT_MEMLOCK leaves room ({limit} bytes, of which {locked} are locked), \
         so the host or the device is out of it{device}"
    )
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
        let memory = LockedMemory { locked: 8 << 20, limit: Some(8 << 20) };
        let error = VerbsError::out_of_memory("register memory", 1 << 20, memory, None);
        let text = error.to_string();
        for part in [
            "cannot register memory, which takes 1048576 bytes",
            "RLIMIT_MEMLOCK is 8388608",
            "shows 8192",
            "of which 8388608 are locked",
            "ulimit -l unlimited",
            "LimitMEMLOCK=infinity",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(error.is_over_lock_limit());
    }

    #[test]
    fn a_device_that_is_out_of_something_is_not_taken_for_the_limit() {
        for limit in [Some(8 << 20), None] {
            let memory = LockedMemory { locked: 1 << 20, limit };
            let error =
                VerbsError::out_of_memory("create a queue pair", 32 << 10, memory, Some(65_536));
            let text = error.to_string();
            assert!(text.contains("RLIMIT_MEMLOCK") && text.contains("has 65536"), "{text}");
            assert!(!text.contains("raise it") && !error.is_over_lock_limit(), "{text}");
        }
    }

    #[test]
    #[cfg(feature = "ibverbs")]
    fn other_errors_keep_their_source() {
        let source = io::Error::from_raw_os_error(libc::EINVAL);
        let error = VerbsError::locking("register memory", source, 1, None);
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
