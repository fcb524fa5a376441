//! The objects that libibverbs makes, as far as its header shows them.
//!
//! Only libibverbs makes values of these structures; farcall reads and never moves them.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use super::{ibv_recv_wr, ibv_send_wr, ibv_wc};

/// An operation that this crate does not call: some pointer to a function.
pub(crate) type Uncalled = Option<unsafe extern "C" fn()>;

#[repr(C)]
pub(crate) struct ibv_device {
    pub(crate) _ops: [Uncalled; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) abi_compat: *mut c_void,
}

/// The functions that the header's inline functions call. A driver fills it.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    pub(crate) _compat_query_device: Uncalled,
    pub(crate) _compat_query_port: Uncalled,
    pub(crate) _compat_alloc_pd: Uncalled,
    pub(crate) _compat_dealloc_pd: Uncalled,
    pub(crate) _compat_reg_mr: Uncalled,
    pub(crate) _compat_rereg_mr: Uncalled,
    pub(crate) _compat_dereg_mr: Uncalled,
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_uint) -> *mut ibv_mw>,
    pub(crate) bind_mw: Uncalled,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    pub(crate) _compat_create_cq: Uncalled,
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    pub(crate) _compat_cq_event: Uncalled,
    pub(crate) _compat_resize_cq: Uncalled,
    pub(crate) _compat_destroy_cq: Uncalled,
    pub(crate) _compat_create_srq: Uncalled,
    pub(crate) _compat_modify_srq: Uncalled,
    pub(crate) _compat_query_srq: Uncalled,
    pub(crate) _compat_destroy_srq: Uncalled,
    pub(crate) post_srq_recv: Option<PostReceive>,
    pub(crate) _compat_create_qp: Uncalled,
    pub(crate) _compat_query_qp: Uncalled,
    pub(crate) _compat_modify_qp: Uncalled,
    pub(crate) _compat_destroy_qp: Uncalled,
    pub(crate) post_send: Option<PostSend>,
    pub(crate) post_recv: Uncalled,
    pub(crate) _compat_create_ah: Uncalled,
    pub(crate) _compat_destroy_ah: Uncalled,
    pub(crate) _compat_attach_mcast: Uncalled,
    pub(crate) _compat_detach_mcast: Uncalled,
    pub(crate) _compat_async_event: Uncalled,
}

pub(crate) type PostReceive =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub(crate) type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[repr(C)]
pub(crate) struct ibv_mw {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) rkey: u32,
    pub(crate) handle: u32,
    pub(crate) type_: c_uint,
}

#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: c_uint,
    pub(crate) qp_type: c_uint,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}
