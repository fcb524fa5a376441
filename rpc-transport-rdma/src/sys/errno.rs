//! The two ways in which libibverbs reports failure, as one error type.
//!
//! Here because some verbs return the error number, some return -1 and set `errno`, and pointers
//! come back null. Not here: which error means what to a caller.

use std::io;
use std::ptr::NonNull;

/// Turns a return code into a result: 0 is success, -1 means `errno`, anything else is the number.
pub(crate) fn check_errno(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        code => Err(io::Error::from_raw_os_error(code.saturating_abs())),
    }
}

/// Turns a returned pointer into a result: null means `errno`.
pub(crate) fn check_pointer<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn return_codes_become_results() {
        assert!(check_errno(0).is_ok());
        for code in [libc::ENOMEM, -libc::ENOMEM] {
            let error = check_errno(code).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
        }
    }
}
