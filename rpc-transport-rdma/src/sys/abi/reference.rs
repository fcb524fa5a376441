//! Our declarations of the ABI against rdma-sys' bindings, which are made from the header.
//!
//! The C compiler's word (`layout.rs`) covers the fields that farcall uses; this covers every
//! field of every structure, and each constant.

use std::mem::{align_of, offset_of, size_of};

use super::{attributes, constants as ours, objects, requests};

/// Structures that later headers make longer. Here it is `active_speed_ex` of rdma-core 56, behind
/// all that `ibv_query_port` fills: a symbol keeps to what it filled when programs linked with it.
const GROWING: &[&str] = &["ibv_port_attr"];

/// Compares size, alignment and the offset of each field of a structure or union.
macro_rules! same {
    ($module:ident: $($name:ident { $($field:ident)* })*) => {{
        let mut count = 0;
        $(
            let name = stringify!($name);
            let size = (size_of::<$module::$name>(), align_of::<$module::$name>());
            let mut expected = (size_of::<rdma_sys::$name>(), align_of::<rdma_sys::$name>());
            if GROWING.contains(&name) {
                expected.0 = expected.0.min(size.0);
            }
            assert_eq!(size, expected, "size and alignment of {name}");
            $(
                let offset = offset_of!($module::$name, $field);
                let expected = offset_of!(rdma_sys::$name, $field);
                assert_eq!(offset, expected, "{name}.{}", stringify!($field));
                count += 1;
            )*
        )*
        count
    }};
}

#[test]
fn objects_are_the_same() {
    let count = same!(objects:
        ibv_device { _ops node_type transport_type name dev_name dev_path ibdev_path }
        ibv_context { device ops cmd_fd async_fd num_comp_vectors mutex abi_compat }
        ibv_context_ops { _compat_query_device _compat_query_port _compat_alloc_pd
            _compat_dealloc_pd _compat_reg_mr _compat_rereg_mr _compat_dereg_mr alloc_mw bind_mw
            dealloc_mw _compat_create_cq poll_cq req_notify_cq _compat_cq_event
            _compat_resize_cq _compat_destroy_cq _compat_create_srq _compat_modify_srq
            _compat_query_srq _compat_destroy_srq post_srq_recv _compat_create_qp
            _compat_query_qp _compat_modify_qp _compat_destroy_qp post_send post_recv
            _compat_create_ah _compat_destroy_ah _compat_attach_mcast _compat_detach_mcast
            _compat_async_event }
        ibv_pd { context handle }
        ibv_mr { context pd addr length handle lkey rkey }
        ibv_mw { context pd rkey handle type_ }
        ibv_comp_channel { context fd refcnt }
        ibv_cq { context channel cq_context handle cqe mutex cond comp_events_completed
            async_events_completed }
        ibv_srq { context srq_context pd handle mutex cond events_completed }
        ibv_qp { context qp_context pd send_cq recv_cq srq handle qp_num state qp_type mutex
            cond events_completed }
    );
    assert_eq!(count, 92);
}

#[test]
fn attributes_are_the_same() {
    let count = same!(attributes:
        ibv_device_attr { fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id
            vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq
            max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom
            max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw
            max_raw_ipv6_qp max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach
            max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr max_srq max_srq_wr
            max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt }
        ibv_port_attr { state max_mtu active_mtu gid_tbl_len port_cap_flags max_msg_sz
            bad_pkey_cntr qkey_viol_cntr pkey_tbl_len lid sm_lid lmc max_vl_num sm_sl
            subnet_timeout init_type_reply active_width active_speed phys_state link_layer flags
            port_cap_flags2 }
        ibv_gid { raw global }
        ibv_gid_global_t { subnet_prefix interface_id }
        ibv_global_route { dgid flow_label sgid_index hop_limit traffic_class }
        ibv_ah_attr { grh dlid sl src_path_bits static_rate is_global port_num }
        ibv_qp_cap { max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data }
        ibv_qp_init_attr { qp_context send_cq recv_cq srq cap qp_type sq_sig_all }
        ibv_qp_attr { qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn
            dest_qp_num qp_access_flags cap ah_attr alt_ah_attr pkey_index alt_pkey_index
            en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer
            port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout rate_limit }
        ibv_srq_attr { max_wr max_sge srq_limit }
        ibv_srq_init_attr { srq_context attr }
    );
    assert_eq!(count, 121);
}

