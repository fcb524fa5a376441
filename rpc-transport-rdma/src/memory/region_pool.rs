//! Whole regions for large messages, kept registered between uses.
//!
//! Registering costs about 20 us and 70 us more for each MiB, so buffers are cached by size class
//! and evicted only when another class needs the budget. One buffer is one region with one key:
//! what a peer is offered opens nothing but that buffer.
//!
//! Two budgets are really one: permits of a semaphore stand for bytes in use, so waiting is fair,
//! and cached bytes fill the rest. Whoever holds permits for a class can always make room by
//! evicting, because what is in use never exceeds the budget.
//!
//! Known limit of the `region` policy (D15): a buffer keeps its key between uses, so a peer that
//! remembers an old offer can read what the buffer holds next. Buffers of [`Access::Windowed`] have
//! no key of their own that opens anything; a window gives them one for each offer.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use super::size_class::{COUNT, SMALLEST_BYTES, SizeClass};
use super::{Access, LargeBuffer, Region};
use crate::verbs::{Device, VerbsError};

/// Large registered buffers within a budget of bytes.
pub struct RegionPool {
    device: Device,
    access: Access,
    units_max: u32,
    /// A permit is one unit, [`SMALLEST_BYTES`], that is not in use.
    unused: Semaphore,
    cache: Mutex<Cache>,
}

/// Regions that are registered and not in use.
#[derive(Default)]
struct Cache {
    by_class: [Vec<Arc<Region>>; COUNT],
    /// Units of regions in the cache.
    cached: usize,
    /// Units of regions in use, being registered or being dropped.
    in_use: usize,
}

/// Why there is no large buffer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Others use the budget now; it may be different later.
    #[error("no {len} bytes left of the large buffers' budget of {bytes_max} bytes")]
    Exhausted {
        /// Length asked for.
        len: usize,
        /// The budget.
        bytes_max: u64,
    },
    /// The buffer would be larger than the whole budget.
    #[error("{len} bytes exceed the large buffers' whole budget of {bytes_max} bytes")]
    TooLarge {
        /// Length asked for.
        len: usize,
        /// The budget.
        bytes_max: u64,
    },
    /// Memory could not be registered; [`VerbsError::MemoryLock`] names the limit that was hit.
    #[error(transparent)]
    Register(#[from] VerbsError),
}

impl RegionPool {
    /// Makes an empty pool whose buffers in use and in cache never exceed `bytes_max`, rounded
    /// down to multiples of the smallest class, 8 KiB.
    #[must_use]
    pub fn new(device: &Device, access: Access, bytes_max: u64) -> Arc<Self> {
        let units_max = u32::try_from(bytes_max / SMALLEST_BYTES as u64).unwrap_or(u32::MAX);
        Arc::new(Self {
            device: device.clone(),
            access,
            units_max,
            unused: Semaphore::new(units_max as usize),
            cache: Mutex::default(),
        })
    }

    /// Takes a buffer of exactly `len` bytes, with whatever its last user left in it.
    ///
    /// # Errors
    ///
    /// [`PoolError::TooLarge`], [`PoolError::Exhausted`] when others use the budget or wait for
    /// it, or [`PoolError::Register`].
    pub fn try_take(self: &Arc<Self>, len: usize) -> Result<LargeBuffer, PoolError> {
        let class = self.class_for(len)?;
        let permit = self.unused.try_acquire_many(class.units());
        let permit =
            permit.map_err(|_| PoolError::Exhausted { len, bytes_max: self.bytes_max() })?;
        // Forgotten only when a buffer takes over the units, so an error gives them back.
        let region = self.region_for(class)?;
        permit.forget();
        Ok(LargeBuffer::new(Arc::clone(self), region, class, len))
    }

    /// Takes a buffer of exactly `len` bytes, waiting for budget in the order of asking.
    ///
    /// # Errors
    ///
    /// [`PoolError::TooLarge`] or [`PoolError::Register`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its place in the queue and nothing else.
    pub async fn take(self: &Arc<Self>, len: usize) -> Result<LargeBuffer, PoolError> {
        let class = self.class_for(len)?;
        let permit = self.unused.acquire_many(class.units()).await;
        let permit = permit.expect("the semaphore is never closed");
        let region = self.region_for(class)?;
        permit.forget();
        Ok(LargeBuffer::new(Arc::clone(self), region, class, len))
    }

