//! Numbers of the verbs ABI, each under the name that `infiniband/verbs.h` gives it.
//!
//! What a call takes as an `enum` is an integer here: a device or a newer library may send a
//! number that is not in the list (S3).

pub(crate) const IBV_ACCESS_LOCAL_WRITE: u32 = 1;
pub(crate) const IBV_ACCESS_REMOTE_READ: u32 = 1 << 2;
pub(crate) const IBV_ACCESS_MW_BIND: u32 = 1 << 4;
pub(crate) const IBV_ACCESS_RELAXED_ORDERING: u32 = 1 << 20;

pub(crate) const IBV_MTU_256: u32 = 1;
pub(crate) const IBV_MTU_512: u32 = 2;
pub(crate) const IBV_MTU_1024: u32 = 3;
pub(crate) const IBV_MTU_2048: u32 = 4;
pub(crate) const IBV_MTU_4096: u32 = 5;

pub(crate) const IBV_PORT_ACTIVE: u32 = 4;
pub(crate) const IBV_LINK_LAYER_ETHERNET: u8 = 2;

pub(crate) const IBV_MW_TYPE_2: u32 = 2;
pub(crate) const IBV_QPT_RC: u32 = 2;
pub(crate) const IBV_SRQ_LIMIT: u32 = 1 << 1;

pub(crate) const IBV_QPS_INIT: u32 = 1;
pub(crate) const IBV_QPS_RTR: u32 = 2;
pub(crate) const IBV_QPS_RTS: u32 = 3;
pub(crate) const IBV_QPS_ERR: u32 = 6;

pub(crate) const IBV_QP_STATE: u32 = 1;
pub(crate) const IBV_QP_ACCESS_FLAGS: u32 = 1 << 3;
pub(crate) const IBV_QP_PKEY_INDEX: u32 = 1 << 4;
pub(crate) const IBV_QP_PORT: u32 = 1 << 5;
pub(crate) const IBV_QP_AV: u32 = 1 << 7;
pub(crate) const IBV_QP_PATH_MTU: u32 = 1 << 8;
pub(crate) const IBV_QP_TIMEOUT: u32 = 1 << 9;
pub(crate) const IBV_QP_RETRY_CNT: u32 = 1 << 10;
pub(crate) const IBV_QP_RNR_RETRY: u32 = 1 << 11;
pub(crate) const IBV_QP_RQ_PSN: u32 = 1 << 12;
pub(crate) const IBV_QP_MAX_QP_RD_ATOMIC: u32 = 1 << 13;
pub(crate) const IBV_QP_MIN_RNR_TIMER: u32 = 1 << 15;
pub(crate) const IBV_QP_SQ_PSN: u32 = 1 << 16;
pub(crate) const IBV_QP_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
pub(crate) const IBV_QP_DEST_QPN: u32 = 1 << 20;

pub(crate) const IBV_WR_SEND: u32 = 2;
pub(crate) const IBV_WR_RDMA_READ: u32 = 4;
pub(crate) const IBV_WR_LOCAL_INV: u32 = 7;
pub(crate) const IBV_WR_BIND_MW: u32 = 8;
pub(crate) const IBV_WR_SEND_WITH_INV: u32 = 9;
pub(crate) const IBV_SEND_SIGNALED: u32 = 1 << 1;
pub(crate) const IBV_SEND_INLINE: u32 = 1 << 3;

/// A flag of `ibv_port_attr.flags`.
pub(crate) const IBV_QPF_GRH_REQUIRED: u8 = 1;

pub(crate) const IBV_WC_IP_CSUM_OK: u32 = 1 << 2;
pub(crate) const IBV_WC_WITH_INV: u32 = 1 << 3;

pub(crate) const IBV_EVENT_QP_FATAL: i32 = 1;
pub(crate) const IBV_EVENT_QP_REQ_ERR: i32 = 2;
pub(crate) const IBV_EVENT_QP_ACCESS_ERR: i32 = 3;
pub(crate) const IBV_EVENT_COMM_EST: i32 = 4;
pub(crate) const IBV_EVENT_SQ_DRAINED: i32 = 5;
pub(crate) const IBV_EVENT_PATH_MIG: i32 = 6;
pub(crate) const IBV_EVENT_PATH_MIG_ERR: i32 = 7;
pub(crate) const IBV_EVENT_DEVICE_FATAL: i32 = 8;
pub(crate) const IBV_EVENT_PORT_ACTIVE: i32 = 9;
pub(crate) const IBV_EVENT_PORT_ERR: i32 = 10;
pub(crate) const IBV_EVENT_LID_CHANGE: i32 = 11;
pub(crate) const IBV_EVENT_PKEY_CHANGE: i32 = 12;
pub(crate) const IBV_EVENT_SM_CHANGE: i32 = 13;
pub(crate) const IBV_EVENT_QP_LAST_WQE_REACHED: i32 = 16;
pub(crate) const IBV_EVENT_CLIENT_REREGISTER: i32 = 17;
pub(crate) const IBV_EVENT_GID_CHANGE: i32 = 18;
