//! Work requests and completions, laid out as in `infiniband/verbs.h`.

use std::ffi::{c_int, c_uint, c_void};

use super::{ibv_mr, ibv_mw};

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}

#[repr(C)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_uint,
    pub(crate) send_flags: c_uint,
    pub(crate) imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t,
    pub(crate) wr: wr_t,
    pub(crate) qp_type: qp_type_t,
    pub(crate) bind_mw_tso_union: bind_mw_tso_union_t,
}

#[repr(C)]
pub(crate) union imm_data_invalidated_rkey_union_t {
    pub(crate) imm_data: u32,
    pub(crate) invalidated_rkey: u32,
}

#[repr(C)]
pub(crate) union wr_t {
    pub(crate) rdma: rdma_t,
    pub(crate) atomic: atomic_t,
    pub(crate) ud: ud_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_t {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct atomic_t {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ud_t {
    pub(crate) ah: *mut c_void,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

#[repr(C)]
pub(crate) union qp_type_t {
    pub(crate) xrc: xrc_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct xrc_t {
    pub(crate) remote_srqn: u32,
}

#[repr(C)]
pub(crate) union bind_mw_tso_union_t {
    pub(crate) bind_mw: bind_mw_t,
    pub(crate) tso: tso_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct bind_mw_t {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mw_bind_info {
    pub(crate) mr: *mut ibv_mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) mw_access_flags: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct tso_t {
    pub(crate) hdr: *mut c_void,
    pub(crate) hdr_sz: u16,
    pub(crate) mss: u16,
}

#[repr(C)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_uint,
    pub(crate) opcode: c_uint,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}
