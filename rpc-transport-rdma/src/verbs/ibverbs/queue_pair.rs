//! A reliable connected queue pair.

use std::fmt;
use std::io;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull, null_mut};
use std::sync::Arc;

use super::completion_queue::IbvCompletionQueue;
use super::context::ProtectionDomain;
use super::path::{self, Transition};
use super::shared_receive_queue::{IbvSharedReceiveQueue, scatter_entry};
use crate::sys::abi::{
    self, Verbs, bind_mw_t, ibv_mw_bind_info, ibv_qp, ibv_qp_init_attr, ibv_send_wr, ibv_sge,
    rdma_t,
};
use crate::sys::{check_errno, check_pointer};
use crate::verbs::{
    PartialPost, PathAttributes, QueuePairRequest, RawBind, RawOperation, RawQueuePair, RawSend,
    VerbsError,
};

pub(super) struct IbvQueuePair {
    pointer: NonNull<ibv_qp>,
    number: u32,
    inline_max: u32,
    chain: Vec<ibv_send_wr>,
    segments: Vec<ibv_sge>,
    /// Dropped only after the queue pair was destroyed.
    parents: ManuallyDrop<Parents>,
}

/// What must outlive a queue pair; kept for that and nothing else.
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
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        request: &QueuePairRequest<'_>,
    ) -> Result<Self, VerbsError> {
        let completion_queue = IbvCompletionQueue::of(request.completion_queue, domain.context())?;
        let shared_receive_queue = IbvSharedReceiveQueue::of(request.shared_receive_queue, domain)?;
        let domain = Arc::clone(domain);
        let parents = Parents { shared_receive_queue, completion_queue, domain };
        // Which length a device can send inline is known only by trying.
        let with_inline = create(&parents, request.send_depth, request.inline_max);
        let (pointer, inline_max) = match with_inline {
            Err(_) if request.inline_max > 0 => create(&parents, request.send_depth, 0),
            result => result,
        }
        .map_err(|error| VerbsError::system("create a queue pair", error))?;
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
        queue_pair.modify("initialise a queue pair", path::to_init(request.port))?;
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

/// What a window is bound to: to be read by the peer, and nothing else.
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
        self.modify("make a queue pair ready to receive", path::to_ready_to_receive(path))?;
        self.modify("make a queue pair ready to send", path::to_ready_to_send(path))
    }

    fn set_error(&mut self) -> Result<(), VerbsError> {
        self.modify("move a queue pair to the error state", path::to_error())
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
