//! The part of the verbs ABI that farcall uses: structures, constants and calls.
//!
//! The names are C's, so that a manual page or a header finds its place here. There are two
//! builds with the same names. By default the structures are declared here and libibverbs is
//! opened at run time ([`loaded`]). With the feature `rdma-sys` structures and calls are those of
//! that crate, which is linked with libibverbs ([`linked`]). The constants are declared here in
//! both.
//!
//! Where C has a union without a name, the field has the name that rdma-sys gives it, so that one
//! source serves both builds.

#![allow(non_camel_case_types)]

#[cfg(any(not(feature = "rdma-sys"), test))]
#[cfg_attr(feature = "rdma-sys", allow(dead_code))]
mod attributes;
mod constants;
#[cfg(feature = "rdma-sys")]
mod linked;
#[cfg(not(feature = "rdma-sys"))]
mod loaded;
#[cfg(any(not(feature = "rdma-sys"), test))]
#[cfg_attr(feature = "rdma-sys", allow(dead_code))]
mod objects;
#[cfg(all(test, feature = "rdma-sys"))]
mod reference;
#[cfg(any(not(feature = "rdma-sys"), test))]
#[cfg_attr(feature = "rdma-sys", allow(dead_code))]
mod requests;

pub(crate) use constants::*;
#[cfg(feature = "rdma-sys")]
pub(crate) use linked::*;
#[cfg(not(feature = "rdma-sys"))]
pub(crate) use {attributes::*, loaded::*, objects::*, requests::*};

/// Passes the list of libibverbs' calls, as its header declares them, to a macro that makes
/// something of each. Those whose types differ between the two builds are not in it.
macro_rules! with_calls {
    ($make:ident) => {
        $make! {
            fn ibv_fork_init() -> c_int;
            fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
            fn ibv_free_device_list(list: *mut *mut ibv_device) -> ();
            fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
            fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
            fn ibv_close_device(context: *mut ibv_context) -> c_int;
            fn ibv_query_device(
                context: *mut ibv_context, attributes: *mut ibv_device_attr,
            ) -> c_int;
            fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
            fn ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int;
            fn ibv_reg_mr_iova2(
                domain: *mut ibv_pd, address: *mut c_void, length: usize, io_address: u64,
                access: c_uint,
            ) -> *mut ibv_mr;
            fn ibv_dereg_mr(region: *mut ibv_mr) -> c_int;
            fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
            fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
            fn ibv_create_cq(
                context: *mut ibv_context, entries: c_int, tag: *mut c_void,
                channel: *mut ibv_comp_channel, vector: c_int,
            ) -> *mut ibv_cq;
            fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int;
            fn ibv_get_cq_event(
                channel: *mut ibv_comp_channel, queue: *mut *mut ibv_cq, tag: *mut *mut c_void,
            ) -> c_int;
            fn ibv_ack_cq_events(queue: *mut ibv_cq, count: c_uint) -> ();
            fn ibv_create_srq(
                domain: *mut ibv_pd, attributes: *mut ibv_srq_init_attr,
            ) -> *mut ibv_srq;
            fn ibv_modify_srq(
                queue: *mut ibv_srq, attributes: *mut ibv_srq_attr, mask: c_int,
            ) -> c_int;
            fn ibv_destroy_srq(queue: *mut ibv_srq) -> c_int;
            fn ibv_create_qp(
                domain: *mut ibv_pd, attributes: *mut ibv_qp_init_attr,
            ) -> *mut ibv_qp;
            fn ibv_modify_qp(
                queue_pair: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int,
            ) -> c_int;
            fn ibv_destroy_qp(queue_pair: *mut ibv_qp) -> c_int;
        }
    };
}
use with_calls;
