//! A reliable connected queue pair, and the attributes that take it from one state to the next.
//!
//! The attributes are structures and masks, as ibv_modify_qp(3) lists them for a reliable
//! connection.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::{fmt, io, mem, ptr};

use crate::sys::abi::{
    Verbs, bind_mw_t, ibv_gid, ibv_mw_bind_info, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
    ibv_send_wr, ibv_sge, rdma_t,
};
use crate::sys::provider::ibverbs::completion_queue::IbvCompletionQueue;
use crate::sys::provider::ibverbs::context::ProtectionDomain;
use crate::sys::provider::ibverbs::shared_receive_queue::{IbvSharedReceiveQueue, scatter_entry};
use crate::sys::provider::queue_memory::queue_pair_len;
use crate::sys::provider::{
    LinkLayer, Mtu, PartialPost, PathAttributes, QueuePairRequest, RawBind, RawOperation,
    RawQueuePair, RawSend, VerbsError,
};
use crate::sys::{abi, check_errno, check_pointer};

pub(crate) struct IbvQueuePair {
    pointer: NonNull<ibv_qp>,
    number: u32,
    inline_max: u32,
    chain: Vec<ibv_send_wr>,
    segments: Vec<ibv_sge>,
    /// Dropped only after the queue pair was destroyed.
    parents: ManuallyDrop<Parents>,
}

/// A length for messages that are sent inline, for devices that refuse the wanted one: a frame with
/// an empty body, or a control message.
const INLINE_LEN_SMALL: u32 = 60;

/// Makes something with the most bytes inline that a device can: which length that is, is known
/// only by trying. A device says `EINVAL` to a length that it cannot. Other errors have reasons of
/// their own, and with less they would only come later.
fn try_inline<T>(wanted: u32, mut make: impl FnMut(u32) -> io::Result<T>) -> io::Result<T> {
    let smaller = [INLINE_LEN_SMALL, 0].into_iter().filter(|len| *len < wanted);
    let mut made = make(wanted);
    for len in smaller {
        match &made {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => made = make(len),
            _ => break,
        }
    }
    made
}

/// The objects that must outlive a queue pair, kept only for that.
#[derive(Clone)]
struct Parents {
    shared_receive_queue: Arc<IbvSharedReceiveQueue>,
    completion_queue: Arc<IbvCompletionQueue>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: S4: libibverbs locks the queue pair itself; the pointers in `chain` and `segments` are
// used within one post only, which has `&mut self`.
unsafe impl Send for IbvQueuePair {}

impl IbvQueuePair {
    /// Creates it and takes it to INIT.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        request: &QueuePairRequest<'_>,
        device_max: u32,
    ) -> Result<Self, VerbsError> {
        let completion_queue = IbvCompletionQueue::of(request.completion_queue, domain.context())?;
        let shared_receive_queue = IbvSharedReceiveQueue::of(request.shared_receive_queue, domain)?;
        let domain = Arc::clone(domain);
        let parents = Parents { shared_receive_queue, completion_queue, domain };
        let created = try_inline(request.inline_max, |inline_max| {
            create(&parents, request.send_depth, inline_max)
        });
        let (pointer, inline_max) = created.map_err(|error| {
            let need = queue_pair_len(request.send_depth, request.inline_max);
            VerbsError::locking("create a queue pair", error, need, Some(device_max))
        })?;
        // SAFETY: V1: just created.
        let number = unsafe { pointer.as_ref() }.qp_num;
        let mut queue_pair = Self {
            pointer,
            number,
            inline_max,
            chain: Vec::new(),
            segments: Vec::new(),
            parents: ManuallyDrop::new(parents),
        };
        queue_pair
            .modify("initialise a queue pair", to_init(request.port, request.partition_index))?;
        Ok(queue_pair)
    }

    fn verbs(&self) -> Verbs {
        self.parents.domain.context().verbs()
    }

    fn modify(&mut self, what: &'static str, transition: Transition) -> Result<(), VerbsError> {
        let Transition { mut attributes, mask } = transition;
        // SAFETY: V1: the queue pair exists; the attributes are live.
        let code =
            unsafe { self.verbs().ibv_modify_qp(self.pointer.as_ptr(), &raw mut attributes, mask) };
        check_errno(code).map_err(|error| VerbsError::system(what, error))
    }

