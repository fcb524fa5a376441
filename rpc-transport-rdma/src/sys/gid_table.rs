//! The GID table with each entry's type.
//!
//! Here because a GID's bytes alone do not tell RoCE v1 from v2. libibverbs has exported the call
//! since 1.11 and falls back to sysfs by itself on kernels without it.

use std::io;
use std::ptr::NonNull;

use super::abi::{Verbs, ibv_context, ibv_gid};

/// One valid entry of a device's GID table, laid out as `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawGidEntry {
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

/// Reads at most `entries_max` valid GID entries, over all ports.
///
/// # Safety
///
/// `context` is an open device context.
pub(crate) unsafe fn query_gid_table(
    verbs: Verbs,
    context: NonNull<ibv_context>,
    entries_max: usize,
) -> io::Result<Vec<RawGidEntry>> {
    let mut entries = Vec::<RawGidEntry>::with_capacity(entries_max);
    // SAFETY: the caller's promise for the context; the vector has room for `entries_max` entries
    // of exactly this size (S1), and the call writes no more than that.
    let count = unsafe {
        let (context, first) = (context.as_ptr(), entries.as_mut_ptr());
        verbs.ibv_query_gid_table(context, first, entries_max, size_of::<RawGidEntry>())
    };
    let count = usize::try_from(count).map_err(|_| {
        io::Error::from_raw_os_error(i32::try_from(count.unsigned_abs()).unwrap_or(libc::EIO))
    })?;
    // SAFETY: the call initialised the first `count` entries, which `min` keeps within capacity.
    unsafe { entries.set_len(count.min(entries_max)) };
    Ok(entries)
}