    /// What the device may do with the buffers.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The budget in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        u64::from(self.units_max) * SMALLEST_BYTES as u64
    }

    /// Bytes in use, counted in whole buffers.
    #[must_use]
    pub fn bytes_in_use(&self) -> u64 {
        (self.cache().in_use * SMALLEST_BYTES) as u64
    }

    /// Bytes registered and not in use.
    #[must_use]
    pub fn bytes_cached(&self) -> u64 {
        (self.cache().cached * SMALLEST_BYTES) as u64
    }

    /// Takes back a buffer's region and wakes who waits for its budget.
    pub(super) fn put_back(&self, region: Arc<Region>, class: SizeClass) {
        let units = class.units();
        {
            let mut cache = self.cache();
            cache.in_use -= units as usize;
            cache.cached += units as usize;
            cache.by_class[class.position()].push(region);
        }
        self.unused.add_permits(units as usize);
    }

    fn class_for(&self, len: usize) -> Result<SizeClass, PoolError> {
        SizeClass::of(len)
            .filter(|class| class.units() <= self.units_max)
            .ok_or(PoolError::TooLarge { len, bytes_max: self.bytes_max() })
    }

    /// A region of the class for somebody who holds permits for it.
    fn region_for(&self, class: SizeClass) -> Result<Arc<Region>, VerbsError> {
        let units = class.units() as usize;
        let mut evicted = Vec::new();
        {
            let mut cache = self.cache();
            cache.in_use += units;
            if let Some(region) = cache.by_class[class.position()].pop() {
                cache.cached -= units;
                return Ok(region);
            }
            while cache.in_use + cache.cached > self.units_max as usize {
                evicted.push(cache.evict().expect("what is in use is within the budget"));
            }
        }
        // Deregistering and registering are slow, so the lock is not held meanwhile.
        drop(evicted);
        let region = self.register(class);
        if region.is_err() {
            self.cache().in_use -= units;
        }
        region
    }

    /// Registers a region; the cache makes way if the memory cannot be pinned otherwise.
    fn register(&self, class: SizeClass) -> Result<Arc<Region>, VerbsError> {
        let first = Region::new(&self.device, class.bytes(), self.access).map(Arc::new);
        if !matches!(first, Err(VerbsError::MemoryLock { .. })) {
            return first;
        }
        let evicted: Vec<Arc<Region>> = {
            let mut cache = self.cache();
            std::iter::from_fn(|| cache.evict()).collect()
        };
        if evicted.is_empty() {
            return first;
        }
        drop(evicted);
        Region::new(&self.device, class.bytes(), self.access).map(Arc::new)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// Takes a region of the largest class that has one: few evictions make much room.
    fn evict(&mut self) -> Option<Arc<Region>> {
        let (position, regions) =
            self.by_class.iter_mut().enumerate().rev().find(|(_, regions)| !regions.is_empty())?;
        self.cached -= 1 << position;
        regions.pop()
    }
}

impl fmt::Debug for RegionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionPool")
            .field("access", &self.access)
            .field("bytes_max", &self.bytes_max())
            .field("bytes_in_use", &self.bytes_in_use())
            .field("bytes_cached", &self.bytes_cached())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::verbs::mock::MockDevice;

    const KIB: usize = 1024;

    fn pool(mock: &MockDevice, bytes_max: usize) -> Arc<RegionPool> {
        RegionPool::new(&mock.device(), Access::Source, bytes_max as u64)
    }

    #[test]
    fn a_buffer_has_exactly_its_length_and_its_region_is_reused() {
        let mock = MockDevice::new();
        let pool = pool(&mock, 64 * KIB);
        let mut buffer = pool.try_take(10_000).unwrap();
        assert_eq!((buffer.len(), buffer.capacity()), (10_000, 16 * KIB));
        buffer.fill(7);
        let key = buffer.remote().key;
        drop(buffer);
        assert_eq!((pool.bytes_in_use(), pool.bytes_cached()), (0, 16 * KIB as u64));
        let again = pool.try_take(16 * KIB).unwrap();
        assert_eq!(again.remote().key, key);
        assert_eq!(mock.registrations(), 1);
    }

    #[test]
    fn cached_regions_make_way_for_another_class() {
        let mock = MockDevice::new();
        let pool = pool(&mock, 64 * KIB);
        let small: Vec<_> = (0..8).map(|_| pool.try_take(8 * KIB).unwrap()).collect();
        assert!(matches!(pool.try_take(1), Err(PoolError::Exhausted { len: 1, .. })));
        drop(small);
        assert_eq!(pool.bytes_cached(), 64 * KIB as u64);
        let large = pool.try_take(40 * KIB).unwrap();
        assert_eq!(large.capacity(), 64 * KIB);
        assert_eq!((pool.bytes_in_use(), pool.bytes_cached()), (64 * KIB as u64, 0));
        assert_eq!(mock.registered_bytes(), 64 * KIB);
    }

    #[test]
    fn more_than_the_budget_is_too_large() {
        let pool = pool(&MockDevice::new(), 20 * KIB);
        assert_eq!(pool.bytes_max(), 16 * KIB as u64);
        assert!(matches!(pool.try_take(16 * KIB + 1), Err(PoolError::TooLarge { .. })));
        assert!(matches!(pool.try_take(usize::MAX), Err(PoolError::TooLarge { .. })));
    }

    #[test]
    fn a_waiter_gets_the_budget_when_it_is_given_back() {
        let pool = pool(&MockDevice::new(), 16 * KIB);
        let held = pool.try_take(16 * KIB).unwrap();
        let mut waiter = pin!(pool.take(8 * KIB));
        let context = &mut Context::from_waker(Waker::noop());
        assert!(waiter.as_mut().poll(context).is_pending());
        drop(held.freeze());
        let Poll::Ready(buffer) = waiter.as_mut().poll(context) else { panic!("no buffer") };
        assert_eq!(buffer.unwrap().len(), 8 * KIB);
    }

    #[test]
    fn memory_that_cannot_be_pinned_evicts_the_cache_and_then_names_the_limit() {
        let mock = MockDevice::new();
        let pool = pool(&mock, 64 * KIB);
        drop(pool.try_take(8 * KIB).unwrap());
        mock.limit_registered_bytes(16 * KIB);
        let buffer = pool.try_take(16 * KIB).unwrap();
        let error = pool.try_take(16 * KIB).unwrap_err();
        assert!(matches!(error, PoolError::Register(VerbsError::MemoryLock { .. })), "{error}");
        assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
        drop(buffer);
        pool.try_take(16 * KIB).expect("the failure gave its budget back");
    }
}
