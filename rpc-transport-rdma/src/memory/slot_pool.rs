//! Equal slots cut from one region, for the small messages that are sent.
//!
//! The pool allocates nothing after it was made: the free list has its full capacity and the
//! semaphore links its waiters through their own futures. Receive slots are not from here; they
//! belong to their shared receive queue, so that sending can never starve receiving.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Access, Region};
use crate::sys::provider::{Device, RawSegment, VerbsError};

/// Slots begin at multiples of a cache line, so that two never share one.
const ALIGNMENT: usize = 64;

/// A fixed number of slots of a fixed length in one registered region.
pub struct SlotPool {
    region: Region,
    slot_len: usize,
    stride: usize,
    count: u32,
    free: Mutex<Vec<u32>>,
    /// One permit for each index in the free list that no waiter has been promised yet.
    available: Semaphore,
}

impl SlotPool {
    /// Makes a pool of `count` slots of `slot_len` bytes and registers its memory.
    ///
    /// # Errors
    ///
    /// [`VerbsError::LimitExceeded`] when the pool would not fit the address space,
    /// [`VerbsError::MemoryLock`] when it cannot be pinned, or what the system said.
    pub fn new(device: &Device, count: u32, slot_len: usize) -> Result<Arc<Self>, VerbsError> {
        let stride = slot_len.max(1).checked_next_multiple_of(ALIGNMENT);
        let len = stride.and_then(|stride| stride.checked_mul(count as usize));
        let (Some(stride), Some(len)) = (stride, len) else {
            let (wanted, max) = (slot_len as u64, usize::MAX as u64);
            return Err(VerbsError::LimitExceeded { what: "slot length", wanted, max });
        };
        Ok(Arc::new(Self {
            region: Region::new(device, len, Access::Eager)?,
            slot_len,
            stride,
            count,
            free: Mutex::new((0..count).rev().collect()),
            available: Semaphore::new(count as usize),
        }))
    }

    /// Takes a slot, or `None` when all are in use or promised to waiters.
    #[must_use]
    pub fn try_take(self: &Arc<Self>) -> Option<Slot> {
        let permit = self.available.try_acquire().ok()?;
        permit.forget();
        Some(self.take_promised())
    }

    /// Takes a slot, waiting for one in the order of asking.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its place in the queue and nothing else.
    pub async fn take(self: &Arc<Self>) -> Slot {
        let permit = self.available.acquire().await;
        permit.expect("the semaphore is never closed").forget();
        self.take_promised()
    }

    /// Length of a slot in bytes.
    #[must_use]
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Number of slots, in use or not.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of slots that are neither in use nor promised to a waiter.
    #[must_use]
    pub fn available(&self) -> usize {
        self.available.available_permits()
    }

    fn take_promised(self: &Arc<Self>) -> Slot {
        let index = self.free.lock().pop();
        let index = index.expect("a permit stands for an index in the free list");
        Slot { pool: Arc::clone(self), index }
    }
}

impl fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotPool")
            .field("count", &self.count)
            .field("slot_len", &self.slot_len)
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// One slot of a pool; back in the pool when dropped.
pub struct Slot {
    pool: Arc<SlotPool>,
    index: u32,
}

impl Slot {
    /// The first `len` bytes as a work request names them.
    ///
    /// # Panics
    ///
    /// Panics if the slot is shorter than that.
    pub(crate) fn segment(&self, len: u32) -> RawSegment {
        assert!(len as usize <= self.pool.slot_len, "{len} bytes in a {self:?}");
        self.pool.region.segment(self.offset(), len)
    }

    /// Returns true if its memory is registered with this opening of a device.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        self.pool.region.is_of(device)
    }

    fn offset(&self) -> usize {
        self.index as usize * self.pool.stride
    }

    fn span(&self) -> NonNull<[u8]> {
        self.pool.region.span(self.offset(), self.pool.slot_len)
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: M1, M3, M4: the span is initialised, only this value owns it, and no device
        // writes to it; the borrow of `self` keeps it and the pool.
        unsafe { self.span().as_ref() }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: M1, M3, M4: as above, and the borrow is exclusive.
        unsafe { self.span().as_mut() }
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let free = &self.pool.free;
        free.lock().push(self.index);
        self.pool.available.add_permits(1);
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot {} of {} bytes", self.index, self.pool.slot_len)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::testing::scripted::ScriptedDevice;

    fn pool(count: u32, slot_len: usize) -> Arc<SlotPool> {
        SlotPool::new(&ScriptedDevice::new().device(), count, slot_len).unwrap()
    }

    #[test]
    fn slots_are_disjoint_and_come_back() {
        let pool = pool(3, 100);
        let mut slots: Vec<Slot> = std::iter::from_fn(|| pool.try_take()).collect();
        assert_eq!(slots.len(), 3);
        for (fill, slot) in (1u8..).zip(&mut slots) {
            slot.fill(fill);
        }
        for (fill, slot) in (1u8..).zip(&slots) {
            assert_eq!(slot[..], [fill; 100]);
        }
        drop(slots);
        assert_eq!(pool.available(), 3);
    }

    #[test]
    fn waiters_get_slots_in_order_and_no_caller_overtakes_them() {
        let pool = pool(1, 8);
        let held = pool.try_take().unwrap();
        let (mut first, mut second) = (pin!(pool.take()), pin!(pool.take()));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(context).is_pending());
        assert!(second.as_mut().poll(context).is_pending());
        drop(held);
        assert!(pool.try_take().is_none(), "the slot was promised to the first waiter");
        assert!(second.as_mut().poll(context).is_pending());
        let Poll::Ready(slot) = first.as_mut().poll(context) else { panic!("no slot") };
        drop(slot);
        assert!(second.as_mut().poll(context).is_ready());
    }

    #[test]
    fn a_waiter_that_gives_up_loses_no_slot() {
        let pool = pool(1, 8);
        let held = pool.try_take().unwrap();
        let mut waiter = Box::pin(pool.take());
        assert!(waiter.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(held);
        drop(waiter);
        assert!(pool.try_take().is_some());
    }

    #[test]
    #[should_panic(expected = "9 bytes in a Slot 0 of 8 bytes")]
    fn a_segment_longer_than_its_slot_is_a_bug() {
        let _ = pool(1, 8).try_take().unwrap().segment(9);
    }
}
