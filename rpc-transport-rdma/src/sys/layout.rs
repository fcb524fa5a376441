//! Claim S1 as a test: structures and constants of the ABI against the C compiler.
//!
//! Both builds are checked: where the feature `rdma-sys` is on, its structures are, of which that
//! crate's authors wrote a part by hand.

use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

#[cfg(feature = "rdma-sys")]
use rdma_sys::{ibv_ah_attr, ibv_context_ops, ibv_qp_cap};

use super::abi::*;
use super::async_event::AsyncEventRecord;
use super::gid_table::RawGidEntry;

/// One number to compare: the C expression that prints it, and Rust's value.
struct Check {
    expression: String,
    value: usize,
}

/// Lists the size of a structure and the offsets of its fields, as `rust path => "C path"`; the
/// offsets alone where later headers make it longer.
macro_rules! layout {
    (
        $checks:ident,
        $c_type:literal,
        $rust_type:ty { $($($field:ident).+ => $c_field:literal),* }
    ) => {
        $checks.push(Check {
            expression: format!("sizeof({})", $c_type),
            value: size_of::<$rust_type>(),
        });
        layout!($checks, fields of $c_type, $rust_type { $($($field).+ => $c_field),* });
    };
    (
        $checks:ident,
        fields of $c_type:literal,
        $rust_type:ty { $($($field:ident).+ => $c_field:literal),* }
    ) => {
        $($checks.push(Check {
            expression: format!("offsetof({}, {})", $c_type, $c_field),
            value: offset_of!($rust_type, $($field).+),
        });)*
    };
}

fn work_request_checks() -> Vec<Check> {
    let mut checks = Vec::new();
    layout!(checks, "struct ibv_sge", ibv_sge {
        addr => "addr", length => "length", lkey => "lkey"
    });
    layout!(checks, "struct ibv_send_wr", ibv_send_wr {
        wr_id => "wr_id", next => "next", sg_list => "sg_list", num_sge => "num_sge",
        opcode => "opcode", send_flags => "send_flags",
        imm_data_invalidated_rkey_union => "imm_data",
        wr.rdma.remote_addr => "wr.rdma.remote_addr", wr.rdma.rkey => "wr.rdma.rkey",
        qp_type.xrc.remote_srqn => "qp_type.xrc.remote_srqn",
        bind_mw_tso_union.bind_mw.mw => "bind_mw.mw",
        bind_mw_tso_union.bind_mw.rkey => "bind_mw.rkey",
        bind_mw_tso_union.bind_mw.bind_info => "bind_mw.bind_info"
    });
    layout!(checks, "struct ibv_recv_wr", ibv_recv_wr {
        wr_id => "wr_id", next => "next", sg_list => "sg_list", num_sge => "num_sge"
    });
    layout!(checks, "struct ibv_wc", ibv_wc {
        wr_id => "wr_id", status => "status", opcode => "opcode", vendor_err => "vendor_err",
        byte_len => "byte_len", imm_data_invalidated_rkey_union => "imm_data",
        qp_num => "qp_num", src_qp => "src_qp", wc_flags => "wc_flags",
        pkey_index => "pkey_index", slid => "slid", sl => "sl",
        dlid_path_bits => "dlid_path_bits"
    });
    checks
}

fn object_checks() -> Vec<Check> {
    let mut checks = Vec::new();
    layout!(checks, "struct ibv_mr", ibv_mr {
        addr => "addr", length => "length", lkey => "lkey", rkey => "rkey"
    });
    layout!(checks, "struct ibv_mw", ibv_mw {
        context => "context", pd => "pd", rkey => "rkey", handle => "handle", type_ => "type"
    });
    layout!(checks, "struct ibv_mw_bind_info", ibv_mw_bind_info {
        mr => "mr", addr => "addr", length => "length", mw_access_flags => "mw_access_flags"
    });
    layout!(checks, "struct ibv_srq_attr", ibv_srq_attr {
        max_wr => "max_wr", max_sge => "max_sge", srq_limit => "srq_limit"
    });
    layout!(checks, "struct ibv_device", ibv_device {
        name => "name", dev_name => "dev_name"
    });
    layout!(checks, "struct ibv_pd", ibv_pd { context => "context" });
    layout!(checks, "struct ibv_comp_channel", ibv_comp_channel { fd => "fd" });
    layout!(checks, "struct ibv_cq", ibv_cq { context => "context", cqe => "cqe" });
    layout!(checks, "struct ibv_srq", ibv_srq { context => "context" });
    layout!(checks, "struct ibv_qp", ibv_qp { context => "context", qp_num => "qp_num" });
    layout!(checks, "struct ibv_context", ibv_context {
        ops => "ops", async_fd => "async_fd", abi_compat => "abi_compat"
    });
    layout!(checks, "struct ibv_context_ops", ibv_context_ops {
        poll_cq => "poll_cq", req_notify_cq => "req_notify_cq",
        post_srq_recv => "post_srq_recv", post_send => "post_send"
    });
    layout!(checks, "union ibv_gid", ibv_gid { raw => "raw" });
    layout!(checks, "struct ibv_gid_entry", RawGidEntry {
        gid => "gid", gid_index => "gid_index", port_num => "port_num",
        gid_type => "gid_type", ndev_ifindex => "ndev_ifindex"
    });
    layout!(checks, "struct ibv_async_event", AsyncEventRecord {
        element.object => "element.qp", element.port => "element.port_num",
        event_type => "event_type"
    });
    checks
}