    /// Builds the chain for a post in the scratch vectors and returns its first entry, or null.
    fn build(&mut self, requests: &[RawSend]) -> *mut ibv_send_wr {
        let segments = requests.iter().map(|request| match request.segment {
            Some(segment) => scatter_entry(segment),
            None => ibv_sge { addr: 0, length: 0, lkey: 0 },
        });
        self.segments.clear();
        self.segments.extend(segments);
        self.chain.clear();
        let pairs = requests.iter().zip(self.segments.iter_mut());
        self.chain.extend(pairs.map(|(request, segment)| send_entry(request, segment)));
        let mut next = null_mut();
        for entry in self.chain.iter_mut().rev() {
            entry.next = next;
            next = entry;
        }
        next
    }

    /// Destroys it; on failure it and its parents are leaked.
    fn destroy_once(&mut self) -> Result<(), VerbsError> {
        // SAFETY: V1: it exists, and both callers make sure that this runs once.
        let freed = check_errno(unsafe { self.verbs().ibv_destroy_qp(self.pointer.as_ptr()) });
        self.parents.domain.context().destroyed("destroy a queue pair", freed)?;
        // SAFETY: V1: this child of them is gone, and nothing uses them after this.
        unsafe { ManuallyDrop::drop(&mut self.parents) };
        Ok(())
    }
}

/// Creates a queue pair and returns it with the inline length that was granted.
fn create(parents: &Parents, depth: u32, inline_max: u32) -> io::Result<(NonNull<ibv_qp>, u32)> {
    let mut attributes = MaybeUninit::<ibv_qp_init_attr>::zeroed();
    // SAFETY: S2: all-zero bytes are a valid value.
    let attributes = unsafe { attributes.assume_init_mut() };
    attributes.qp_type = abi::IBV_QPT_RC;
    attributes.send_cq = parents.completion_queue.pointer().as_ptr();
    attributes.recv_cq = parents.completion_queue.pointer().as_ptr();
    attributes.srq = parents.shared_receive_queue.pointer().as_ptr();
    attributes.cap.max_send_wr = depth;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_inline_data = inline_max;
    // SAFETY: V1: the domain and both queues exist; the attributes are live.
    let pointer = unsafe {
        let verbs = parents.domain.context().verbs();
        verbs.ibv_create_qp(parents.domain.pointer().as_ptr(), attributes)
    };
    Ok((check_pointer(pointer)?, attributes.cap.max_inline_data))
}

/// A request as libibverbs has it, not linked to the next yet.
fn send_entry(request: &RawSend, segment: &mut ibv_sge) -> ibv_send_wr {
    // SAFETY: S2: all-zero bytes are a valid value.
    let mut entry: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    entry.wr_id = request.work_id;
    entry.sg_list = segment;
    entry.num_sge = i32::from(request.segment.is_some());
    if request.signaled {
        entry.send_flags |= abi::IBV_SEND_SIGNALED;
    }
    if request.inline {
        entry.send_flags |= abi::IBV_SEND_INLINE;
    }
    match request.operation {
        RawOperation::Send => entry.opcode = abi::IBV_WR_SEND,
        RawOperation::Read(remote) => {
            entry.opcode = abi::IBV_WR_RDMA_READ;
            entry.wr.rdma = rdma_t { remote_addr: remote.address, rkey: remote.key.0 };
        }
        RawOperation::SendInvalidate(key) => {
            entry.opcode = abi::IBV_WR_SEND_WITH_INV;
            entry.imm_data_invalidated_rkey_union.invalidated_rkey = key.0;
        }
        RawOperation::Bind(bind) => {
            entry.opcode = abi::IBV_WR_BIND_MW;
            entry.bind_mw_tso_union.bind_mw = bind_entry(&bind);
        }
        RawOperation::Invalidate(key) => {
            entry.opcode = abi::IBV_WR_LOCAL_INV;
            entry.imm_data_invalidated_rkey_union.invalidated_rkey = key.0;
        }
    }
    entry
}

/// Returns the binding of a window: the peer may read, and nothing else.
fn bind_entry(bind: &RawBind) -> bind_mw_t {
    bind_mw_t {
        mw: bind.window.0.as_ptr().cast(),
        rkey: bind.key.0,
        bind_info: ibv_mw_bind_info {
            mr: bind.region.0.as_ptr().cast(),
            addr: bind.address,
            length: bind.len,
            mw_access_flags: abi::IBV_ACCESS_REMOTE_READ,
        },
    }
}

