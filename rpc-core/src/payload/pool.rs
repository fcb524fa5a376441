//! Plain memory for frames, used again and again.
//!
//! Fresh memory costs a page fault for every 4 KiB: a 1 MiB frame in fresh memory takes twenty
//! times as long as in memory that was touched before. Buffers are kept by power-of-two class and
//! come back when the last `Bytes` that aliases them is dropped. Registered memory, which a device
//! reads and writes, is not this pool's concern.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

pub use super::block::{SHORT_LEN_MAX, copy_short, copy_with_next};

/// The smallest class: below it, keeping costs more than allocating.
const CLASS_MIN_LOG2: u32 = 12;
/// The largest class that is kept: 128 MiB.
const CLASS_MAX_LOG2: u32 = 27;
const CLASS_COUNT: usize = (CLASS_MAX_LOG2 - CLASS_MIN_LOG2 + 1) as usize;

/// A pool of plain memory; clones share it.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    free: Mutex<Free>,
    kept_bytes_max: usize,
}

struct Free {
    classes: [Vec<Vec<u8>>; CLASS_COUNT],
    kept_bytes: usize,
}

impl Pool {
    /// A pool that keeps at most `kept_bytes_max` bytes of unused memory.
    #[must_use]
    pub fn new(kept_bytes_max: usize) -> Self {
        let free = Free { classes: Default::default(), kept_bytes: 0 };
        Self { shared: Arc::new(Shared { free: Mutex::new(free), kept_bytes_max }) }
    }

    /// A buffer of exactly `len` bytes with unspecified contents.
    #[must_use]
    pub fn take(&self, len: usize) -> PoolBuffer {
        let class = class_of(len);
        let kept = class.and_then(|class| self.shared.take(class));
        let memory = kept.unwrap_or_else(|| vec![0; class.map_or(len, class_len)]);
        let pool = class.map(|_| Arc::clone(&self.shared));
        PoolBuffer { memory, len, pool }
    }

    /// Returns true if unused memory of that length may be kept.
    #[must_use]
    pub fn keeps(&self, len: usize) -> bool {
        class_of(len).is_some_and(|class| class_len(class) <= self.shared.kept_bytes_max)
    }

    /// A copy of `bytes`. A short one, of which nothing would be kept, is made by [`copy_short`].
    #[must_use]
    #[inline]
    pub fn copy(&self, bytes: &[u8]) -> Bytes {
        if class_of(bytes.len()).is_none() {
            return copy_short(bytes);
        }
        let mut buffer = self.take(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer.freeze()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept_bytes = self.shared.lock().kept_bytes;
        f.debug_struct("Pool").field("kept_bytes", &kept_bytes).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> parking_lot::MutexGuard<'_, Free> {
        self.free.lock()
    }

    fn take(&self, class: usize) -> Option<Vec<u8>> {
        let mut free = self.lock();
        let memory = free.classes[class].pop()?;
        free.kept_bytes -= memory.len();
        Some(memory)
    }

    fn keep(&self, memory: Vec<u8>) {
        let Some(class) = class_of(memory.len()) else { return };
        // Memory that is not kept is freed with the argument, after the lock.
        let mut free = self.lock();
        if free.kept_bytes + memory.len() <= self.kept_bytes_max {
            free.kept_bytes += memory.len();
            free.classes[class].push(memory);
        }
    }
}

fn class_of(len: usize) -> Option<usize> {
    let log2 = len.checked_next_power_of_two()?.trailing_zeros();
    (CLASS_MIN_LOG2..=CLASS_MAX_LOG2).contains(&log2).then(|| (log2 - CLASS_MIN_LOG2) as usize)
}

fn class_len(class: usize) -> usize {
    1 << (class + CLASS_MIN_LOG2 as usize)
}

/// Memory of a [`Pool`]; dropped, it goes back.
pub struct PoolBuffer {
    memory: Vec<u8>,
    len: usize,
    pool: Option<Arc<Shared>>,
}

impl PoolBuffer {
    /// The same memory for `len` bytes with unspecified contents; `None` when it is too short.
    #[must_use]
    pub fn resized(mut self, len: usize) -> Option<Self> {
        self.len = len;
        (len <= self.memory.len()).then_some(self)
    }

    /// The contents as `Bytes` that alias them; the memory goes back with the last alias.
    #[must_use]
    pub fn freeze(mut self) -> Bytes {
        if self.pool.is_some() {
            return Bytes::from_owner(self);
        }
        self.memory.truncate(self.len);
        Bytes::from(std::mem::take(&mut self.memory))
    }
}

impl Deref for PoolBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl DerefMut for PoolBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

impl AsRef<[u8]> for PoolBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for PoolBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.keep(std::mem::take(&mut self.memory));
        }
    }
}

impl fmt::Debug for PoolBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_the_last_alias_is_dropped() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(100_000);
        buffer.fill(7);
        let address = buffer.as_ptr();
        let bytes = buffer.freeze();
        let alias = bytes.slice(10..20);
        drop(bytes);
        assert_ne!(pool.take(100_000).as_ptr(), address);
        assert_eq!(alias[..], [7; 10]);
        drop(alias);
        let again: Vec<_> = (0..2).map(|_| pool.take(70_000)).collect();
        assert!(again.iter().any(|buffer| buffer.as_ptr() == address));
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let pool = Pool::new(8192);
        let buffers: Vec<_> = (0..3).map(|_| pool.take(4096)).collect();
        drop(buffers);
        assert_eq!(pool.shared.lock().kept_bytes, 8192);
    }

    #[test]
    fn small_and_huge_buffers_are_exact_and_not_kept() {
        let pool = Pool::new(1 << 20);
        for len in [0, 1, 100] {
            assert_eq!(pool.take(len).len(), len);
            assert_eq!(pool.take(len).freeze().len(), len);
            assert_eq!(pool.copy(&vec![7; len]), vec![7; len]);
        }
        assert_eq!(pool.shared.lock().kept_bytes, 0);
    }
}
