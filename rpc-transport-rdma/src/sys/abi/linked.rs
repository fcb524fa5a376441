//! libibverbs as rdma-sys binds and links it.
//!
//! For a program that is to be linked with the library. Where rdma-sys types something unsoundly
//! or leaves it out, the call is adapted here.

use std::convert::Infallible;
use std::ffi::{c_char, c_int, c_uint, c_void};

pub(crate) use rdma_sys::{
    bind_mw_t, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid, ibv_mr,
    ibv_mw, ibv_mw_bind_info, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc, rdma_t,
};

use super::with_calls;
use crate::sys::async_event::AsyncEventRecord;
use crate::sys::gid_table::RawGidEntry;

/// The program loader has loaded the library before this program started.
///
/// # Errors
///
/// None; the other build may fail.
#[allow(clippy::unnecessary_wraps)]
pub(crate) fn load() -> Result<Verbs, Infallible> {
    Ok(Verbs(()))
}

/// Returns true if the library is not installed.
pub(crate) fn is_missing(error: &Infallible) -> bool {
    match *error {}
}

/// The calls of libibverbs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Verbs(());

macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        #[allow(clippy::unused_self)]
        impl Verbs {
            $(
                /// # Safety
                ///
                /// The manual page of this name has the conditions.
                pub(crate) unsafe fn $name(self, $($argument: $type),*) -> $result {
                    // SAFETY: the caller's promise.
                    unsafe { rdma_sys::$name($($argument),*) }
                }
            )*
        }
    };
}
with_calls!(forward);

macro_rules! inline_calls {
    ($make:ident) => {
        $make! {
            fn ibv_dealloc_mw(window: *mut ibv_mw) -> c_int;
            fn ibv_poll_cq(queue: *mut ibv_cq, count: c_int, completions: *mut ibv_wc) -> c_int;
            fn ibv_req_notify_cq(queue: *mut ibv_cq, solicited: c_int) -> c_int;
            fn ibv_post_srq_recv(
                queue: *mut ibv_srq, chain: *mut ibv_recv_wr, refused: *mut *mut ibv_recv_wr,
            ) -> c_int;
            fn ibv_post_send(
                queue_pair: *mut ibv_qp, chain: *mut ibv_send_wr, refused: *mut *mut ibv_send_wr,
            ) -> c_int;
        }
    };
}
inline_calls!(forward);

unsafe extern "C" {
    fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut RawGidEntry,
        max: usize,
        flags: u32,
        entry_len: usize,
    ) -> isize;
}

#[allow(clippy::unused_self)]
impl Verbs {
    /// # Safety
    ///
    /// The context is open, and the attributes are live. The call fills their part before
    /// `port_cap_flags2`.
    pub(crate) unsafe fn ibv_query_port(
        self,
        context: *mut ibv_context,
        port: u8,
        attributes: *mut ibv_port_attr,
    ) -> c_int {
        // SAFETY: the caller's promise. The exported function takes the leading part of the
        // structure under its old name, so it writes no more than the structure has (S1).
        unsafe { rdma_sys::ibv_query_port(context, port, attributes.cast()) }
    }

    /// # Safety
    ///
    /// The context is open, and the record is live.
    pub(crate) unsafe fn ibv_get_async_event(
        self,
        context: *mut ibv_context,
        record: *mut AsyncEventRecord,
    ) -> c_int {
        // SAFETY: the caller's promise; the record has the layout that the call fills (S1).
        unsafe { rdma_sys::ibv_get_async_event(context, record.cast()) }
    }

    /// # Safety
    ///
    /// The event was taken and is not acknowledged yet.
    pub(crate) unsafe fn ibv_ack_async_event(self, record: *mut AsyncEventRecord) {
        // SAFETY: the caller's promise; the record has the layout that the call reads (S1).
        unsafe { rdma_sys::ibv_ack_async_event(record.cast()) }
    }

    /// # Safety
    ///
    /// The context is open, and there is room for `max` entries of `entry_len` bytes.
    pub(crate) unsafe fn ibv_query_gid_table(
        self,
        context: *mut ibv_context,
        entries: *mut RawGidEntry,
        max: usize,
        entry_len: usize,
    ) -> isize {
        // SAFETY: the caller's promise. There are no flags yet.
        unsafe { _ibv_query_gid_table(context, entries, max, 0, entry_len) }
    }

    /// # Safety
    ///
    /// The domain is allocated. Null means a failure, with `errno`.
    pub(crate) unsafe fn ibv_alloc_mw(self, domain: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
        // SAFETY: the caller's promise.
        let window = unsafe { rdma_sys::ibv_alloc_mw(domain, kind) };
        // `None` for a provider without windows, and perhaps `Some` of null.
        window.unwrap_or(std::ptr::null_mut())
    }
}
