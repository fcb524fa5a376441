//! A shared receive queue.

use std::any::Any;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull, null_mut};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::sys::abi::{
    IBV_SRQ_LIMIT, Verbs, ibv_recv_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
};
use crate::sys::provider::ibverbs::context::ProtectionDomain;
use crate::sys::provider::queue_memory::shared_receive_queue_len;
use crate::sys::provider::{
    PartialPost, RawReceive, RawSegment, RawSharedReceiveQueue, VerbsError,
};
use crate::sys::{check_errno, check_pointer};

pub(crate) struct IbvSharedReceiveQueue {
    pointer: NonNull<ibv_srq>,
    scratch: Mutex<Scratch>,
    /// Dropped only after the queue was destroyed.
    kept: ManuallyDrop<(Arc<dyn Any + Send + Sync>, Arc<ProtectionDomain>)>,
}

/// Room to build a chain in; it holds nothing between two posts.
#[derive(Default)]
struct Scratch {
    requests: Vec<ibv_recv_wr>,
    segments: Vec<ibv_sge>,
}

// SAFETY: S4: libibverbs locks the queue itself, and the pointer never changes. The pointers in
// the scratch space are used within one post only, under its lock.
unsafe impl Send for IbvSharedReceiveQueue {}
// SAFETY: as above.
unsafe impl Sync for IbvSharedReceiveQueue {}

impl IbvSharedReceiveQueue {
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        depth: u32,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, VerbsError> {
        let mut attributes = MaybeUninit::<ibv_srq_init_attr>::zeroed();
        // SAFETY: S2: all-zero bytes are a valid value.
        let attributes = unsafe { attributes.assume_init_mut() };
        attributes.attr.max_wr = depth;
        attributes.attr.max_sge = 1;
        let verbs = domain.context().verbs();
        // SAFETY: V1: the domain is allocated; the attributes are live.
        let pointer = unsafe { verbs.ibv_create_srq(domain.pointer().as_ptr(), attributes) };
        let pointer = check_pointer(pointer).map_err(|error| {
            let need = shared_receive_queue_len(depth);
            VerbsError::locking("create a shared receive queue", error, need, None)
        })?;
        let kept = ManuallyDrop::new((memory, Arc::clone(domain)));
        Ok(Self { pointer, scratch: Mutex::default(), kept })
    }

    /// The queue behind a trait object, if it is of this provider and domain.
    pub(crate) fn of(
        queue: &Arc<dyn RawSharedReceiveQueue>,
        domain: &Arc<ProtectionDomain>,
    ) -> Result<Arc<Self>, VerbsError> {
        let any: Arc<dyn Any + Send + Sync> = Arc::<dyn RawSharedReceiveQueue>::clone(queue);
        let queue = any.downcast::<Self>().ok().filter(|it| Arc::ptr_eq(&it.kept.1, domain));
        queue.ok_or(VerbsError::ForeignObject { what: "the shared receive queue" })
    }

    fn verbs(&self) -> Verbs {
        self.kept.1.context().verbs()
    }

    pub(crate) fn pointer(&self) -> NonNull<ibv_srq> {
        self.pointer
    }
}

/// A segment as libibverbs has it.
pub(crate) fn scatter_entry(segment: RawSegment) -> ibv_sge {
    ibv_sge { addr: segment.address, length: segment.len, lkey: segment.key.0 }
}

// SAFETY: V6: `kept` holds the memory until the queue was destroyed and for ever if it was not.
// Queue pairs keep an `Arc` of this value.
unsafe impl RawSharedReceiveQueue for IbvSharedReceiveQueue {
    unsafe fn post_receive(&self, requests: &[RawReceive]) -> Result<(), PartialPost> {
        let mut scratch = self.scratch.lock();
        let Scratch { requests: chain, segments } = &mut *scratch;
        segments.clear();
        segments.extend(requests.iter().map(|request| scatter_entry(request.segment)));
        chain.clear();
        chain.extend(requests.iter().zip(segments.iter_mut()).map(|(request, segment)| {
            ibv_recv_wr { wr_id: request.work_id, next: null_mut(), sg_list: segment, num_sge: 1 }
        }));
        let mut first = null_mut();
        for entry in chain.iter_mut().rev() {
            entry.next = first;
            first = entry;
        }
        if first.is_null() {
            return Ok(());
        }
        let mut refused = null_mut();
        // SAFETY: V1: the queue exists; the chain and its segments are live. The memory that they
        // name is the caller's promise.
        let code = unsafe {
            self.verbs().ibv_post_srq_recv(self.pointer.as_ptr(), first, &raw mut refused)
        };
        let Err(error) = check_errno(code) else { return Ok(()) };
        let refused = chain.iter().position(|entry| ptr::eq(entry, refused));
        // V4: a device that does not say what it refused may have taken everything.
        let accepted = refused.unwrap_or(requests.len());
        Err(PartialPost { accepted, errno: error.raw_os_error().unwrap_or(libc::EIO) })
    }

    fn arm_limit(&self, limit: u32) -> Result<(), VerbsError> {
        let mut attributes = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        // Never the depth: a failing change of it has crashed kernels.
        let mask = IBV_SRQ_LIMIT.cast_signed();
        // SAFETY: V1: the queue exists; the attributes are live.
        let code = unsafe {
            self.verbs().ibv_modify_srq(self.pointer.as_ptr(), &raw mut attributes, mask)
        };
        check_errno(code)
            .map_err(|error| VerbsError::system("arm a shared receive queue's limit", error))
    }
}

impl Drop for IbvSharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: V1: its queue pairs held it and are gone.
        let freed = check_errno(unsafe { self.verbs().ibv_destroy_srq(self.pointer.as_ptr()) });
        match self.kept.1.context().destroyed("destroy a shared receive queue", freed) {
            // SAFETY: V6: the device has forgotten the queue, and `drop` runs once.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.kept) },
            Err(error) => {
                tracing::error!(
                    target: "farcall::rdma",
                    %error, "cannot destroy a shared receive queue; it is leaked"
                );
            }
        }
    }
}

impl fmt::Debug for IbvSharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IbvSharedReceiveQueue").finish_non_exhaustive()
    }
}