// SAFETY: V3, V5: a reliable connection's send queue works and completes in order, as InfiniBand
// demands, and `ibv_destroy_qp` returns after the kernel or the device has torn the queue pair
// down. The parents are kept until then.
unsafe impl RawQueuePair for IbvQueuePair {
    fn number(&self) -> u32 {
        self.number
    }

    fn inline_max(&self) -> u32 {
        self.inline_max
    }

    fn connect(&mut self, path: &PathAttributes) -> Result<(), VerbsError> {
        self.modify("make a queue pair ready to receive", to_ready_to_receive(path))?;
        self.modify("make a queue pair ready to send", to_ready_to_send(path))
    }

    fn set_error(&mut self) -> Result<(), VerbsError> {
        self.modify("move a queue pair to the error state", to_error())
    }

    unsafe fn post_send(&mut self, requests: &[RawSend]) -> Result<(), PartialPost> {
        let first = self.build(requests);
        if first.is_null() {
            return Ok(());
        }
        let mut refused = null_mut();
        // SAFETY: V1: the queue pair exists; the chain and its segments are live. The memory that
        // they name is the caller's promise.
        let code =
            unsafe { self.verbs().ibv_post_send(self.pointer.as_ptr(), first, &raw mut refused) };
        let Err(error) = check_errno(code) else { return Ok(()) };
        let refused = self.chain.iter().position(|entry| ptr::eq(entry, refused));
        // V4: rxe queues all requests and then rings with a system call; when that fails it does
        // not say which request it refused, because it refused none.
        let accepted = refused.unwrap_or(requests.len());
        Err(PartialPost { accepted, errno: error.raw_os_error().unwrap_or(libc::EIO) })
    }

    fn destroy(self: Box<Self>) -> Result<(), VerbsError> {
        let mut this = ManuallyDrop::new(*self);
        this.destroy_once()?;
        drop(mem::take(&mut this.chain));
        drop(mem::take(&mut this.segments));
        Ok(())
    }
}

impl Drop for IbvQueuePair {
    fn drop(&mut self) {
        if let Err(error) = self.destroy_once() {
            tracing::error!(
                target: "farcall::rdma", %error, number = self.number, "a queue pair is leaked"
            );
        }
    }
}

impl fmt::Debug for IbvQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IbvQueuePair").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Routers between the ends at most: RoCE v2 is IP, and 64 is IP's customary limit.
const HOP_LIMIT: u8 = 64;

