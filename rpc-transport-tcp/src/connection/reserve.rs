//! Memory for frames, as far as there is room for them in the queue.
//!
//! Small frames have room while fewer bytes than a bound wait, which is checked under the queue's
//! lock. Large ones have permits, so that senders that wait are served in order, whatever the
//! lengths of their frames.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use rpc_core::pool::PoolBuffer;
use rpc_core::transport::{OutFrame, TransportError};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use crate::codec::record::SINGLE_LEN_MAX;
use crate::connection::shared::Shared;
use crate::send::frame::{FrameBuffer, LargeShare};

impl<S> Shared<S> {
    /// Memory for a frame, if there is room for it.
    pub(crate) fn try_buffer(
        &self,
        frame: &OutFrame<'_>,
    ) -> Result<Option<FrameBuffer>, TransportError> {
        if let Some((tail, share)) = self.try_tail(frame) {
            let head = self.try_small_memory(frame.head_len())?;
            return Ok(head.map(|head| FrameBuffer::large(head, tail, share)));
        }
        let len = frame.len();
        if len <= SINGLE_LEN_MAX {
            return Ok(self.try_small_memory(len)?.map(FrameBuffer::small));
        }
        match self.large_budget.try_take(len) {
            Ok(permit) => Ok(Some(self.large_buffer(len, permit))),
            Err(TryAcquireError::NoPermits) => Ok(None),
            Err(TryAcquireError::Closed) => Err(self.closed()),
        }
    }

    /// Memory for a frame, once there is room for it.
    pub(crate) async fn buffer(&self, frame: &OutFrame<'_>) -> Result<FrameBuffer, TransportError> {
        if let Some((tail, share)) = self.try_tail(frame) {
            let head = self.small_memory(frame.head_len()).await?;
            return Ok(FrameBuffer::large(head, tail, share));
        }
        let len = frame.len();
        if len <= SINGLE_LEN_MAX {
            return Ok(FrameBuffer::small(self.small_memory(len).await?));
        }
        let permit = self.large_budget.take(len).await;
        Ok(self.large_buffer(len, permit.map_err(|_| self.closed())?))
    }

    /// The end of a frame and its share of the budgets, if it can be sent from where it lies. Where
    /// there is no room for it, the frame waits for room as a whole; so does one whose head needs
    /// room for large frames, too, which might never come while the tail has its own.
    fn try_tail(&self, frame: &OutFrame<'_>) -> Option<(Bytes, LargeShare)> {
        let tail = frame.tail()?;
        if frame.head_len() > SINGLE_LEN_MAX {
            return None;
        }
        let len = frame.len();
        let permit = self.large_budget.try_take(len).ok()?;
        Some((tail.clone(), self.large_share(len, permit)))
    }

    fn try_small_memory(&self, len: usize) -> Result<Option<PoolBuffer>, TransportError> {
        {
            let mut queue = self.queue();
            if let Some(reason) = queue.close_reason() {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
            if !queue.has_room() {
                queue.await_room();
                return Ok(None);
            }
            self.is_full.store(false, Ordering::Relaxed);
        }
        Ok(Some(self.pool.take(FrameBuffer::memory_len(len))))
    }

    async fn small_memory(&self, len: usize) -> Result<PoolBuffer, TransportError> {
        loop {
            // Before the look at the queue, so that room that is made after it is not missed.
            let room = self.room.notified();
            if let Some(memory) = self.try_small_memory(len)? {
                return Ok(memory);
            }
            room.await;
        }
    }

    fn large_buffer(&self, len: usize, permit: OwnedSemaphorePermit) -> FrameBuffer {
        let (memory, share) = (FrameBuffer::memory_len(len), self.large_share(len, permit));
        FrameBuffer::large(self.pool.take(memory), Bytes::new(), share)
    }

    fn large_share(&self, len: usize, permit: OwnedSemaphorePermit) -> LargeShare {
        let charge = self.memory.get().map(|memory| memory.take(len as u64));
        LargeShare { _permit: permit, _charge: charge.unwrap_or_default() }
    }

    fn closed(&self) -> TransportError {
        TransportError::Closed { reason: self.close_reason() }
    }
}
