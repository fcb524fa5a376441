//! A completion queue with a completion channel of its own.

use std::any::Any;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as TaskContext, Poll};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::abi::{self, Verbs, ibv_comp_channel, ibv_cq, ibv_wc};
use crate::sys::provider::ibverbs::context::{Context, set_non_blocking};
use crate::sys::provider::ibverbs::readiness::{Readiness, Taken};
use crate::sys::provider::queue_memory::completion_queue_len;
use crate::sys::provider::{RawCompletion, RawCompletionQueue, RemoteKey, VerbsError};
use crate::sys::{check_errno, check_pointer};

/// Events are acknowledged in batches, because each acknowledgement takes a mutex.
const ACKNOWLEDGE_EVERY: u32 = 64;

/// Completions taken in one call of libibverbs: room for more would be zeroed with each poll.
const BATCH: usize = 8;

/// A completion channel; destroyed when dropped.
#[derive(Debug)]
struct Channel {
    pointer: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

impl Channel {
    fn new(context: &Arc<Context>) -> Result<Self, VerbsError> {
        let failed = |error| VerbsError::system("create a completion channel", error);
        // SAFETY: V1: the context is open.
        let pointer =
            unsafe { context.verbs().ibv_create_comp_channel(context.pointer().as_ptr()) };
        let pointer = check_pointer(pointer).map_err(failed)?;
        let channel = Self { pointer, context: Arc::clone(context) };
        set_non_blocking(channel.descriptor())?;
        Ok(channel)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: V1: the channel exists as long as `self`.
        let descriptor = unsafe { self.pointer.as_ref() }.fd;
        // SAFETY: the descriptor is the channel's own and open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: V1: its completion queue held it and is gone.
        let code = unsafe { self.context.verbs().ibv_destroy_comp_channel(self.pointer.as_ptr()) };
        if let Err(error) = check_errno(code) {
            tracing::error!(target: "farcall::rdma", %error, "cannot destroy a completion channel");
        }
    }
}

#[derive(Debug)]
pub(crate) struct IbvCompletionQueue {
    pointer: NonNull<ibv_cq>,
    capacity: u32,
    /// Events taken from the channel and not acknowledged yet.
    unacknowledged: AtomicU32,
    readiness: Readiness,
    /// Dropped only after the queue was destroyed.
    channel: ManuallyDrop<Channel>,
}

// SAFETY: S4: libibverbs locks the queue and the channel itself; the pointers never change and the
// rest is made for sharing.
unsafe impl Send for IbvCompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for IbvCompletionQueue {}

impl IbvCompletionQueue {
    pub(crate) fn new(
        context: &Arc<Context>,
        capacity: u32,
        vector: u32,
    ) -> Result<Self, VerbsError> {
        let channel = Channel::new(context)?;
        let entries = i32::try_from(capacity).unwrap_or(i32::MAX);
        let vector = i32::try_from(vector).unwrap_or(0);
        // SAFETY: V1: the context and its channel exist.
        let pointer = unsafe {
            let (open, channel) = (context.pointer().as_ptr(), channel.pointer.as_ptr());
            context.verbs().ibv_create_cq(open, entries, null_mut(), channel, vector)
        };
        let pointer = check_pointer(pointer).map_err(|error| {
            let need = completion_queue_len(capacity);
            VerbsError::locking("create a completion queue", error, need, None)
        })?;
        // SAFETY: V1: just created.
        let granted = unsafe { pointer.as_ref() }.cqe;
        Ok(Self {
            pointer,
            capacity: u32::try_from(granted).unwrap_or(capacity),
            unacknowledged: AtomicU32::new(0),
            readiness: Readiness::default(),
            channel: ManuallyDrop::new(channel),
        })
    }

    /// The queue behind a trait object, if it is of this provider and opening of a device.
    pub(crate) fn of(
        queue: &Arc<dyn RawCompletionQueue>,
        context: &Arc<Context>,
    ) -> Result<Arc<Self>, VerbsError> {
        let any: Arc<dyn Any + Send + Sync> = Arc::<dyn RawCompletionQueue>::clone(queue);
        let queue = any.downcast::<Self>().ok();
        let queue = queue.filter(|queue| Arc::ptr_eq(&queue.channel.context, context));
        queue.ok_or(VerbsError::ForeignObject { what: "the completion queue" })
    }

    fn verbs(&self) -> Verbs {
        self.channel.context.verbs()
    }

    pub(crate) fn pointer(&self) -> NonNull<ibv_cq> {
        self.pointer
    }

    /// Takes all events from the channel.
    fn take_events(&self) -> Result<Taken<()>, VerbsError> {
        let mut taken = Taken::Nothing;
        loop {
            let (mut queue, mut tag) = (null_mut(), null_mut());
            // SAFETY: V1: the channel exists and does not block; the out parameters are live.
            let code = unsafe {
                let channel = self.channel.pointer.as_ptr();
                self.verbs().ibv_get_cq_event(channel, &raw mut queue, &raw mut tag)
            };
            if code == 0 {
                taken = Taken::All(());
                self.count_event();
                continue;
            }
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => Ok(taken),
                io::ErrorKind::Interrupted => continue,
                _ => Err(VerbsError::system("read a completion event", error)),
            };
        }
    }