/// A transition: what to set, and which of it counts.
pub(crate) struct Transition {
    pub(crate) attributes: ibv_qp_attr,
    pub(crate) mask: i32,
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
pub(crate) fn to_init(port: u8, partition_index: u16) -> Transition {
    let mut transition = Transition::to(abi::IBV_QPS_INIT);
    transition.attributes.port_num = port;
    transition.attributes.pkey_index = partition_index;
    transition.attributes.qp_access_flags = abi::IBV_ACCESS_REMOTE_READ;
    transition.with(abi::IBV_QP_PORT).with(abi::IBV_QP_PKEY_INDEX).with(abi::IBV_QP_ACCESS_FLAGS)
}

/// INIT to RTR: the peer, the path to it, and what it may ask of us.
pub(crate) fn to_ready_to_receive(path: &PathAttributes) -> Transition {
    let mut transition = Transition::to(abi::IBV_QPS_RTR);
    let attributes = &mut transition.attributes;
    attributes.path_mtu = mtu_number(path.agreement.mtu);
    attributes.dest_qp_num = path.remote.queue_pair_number;
    attributes.rq_psn = path.remote.packet_sequence_number;
    attributes.max_dest_rd_atomic = path.agreement.reads_in;
    attributes.qp_access_flags = if path.serves_reads { abi::IBV_ACCESS_REMOTE_READ } else { 0 };
    attributes.min_rnr_timer = path.options.rnr_timer;
    attributes.ah_attr.port_num = path.port;
    attributes.ah_attr.sl = path.options.service_level;
    if path.remote.link_layer == LinkLayer::InfiniBand {
        attributes.ah_attr.dlid = path.remote.lid;
    }
    if path.is_global {
        attributes.ah_attr.is_global = 1;
        attributes.ah_attr.grh.dgid = ibv_gid { raw: path.remote.gid.0 };
        attributes.ah_attr.grh.sgid_index = path.gid_index;
        attributes.ah_attr.grh.hop_limit = HOP_LIMIT;
        attributes.ah_attr.grh.traffic_class = path.traffic_class;
    }
    transition
        .with(abi::IBV_QP_AV)
        .with(abi::IBV_QP_PATH_MTU)
        .with(abi::IBV_QP_DEST_QPN)
        .with(abi::IBV_QP_RQ_PSN)
        .with(abi::IBV_QP_MAX_DEST_RD_ATOMIC)
        .with(abi::IBV_QP_ACCESS_FLAGS)
        .with(abi::IBV_QP_MIN_RNR_TIMER)
}

/// RTR to RTS: how we wait and retry, and what we may ask of the peer.
pub(crate) fn to_ready_to_send(path: &PathAttributes) -> Transition {
    let mut transition = Transition::to(abi::IBV_QPS_RTS);
    let attributes = &mut transition.attributes;
    attributes.sq_psn = path.packet_sequence_number;
    attributes.max_rd_atomic = path.agreement.reads_out;
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
pub(crate) fn to_error() -> Transition {
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
    use crate::ConnectOptions;
    use crate::sys::provider::{Agreement, Endpoint, Gid, ReadDepths};

    fn path(link_layer: LinkLayer) -> PathAttributes {
        let remote = Endpoint {
            queue_pair_number: 17,
            packet_sequence_number: 5,
            gid: Gid([7; 16]),
            lid: 9,
            mtu: Mtu::B4096,
            reads: ReadDepths::Same(16),
            link_layer,
            partition_key: None,
            needs_global_route: false,
        };
        PathAttributes {
            port: 2,
            gid_index: 3,
            packet_sequence_number: 6,
            remote,
            agreement: Agreement { mtu: Mtu::B1024, reads_in: 4, reads_out: 3 },
            traffic_class: 104,
            is_global: link_layer == LinkLayer::Ethernet,
            serves_reads: true,
            options: ConnectOptions::default().with_service_level(3),
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
    fn on_infiniband_a_global_header_is_beside_the_local_one() {
        let global = PathAttributes { is_global: true, ..path(LinkLayer::InfiniBand) };
        let address = to_ready_to_receive(&global).attributes.ah_attr;
        assert_eq!((address.is_global, address.dlid, address.sl), (1, 9, 3));
        assert_eq!((address.grh.sgid_index, address.grh.traffic_class), (3, 104));
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
        assert_eq!((send.sq_psn, send.max_rd_atomic), (6, 3));
        assert_eq!(receive.qp_access_flags, abi::IBV_ACCESS_REMOTE_READ);
        let closed = PathAttributes { serves_reads: false, ..path };
        assert_eq!(to_ready_to_receive(&closed).attributes.qp_access_flags, 0);
        let init = to_init(path.port, 7);
        assert_eq!(init.attributes.pkey_index, 7);
        assert_eq!(init.attributes.qp_access_flags, abi::IBV_ACCESS_REMOTE_READ);
        assert_eq!(init.attributes.port_num, 2);
    }

    /// The lengths that are tried on a device that takes `max` bytes, or fails with `errno`.
    fn tried(wanted: u32, max: u32, errno: i32) -> (Vec<u32>, Result<u32, Option<i32>>) {
        let mut tried = Vec::new();
        let made = try_inline(wanted, |len| {
            tried.push(len);
            if len <= max { Ok(len) } else { Err(io::Error::from_raw_os_error(errno)) }
        });
        (tried, made.map_err(|error| error.raw_os_error()))
    }

    #[test]
    fn less_is_sent_inline_where_a_device_refuses_the_length() {
        assert_eq!(tried(124, 512, libc::EINVAL), (vec![124], Ok(124)));
        assert_eq!(tried(124, 96, libc::EINVAL), (vec![124, 60], Ok(60)));
        assert_eq!(tried(124, 16, libc::EINVAL), (vec![124, 60, 0], Ok(0)));
        assert_eq!(tried(40, 16, libc::EINVAL), (vec![40, 0], Ok(0)));
        assert_eq!(tried(0, 0, libc::EINVAL), (vec![0], Ok(0)));
    }

    #[test]
    fn a_device_without_memory_is_not_asked_again() {
        assert_eq!(tried(124, 16, libc::ENOMEM), (vec![124], Err(Some(libc::ENOMEM))));
    }
}