fn attribute_checks() -> Vec<Check> {
    let mut checks = Vec::new();
    layout!(checks, "struct ibv_device_attr", ibv_device_attr {
        max_mr_size => "max_mr_size", max_qp => "max_qp", max_qp_wr => "max_qp_wr",
        max_cqe => "max_cqe", max_qp_rd_atom => "max_qp_rd_atom",
        max_qp_init_rd_atom => "max_qp_init_rd_atom", max_srq_wr => "max_srq_wr",
        phys_port_cnt => "phys_port_cnt"
    });
    // rdma-core 56 has `active_speed_ex` behind these, which `ibv_query_port` does not fill.
    layout!(checks, fields of "struct ibv_port_attr", ibv_port_attr {
        state => "state", active_mtu => "active_mtu", max_msg_sz => "max_msg_sz",
        lid => "lid", link_layer => "link_layer", port_cap_flags2 => "port_cap_flags2"
    });
    layout!(checks, "struct ibv_qp_cap", ibv_qp_cap {
        max_send_wr => "max_send_wr", max_send_sge => "max_send_sge",
        max_inline_data => "max_inline_data"
    });
    layout!(checks, "struct ibv_qp_init_attr", ibv_qp_init_attr {
        send_cq => "send_cq", recv_cq => "recv_cq", srq => "srq", cap => "cap",
        qp_type => "qp_type", sq_sig_all => "sq_sig_all"
    });
    layout!(checks, "struct ibv_srq_init_attr", ibv_srq_init_attr {
        attr.max_wr => "attr.max_wr", attr.max_sge => "attr.max_sge"
    });
    layout!(checks, "struct ibv_ah_attr", ibv_ah_attr {
        grh.dgid => "grh.dgid", grh.sgid_index => "grh.sgid_index",
        grh.hop_limit => "grh.hop_limit", grh.traffic_class => "grh.traffic_class",
        dlid => "dlid", is_global => "is_global", port_num => "port_num"
    });
    layout!(checks, "struct ibv_qp_attr", ibv_qp_attr {
        qp_state => "qp_state", path_mtu => "path_mtu", rq_psn => "rq_psn",
        sq_psn => "sq_psn", dest_qp_num => "dest_qp_num",
        qp_access_flags => "qp_access_flags", ah_attr => "ah_attr",
        pkey_index => "pkey_index", max_rd_atomic => "max_rd_atomic",
        max_dest_rd_atomic => "max_dest_rd_atomic", min_rnr_timer => "min_rnr_timer",
        port_num => "port_num", timeout => "timeout", retry_cnt => "retry_cnt",
        rnr_retry => "rnr_retry"
    });
    checks
}

/// Lists constants, which have C's names.
macro_rules! constants {
    ($($name:ident)*) => {
        vec![$(Check {
            expression: stringify!($name).to_owned(),
            value: usize::try_from($name).unwrap(),
        }),*]
    };
}

fn constant_checks() -> Vec<Check> {
    constants!(
        IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_MW_BIND
        IBV_ACCESS_RELAXED_ORDERING
        IBV_MTU_256 IBV_MTU_512 IBV_MTU_1024 IBV_MTU_2048 IBV_MTU_4096
        IBV_PORT_ACTIVE IBV_LINK_LAYER_ETHERNET IBV_MW_TYPE_2 IBV_QPT_RC IBV_SRQ_LIMIT
        IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_ERR
        IBV_QP_STATE IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_AV IBV_QP_PATH_MTU
        IBV_QP_TIMEOUT IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY IBV_QP_RQ_PSN IBV_QP_MAX_QP_RD_ATOMIC
        IBV_QP_MIN_RNR_TIMER IBV_QP_SQ_PSN IBV_QP_MAX_DEST_RD_ATOMIC IBV_QP_DEST_QPN
        IBV_WR_SEND IBV_WR_RDMA_READ IBV_WR_LOCAL_INV IBV_WR_BIND_MW IBV_WR_SEND_WITH_INV
        IBV_SEND_SIGNALED IBV_SEND_INLINE IBV_WC_IP_CSUM_OK IBV_WC_WITH_INV
        IBV_EVENT_QP_FATAL IBV_EVENT_QP_REQ_ERR IBV_EVENT_QP_ACCESS_ERR IBV_EVENT_COMM_EST
        IBV_EVENT_SQ_DRAINED IBV_EVENT_PATH_MIG IBV_EVENT_PATH_MIG_ERR IBV_EVENT_DEVICE_FATAL
        IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR IBV_EVENT_LID_CHANGE IBV_EVENT_PKEY_CHANGE
        IBV_EVENT_SM_CHANGE IBV_EVENT_QP_LAST_WQE_REACHED IBV_EVENT_CLIENT_REREGISTER
        IBV_EVENT_GID_CHANGE
    )
}

/// Compiles and runs a program that prints the value of each expression on a line.
fn values_in_c(checks: &[Check], folder: &Path) -> Vec<usize> {
    let lines: String = checks
        .iter()
        .map(|check| format!("  printf(\"%zu\\n\", (size_t){});\n", check.expression))
        .collect();
    let program = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         int main(void) {{\n{lines}  return 0;\n}}\n"
    );
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new("gcc").arg(&source).arg("-o").arg(&binary).output();
    let compiled = compiled.expect("this test needs gcc and libibverbs-dev: gcc did not start");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
#[cfg_attr(miri, ignore = "runs a C compiler")]
fn structures_and_constants_are_those_of_c() {
    let checks: Vec<Check> =
        [work_request_checks(), object_checks(), attribute_checks(), constant_checks()]
            .into_iter()
            .flatten()
            .collect();
    let folder = std::env::temp_dir().join(format!("rdma-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let values = values_in_c(&checks, &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(values.len(), checks.len());
    for (check, in_c) in checks.iter().zip(values) {
        assert_eq!(check.value, in_c, "{}", check.expression);
    }
    assert!(checks.len() > 145, "only {} layout checks", checks.len());
}
