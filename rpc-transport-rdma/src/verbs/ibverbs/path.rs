//! The attributes that take a queue pair from one state to the next.
//!
//! Pure: it builds structures and masks, as ibv_modify_qp(3) lists them for a reliable connection.

use std::mem::MaybeUninit;

use crate::sys::abi::{self, ibv_gid, ibv_qp_attr};
use crate::verbs::{LinkLayer, Mtu, PathAttributes};

/// Routers between the ends at most: RoCE v2 is IP, and 64 is IP's customary limit.
const HOP_LIMIT: u8 = 64;

/// A transition: what to set, and which of it counts.
pub(super) struct Transition {
    pub(super) attributes: ibv_qp_attr,
    pub(super) mask: i32,
}

impl Transition {
    fn to(state: u32) -> Self {
        // SAFETY: S2: all-zero bytes are a valid value.
        let mut attributes: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attributes.qp_state = state;
        Self { attributes, mask: 0 }.with(abi::IBV_QP_STATE)
    }

    fn with(mut self, field: u32) -> Self {
        self.mask |= field.cast_signed();
        self
    }
}

/// RESET to INIT: the port, and that the peer may read. It may never write.
pub(super) fn to_init(port: u8) -> Transition {
    let mut transition = Transition::to(abi::IBV_QPS_INIT);
    transition.attributes.port_num = port;
    transition.attributes.pkey_index = 0;
    transition.attributes.qp_access_flags = abi::IBV_ACCESS_REMOTE_READ;
    transition.with(abi::IBV_QP_PORT).with(abi::IBV_QP_PKEY_INDEX).with(abi::IBV_QP_ACCESS_FLAGS)
}

/// INIT to RTR: the peer, the path to it, and what it may ask of us.
pub(super) fn to_ready_to_receive(path: &PathAttributes) -> Transition {
    let mut transition = Transition::to(abi::IBV_QPS_RTR);
    let attributes = &mut transition.attributes;
    attributes.path_mtu = mtu_number(path.agreement.mtu);
    attributes.dest_qp_num = path.remote.queue_pair_number;
    attributes.rq_psn = path.remote.packet_sequence_number;
    attributes.max_dest_rd_atomic = path.agreement.reads_max;
    attributes.min_rnr_timer = path.options.rnr_timer;
    attributes.ah_attr.port_num = path.port;
    match path.remote.link_layer {
        LinkLayer::InfiniBand => attributes.ah_attr.dlid = path.remote.lid,
        LinkLayer::Ethernet => {
            attributes.ah_attr.is_global = 1;
            attributes.ah_attr.grh.dgid = ibv_gid { raw: path.remote.gid.0 };
            attributes.ah_attr.grh.sgid_index = path.gid_index;
            attributes.ah_attr.grh.hop_limit = HOP_LIMIT;
            attributes.ah_attr.grh.traffic_class = path.options.traffic_class;
        }
    }
    transition
        .with(abi::IBV_QP_AV)
        .with(abi::IBV_QP_PATH_MTU)
        .with(abi::IBV_QP_DEST_QPN)
        .with(abi::IBV_QP_RQ_PSN)
        .with(abi::IBV_QP_MAX_DEST_RD_ATOMIC)
        .with(abi::IBV_QP_MIN_RNR_TIMER)
}

/// RTR to RTS: how we wait and retry, and what we may ask of the peer.
pub(super) fn to_ready_to_send(path: &PathAttributes) -> Transition {
    let mut transition = Transition::to(abi::IBV_QPS_RTS);
    let attributes = &mut transition.attributes;
    attributes.sq_psn = path.packet_sequence_number;
    attributes.max_rd_atomic = path.agreement.reads_max;
    attributes.timeout = path.options.timeout;
    attributes.retry_cnt = path.options.retry_count;
    attributes.rnr_retry = path.options.rnr_retry;
    transition
        .with(abi::IBV_QP_SQ_PSN)
        .with(abi::IBV_QP_MAX_QP_RD_ATOMIC)
        .with(abi::IBV_QP_TIMEOUT)
        .with(abi::IBV_QP_RETRY_CNT)
        .with(abi::IBV_QP_RNR_RETRY)
}

/// Any state to ERROR.
pub(super) fn to_error() -> Transition {
    Transition::to(abi::IBV_QPS_ERR)
}

fn mtu_number(mtu: Mtu) -> u32 {
    match mtu {
        Mtu::B256 => abi::IBV_MTU_256,
        Mtu::B512 => abi::IBV_MTU_512,
        Mtu::B1024 => abi::IBV_MTU_1024,
        Mtu::B2048 => abi::IBV_MTU_2048,
        Mtu::B4096 => abi::IBV_MTU_4096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Agreement, ConnectOptions, Endpoint, Gid};

    fn path(link_layer: LinkLayer) -> PathAttributes {
        let remote = Endpoint {
            queue_pair_number: 17,
            packet_sequence_number: 5,
            gid: Gid([7; 16]),
            lid: 9,
            mtu: Mtu::B4096,
            reads_max: 16,
            link_layer,
        };
        PathAttributes {
            port: 2,
            gid_index: 3,
            packet_sequence_number: 6,
            remote,
            agreement: Agreement { mtu: Mtu::B1024, reads_max: 4 },
            options: ConnectOptions::default().with_traffic_class(104),
        }
    }

    #[test]
    fn on_infiniband_packets_go_by_lid_without_a_global_header() {
        let transition = to_ready_to_receive(&path(LinkLayer::InfiniBand));
        let address = transition.attributes.ah_attr;
        assert_eq!((address.is_global, address.dlid, address.port_num), (0, 9, 2));
        assert_eq!((address.grh.sgid_index, address.grh.hop_limit), (0, 0));
        assert_eq!(address.grh.traffic_class, 0);
        assert_ne!(transition.mask & abi::IBV_QP_AV.cast_signed(), 0);
    }

    #[test]
    fn on_ethernet_packets_go_by_gid() {
        let transition = to_ready_to_receive(&path(LinkLayer::Ethernet));
        let address = transition.attributes.ah_attr;
        assert_eq!((address.is_global, address.dlid, address.port_num), (1, 0, 2));
        assert_eq!((address.grh.sgid_index, address.grh.hop_limit), (3, HOP_LIMIT));
        assert_eq!(address.grh.traffic_class, 104);
        // SAFETY: S2: both halves of the union are sixteen plain bytes.
        assert_eq!(unsafe { address.grh.dgid.raw }, [7; 16]);
    }

    #[test]
    fn what_was_agreed_on_is_set_on_both_ways() {
        let path = path(LinkLayer::Ethernet);
        let receive = to_ready_to_receive(&path).attributes;
        assert_eq!((receive.dest_qp_num, receive.rq_psn, receive.max_dest_rd_atomic), (17, 5, 4));
        assert_eq!(receive.path_mtu, abi::IBV_MTU_1024);
        let send = to_ready_to_send(&path).attributes;
        assert_eq!((send.sq_psn, send.max_rd_atomic), (6, 4));
        let init = to_init(path.port);
        assert_eq!(init.attributes.qp_access_flags, abi::IBV_ACCESS_REMOTE_READ);
        assert_eq!(init.attributes.port_num, 2);
    }
}
