//! Memory for frames, as far as there is room for them in the queue.
//!
//! Small frames have room while fewer bytes than a bound wait, which is checked under the queue's
//! lock. Large ones have permits, so that senders that wait are served in order, whatever the
//! lengths of their frames.

use bytes::Bytes;
use rpc_core::transport::TransportError;
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use crate::codec::record::SINGLE_LEN_MAX;
use crate::connection::shared::Shared;
use crate::send::batch::FreeList;
use crate::send::frame::{FrameBuffer, LargeShare, Tail};

impl<S> Shared<S> {
    /// Memory for a frame, if there is room for it.
    pub(crate) fn try_buffer(&self, len: usize) -> Result<Option<FrameBuffer>, TransportError> {
        if len <= SINGLE_LEN_MAX {
            return self.try_small_buffer(len);
        }
        match self.large_budget.try_take(len) {
            Ok(permit) => Ok(Some(self.large_buffer(len, permit))),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(self.closed()),
        }
    }

    /// Memory for a frame, once there is room for it.
    pub(crate) async fn buffer(&self, len: usize) -> Result<FrameBuffer, TransportError> {
        if len > SINGLE_LEN_MAX {
            let permit = self.large_budget.take(len).await;
            return Ok(self.large_buffer(len, permit.map_err(|_| self.closed())?));
        }
        loop {
            // Before the look at the queue, so that room that is made after it is not missed.
            let room = self.room.notified();
            if let Some(buffer) = self.try_small_buffer(len)? {
                return Ok(buffer);
            }
            room.await;
        }
    }

    /// The right to send the end of a frame from where it lies. Where there is no room for it, the
    /// frame waits for room as a whole; so does one whose head needs room for large frames, too,
    /// which might never come while the tail has its own.
    pub(crate) fn try_tail(&self, head_len: usize, bytes: &Bytes) -> Option<Tail> {
        if head_len > SINGLE_LEN_MAX {
            return None;
        }
        let permit = self.large_budget.try_take(head_len + bytes.len()).ok()?;
        let share = self.large_share(head_len + bytes.len(), permit);
        Some(Tail { bytes: bytes.clone(), share })
    }

    fn try_small_buffer(&self, len: usize) -> Result<Option<FrameBuffer>, TransportError> {
        let memory_len = FrameBuffer::memory_len(len);
        let kept = {
            let mut queue = self.queue();
            if let Some(reason) = queue.close_reason() {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
            if !queue.has_room() {
                queue.await_room();
                return Ok(None);
            }
            queue.free_list.take(memory_len)
        };
        let memory = kept.unwrap_or_else(|| FreeList::allocate(&self.pool, memory_len));
        Ok(Some(FrameBuffer::new(memory, None)))
    }

    fn large_buffer(&self, len: usize, permit: OwnedSemaphorePermit) -> FrameBuffer {
        let share = self.large_share(len, permit);
        FrameBuffer::new(self.pool.take(FrameBuffer::memory_len(len)), Some(share))
    }

    fn large_share(&self, len: usize, permit: OwnedSemaphorePermit) -> LargeShare {
        let charge = self.memory.get().map(|memory| memory.take(len as u64));
        LargeShare { _permit: permit, _charge: charge.unwrap_or_default() }
    }

    fn closed(&self) -> TransportError {
        TransportError::Closed { reason: self.close_reason() }
    }
}