#[test]
fn requests_are_the_same() {
    let count = same!(requests:
        ibv_sge { addr length lkey }
        ibv_recv_wr { wr_id next sg_list num_sge }
        ibv_send_wr { wr_id next sg_list num_sge opcode send_flags
            imm_data_invalidated_rkey_union wr qp_type bind_mw_tso_union }
        imm_data_invalidated_rkey_union_t { imm_data invalidated_rkey }
        wr_t { rdma atomic ud }
        rdma_t { remote_addr rkey }
        atomic_t { remote_addr compare_add swap rkey }
        ud_t { ah remote_qpn remote_qkey }
        qp_type_t { xrc }
        xrc_t { remote_srqn }
        bind_mw_tso_union_t { bind_mw tso }
        bind_mw_t { mw rkey bind_info }
        ibv_mw_bind_info { mr addr length mw_access_flags }
        tso_t { hdr hdr_sz mss }
        ibv_wc { wr_id status opcode vendor_err byte_len imm_data_invalidated_rkey_union qp_num
            src_qp wc_flags pkey_index slid sl dlid_path_bits }
    );
    assert_eq!(count, 58);
}

/// Compares constants with those of an enumeration, of which a function makes the number.
macro_rules! same_numbers {
    ($number:expr, $enumeration:ident: $($name:ident)*) => {{
        let number = $number;
        $(assert_eq!(
            ours::$name, number(rdma_sys::$enumeration::$name), "{}", stringify!($name)
        );)*
    }};
}

#[test]
fn constants_are_the_same() {
    same_numbers!(|flags: rdma_sys::ibv_access_flags| flags.0, ibv_access_flags:
        IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_MW_BIND
        IBV_ACCESS_RELAXED_ORDERING);
    same_numbers!(u32::from, ibv_mtu:
        IBV_MTU_256 IBV_MTU_512 IBV_MTU_1024 IBV_MTU_2048 IBV_MTU_4096);
    same_numbers!(u32::from, ibv_port_state:
        IBV_PORT_ACTIVE);
    same_numbers!(u32::from, ibv_mw_type:
        IBV_MW_TYPE_2);
    same_numbers!(u32::from, ibv_qp_type:
        IBV_QPT_RC);
    same_numbers!(|flags: rdma_sys::ibv_srq_attr_mask| flags.0, ibv_srq_attr_mask:
        IBV_SRQ_LIMIT);
    same_numbers!(u32::from, ibv_qp_state:
        IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_ERR);
    same_numbers!(|flags: rdma_sys::ibv_qp_attr_mask| flags.0, ibv_qp_attr_mask:
        IBV_QP_STATE IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_AV IBV_QP_PATH_MTU
        IBV_QP_TIMEOUT IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY IBV_QP_RQ_PSN IBV_QP_MAX_QP_RD_ATOMIC
        IBV_QP_MIN_RNR_TIMER IBV_QP_SQ_PSN IBV_QP_MAX_DEST_RD_ATOMIC IBV_QP_DEST_QPN);
    same_numbers!(u32::from, ibv_wr_opcode:
        IBV_WR_SEND IBV_WR_RDMA_READ IBV_WR_LOCAL_INV IBV_WR_BIND_MW IBV_WR_SEND_WITH_INV);
    same_numbers!(|flags: rdma_sys::ibv_send_flags| flags.0, ibv_send_flags:
        IBV_SEND_SIGNALED IBV_SEND_INLINE);
    same_numbers!(|flags: rdma_sys::ibv_wc_flags| flags.0, ibv_wc_flags:
        IBV_WC_IP_CSUM_OK IBV_WC_WITH_INV);
    same_numbers!(|event| event as i32, ibv_event_type:
        IBV_EVENT_QP_FATAL IBV_EVENT_QP_REQ_ERR IBV_EVENT_QP_ACCESS_ERR IBV_EVENT_COMM_EST
        IBV_EVENT_SQ_DRAINED IBV_EVENT_PATH_MIG IBV_EVENT_PATH_MIG_ERR IBV_EVENT_DEVICE_FATAL
        IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR IBV_EVENT_LID_CHANGE IBV_EVENT_PKEY_CHANGE
        IBV_EVENT_SM_CHANGE IBV_EVENT_QP_LAST_WQE_REACHED IBV_EVENT_CLIENT_REREGISTER
        IBV_EVENT_GID_CHANGE);
}
