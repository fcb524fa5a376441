//! What it means that something cannot be destroyed because its device was taken away. Pure.
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

use super::VerbsError;

/// Whether an object is gone although destroying it failed with `error`, given what its device
/// answers to a harmless question.
pub(super) fn is_gone<T>(error: &VerbsError, ask: impl FnOnce() -> Result<T, VerbsError>) -> bool {
    is_io(error) && ask().is_err_and(|error| is_io(&error))
}

fn is_io(error: &VerbsError) -> bool {
    let VerbsError::System { source, .. } = error else { return false };
    io::Error::raw_os_error(source) == Some(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

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
