//! Memory for frames, as far as the queue has room for them.
//!
//! Small frames have room while the waiting bytes are below a bound, checked under the queue's
//! lock. Large frames take permits, so that waiting senders are served in order, whatever the
//! lengths of their frames.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use rpc_core::pool::PoolBuffer;
use rpc_core::transport::{OutFrame, TransportError};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};

use crate::codec::record::SINGLE_LEN_MAX;
use crate::connection::shared::ConnectionShared;
use crate::send::frame::{FrameBuffer, LargeShare};

impl<S> ConnectionShared<S> {
    /// Returns memory for a frame, if there is room for it.
    pub(crate) fn try_buffer(
        &self,
        frame: &OutFrame<'_>,
    ) -> Result<Option<FrameBuffer>, TransportError> {
        // The tail takes its permit before the head takes memory: a permit is returned on drop, so
        // either may fail.
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

    /// Waits until there is room for a frame, and returns memory for it.
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

    /// Returns a frame's tail and its share of the budgets, if the tail can be sent without a copy.
    ///
    /// Without room for the tail, the whole frame waits for room. A frame whose head also needs
    /// room for large frames waits as a whole, too: its tail could hold the room that the head
    /// waits for.
    fn try_tail(&self, frame: &OutFrame<'_>) -> Option<(Bytes, LargeShare)> {
        let tail = frame.tail()?;
        if frame.head_len() > SINGLE_LEN_MAX {
            return None;
        }
        let len = frame.len();
        let permit = self.large_budget.try_take(len).ok()?;
        Some((tail.clone(), self.large_share(len, permit)))
    }

    // The block bounds the lock: taking memory from the pool may allocate.
    fn try_small_memory(&self, len: usize) -> Result<Option<PoolBuffer>, TransportError> {
        {
            let mut queue = self.queue();
            if let Some(reason) = queue.close_reason() {
                return Err(TransportError::Closed { reason: reason.clone() });
            }
            // Registered under the same lock as the check, so that room made in between still wakes
            // this sender.
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
            // Created before the queue is checked, so that room made after the check is not missed.
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
