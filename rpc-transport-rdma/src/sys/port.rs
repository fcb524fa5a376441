//! Device and port attributes.
//!
//! The exported `ibv_query_port` fills the part of `ibv_port_attr` that existed before
//! `port_cap_flags2`; nothing here reads more.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::abi::{Verbs, ibv_context, ibv_device_attr, ibv_port_attr};
use super::check_errno;

/// Reads the attributes of a device.
///
/// # Safety
///
/// `context` is an open device context.
pub(crate) unsafe fn query_device(
    verbs: Verbs,
    context: NonNull<ibv_context>,
) -> io::Result<ibv_device_attr> {
    let mut attributes = MaybeUninit::<ibv_device_attr>::zeroed();
    // SAFETY: the caller's promise for the context; the structure has C's layout (S1).
    let code = unsafe { verbs.ibv_query_device(context.as_ptr(), attributes.as_mut_ptr()) };
    check_errno(code)?;
    // SAFETY: zeroed bytes are a valid value (S2) and the call wrote integers over them.
    Ok(unsafe { attributes.assume_init() })
}

/// Reads the attributes of port `number`; ports count from 1.
///
/// # Safety
///
/// `context` is an open device context.
pub(crate) unsafe fn query_port(
    verbs: Verbs,
    context: NonNull<ibv_context>,
    number: u8,
) -> io::Result<ibv_port_attr> {
    let mut attributes = MaybeUninit::<ibv_port_attr>::zeroed();
    // SAFETY: the caller's promise for the context; the exported function takes the leading part
    // of the structure under its old name (S1), so it writes no more than the structure has.
    let code = unsafe { verbs.ibv_query_port(context.as_ptr(), number, attributes.as_mut_ptr()) };
    check_errno(code)?;
    // SAFETY: zeroed bytes are a valid value (S2) and the call wrote integers over them.
    Ok(unsafe { attributes.assume_init() })
}