    /// Takes at most [`BATCH`] completions.
    fn poll_chunk(&self, out: &mut [RawCompletion]) -> Result<usize, VerbsError> {
        // Zeroed, because a provider may leave fields of a completion unwritten.
        let mut batch = [const { MaybeUninit::<ibv_wc>::zeroed() }; BATCH];
        let wanted = out.len().min(BATCH);
        let entries = i32::try_from(wanted).unwrap_or(0);
        // SAFETY: V1: the queue exists; the array has room for at least `entries`.
        let count = unsafe {
            self.verbs().ibv_poll_cq(self.pointer.as_ptr(), entries, batch.as_mut_ptr().cast())
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(poll_failed(count));
        };
        let count = count.min(wanted);
        for (entry, raw) in batch.iter().zip(out.iter_mut()).take(count) {
            // SAFETY: S1, S2: zeroed bytes are a valid value and the call wrote integers over them.
            *raw = completion(unsafe { entry.assume_init_ref() });
        }
        Ok(count)
    }

    fn count_event(&self) {
        if self.unacknowledged.fetch_add(1, Ordering::Relaxed) + 1 >= ACKNOWLEDGE_EVERY {
            self.acknowledge();
        }
    }

    fn acknowledge(&self) {
        let count = self.unacknowledged.swap(0, Ordering::Relaxed);
        if count > 0 {
            // SAFETY: V1: the queue exists; this many events of it, the only queue of its channel,
            // were taken and not acknowledged, for the swap gives each to one caller.
            unsafe { self.verbs().ibv_ack_cq_events(self.pointer.as_ptr(), count) };
        }
    }
}

// SAFETY: libibverbs takes each completion off the queue under its lock, after the device has
// written it, and the device writes it after it is done with the memory (V3). Reading it comes with
// the barrier that makes the device's writes visible.
unsafe impl RawCompletionQueue for IbvCompletionQueue {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn poll(&self, out: &mut [RawCompletion]) -> Result<usize, VerbsError> {
        let mut count = 0;
        for chunk in out.chunks_mut(BATCH) {
            let taken = self.poll_chunk(chunk)?;
            count += taken;
            if taken < chunk.len() {
                break;
            }
        }
        Ok(count)
    }

    fn arm(&self) -> Result<(), VerbsError> {
        // SAFETY: V1: the queue exists.
        let code = unsafe { self.verbs().ibv_req_notify_cq(self.pointer.as_ptr(), 0) };
        check_errno(code).map_err(|error| VerbsError::system("arm a completion queue", error))
    }

    fn poll_event(&self, context: &mut TaskContext<'_>) -> Poll<Result<(), VerbsError>> {
        self.readiness.poll(self.channel.descriptor(), context, || self.take_events())
    }

    fn has_event(&self) -> bool {
        let mut channel = [PollFd::new(self.channel.descriptor(), PollFlags::POLLIN)];
        // A channel that cannot be asked is for the worker's task to find.
        poll(&mut channel, PollTimeout::ZERO).is_ok_and(|ready_count| ready_count > 0)
    }
}

/// Flags that say that a message took a key away: what verbs calls it, and what rxe reports, which
/// hands the kernel's own flags to user space. There the bit is user space's "checksum is right",
/// which a reliable connection does not use.
const INVALIDATED: u32 = abi::IBV_WC_WITH_INV | abi::IBV_WC_IP_CSUM_OK;

/// The error of a failed poll. A provider returns a number of its own that is no error number:
/// libmlx5 and libmlx4 have -2 for a queue that is broken.
fn poll_failed(code: i32) -> VerbsError {
    let error = io::Error::other(format!("libibverbs returned {code}"));
    VerbsError::system("poll a completion queue", error)
}

fn completion(entry: &ibv_wc) -> RawCompletion {
    // SAFETY: S2: both halves of the union are 32 plain bits.
    let key = unsafe { entry.imm_data_invalidated_rkey_union.invalidated_rkey };
    RawCompletion {
        work_id: entry.wr_id,
        status: entry.status,
        opcode: entry.opcode,
        vendor_error: entry.vendor_err,
        byte_len: entry.byte_len,
        queue_pair_number: entry.qp_num,
        invalidated_key: (entry.wc_flags & INVALIDATED != 0).then_some(RemoteKey(key)),
    }
}

impl Drop for IbvCompletionQueue {
    fn drop(&mut self) {
        // Leaves the runtime's poller before the channel's descriptor is closed.
        self.readiness.release();
        // Destroying waits until all events are acknowledged.
        self.acknowledge();
        // SAFETY: V1: its queue pairs held it and are gone.
        let freed = check_errno(unsafe { self.verbs().ibv_destroy_cq(self.pointer.as_ptr()) });
        match self.channel.context.destroyed("destroy a completion queue", freed) {
            // SAFETY: V1: its queue is gone, and `drop` runs once.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.channel) },
            Err(error) => tracing::error!(
                target: "farcall::rdma", %error, "cannot destroy a completion queue"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_failed_poll_is_not_taken_for_an_error_number() {
        let error = poll_failed(-2);
        let cause = error.source().map(ToString::to_string);
        assert_eq!(error.to_string(), "cannot poll a completion queue");
        assert_eq!(cause.as_deref(), Some("libibverbs returned -2"));
    }
}
