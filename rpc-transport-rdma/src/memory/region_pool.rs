//! Large registered buffers, kept registered between uses.
//!
//! Registering costs about 19 us and 70 us more for each MiB of touched pages, so what was
//! registered stays so until another class needs the budget. Buffers that peers may read by a key
//! are regions of their own, each with its own key: what a peer is offered opens nothing but that
//! buffer. All others are cut from slabs as long as that saves something: up to 64 KiB, where most
//! of a registration's time is its fixed part, in slabs of up to 512 KiB.
//!
//! Two budgets are really one: permits of a semaphore stand for bytes in use, so waiting is fair,
//! and what is registered and unused fills the rest. A holder of permits makes room by evicting,
//! and waits where that fails: because blocks in use keep their slabs, or because the process may
//! pin no more. Every wait is bounded by the pool's `wait_max`.
//!
//! Peers share the permits ([`FairSemaphore`]): a buffer that is taken for a peer counts as that
//! peer's until it is back, so that a peer which gives nothing back keeps half of the pool at most.
//! What the process takes for itself, and lends to applications, counts in the total alone.
//!
//! Known limit of the `region` policy (D15): a buffer keeps its key between uses, so a peer that
//! remembers an old offer can read what the buffer holds next. Buffers of [`Access::Windowed`] have
//! no key of their own that opens anything; a window gives them one for each offer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rpc_core::quota::PeerKey;
use rpc_core::quota::{Bound, Quota, Share};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::memlock::LockMode;
use super::registration::Refusal;
use super::{Access, Handout, LargeBuffer, Lent, LentBuffer, MemlockArbiter, PageKind};
use crate::memory::block_store::{BlockStore, Placed};
use crate::memory::handout::hand_out;
use crate::memory::slabs::{SMALLEST_BYTES, SizeClass};
use crate::quota::semaphore::{FairSemaphore, PeerShare, TooMuch};
use crate::sys::provider::{Device, VerbsError, page_len};

/// Default of the maximum wait for a buffer.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Large registered buffers within a budget of bytes.
pub struct RegionPool {
    handout: Handout,
    units_max: u32,
    wait_max: Duration,
    /// A permit is one unit, [`SMALLEST_BYTES`]; those that are taken are in use.
    units: Arc<FairSemaphore>,
    /// Permits for what applications may be lent: half of the budget, so that what they hold on to
    /// never keeps messages from being sent.
    lendable: Arc<Semaphore>,
    /// Shares of the peers in offered lent memory.
    lent_shares: Arc<Quota<PeerKey>>,
    store: Arc<BlockStore>,
}

/// The rules of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolRules {
    /// The device's access to the pool's buffers.
    pub access: Access,
    /// Contents of buffers at their handout.
    pub handout: Handout,
    /// Bytes in use and registered at most, rounded down to multiples of 8 KiB.
    pub bytes_max: u64,
    /// Maximum wait for a buffer.
    pub wait_max: Duration,
}

/// Why there is no large buffer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Others use the budget now; it may be different later.
    #[error(
        "no {len} bytes left of the {bytes_max} for large buffers (rdma.max_source_bytes to send, \
         rdma.max_sink_bytes to receive)"
    )]
    Exhausted {
        /// Length asked for.
        len: usize,
        /// The budget.
        bytes_max: u64,
    },
    /// The peer that the buffer is for has its share of the budget; others have room.
    #[error(
        "{len} bytes are over the peer's share of the {bytes_max} for large buffers, of which it \
         has {held} (rdma.max_source_bytes to send, rdma.max_sink_bytes to receive)"
    )]
    OverShare {
        /// Length asked for.
        len: usize,
        /// Bytes that the peer has.
        held: u64,
        /// The budget.
        bytes_max: u64,
    },
    /// The buffer would be larger than the whole budget.
    #[error(
        "{len} bytes exceed the {bytes_max} for large buffers (rdma.max_source_bytes to send, \
         rdma.max_sink_bytes to receive)"
    )]
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

/// A pool's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolBytes {
    /// Buffers in use, counted in whole size classes.
    pub in_use: u64,
    /// Everything registered, in use or not.
    pub registered: u64,
    /// The part in explicit huge pages.
    pub in_huge_pages: u64,
}

impl RegionPool {
    /// Makes an empty pool whose buffers never exceed `bytes_max`, rounded down to multiples of the
    /// smallest class, 8 KiB.
    #[must_use]
    pub fn new(device: &Device, access: Access, bytes_max: u64) -> Arc<Self> {
        let rules = PoolRules { access, handout: Handout::AsLeft, bytes_max, wait_max: WAIT_MAX };
        Self::with_rules(device, rules, &Arc::default())
    }

    /// Makes an empty pool beside others that make way for it when no more memory can be pinned.
    #[must_use]
    pub fn with_rules(
        device: &Device,
        rules: PoolRules,
        arbiter: &Arc<MemlockArbiter>,
    ) -> Arc<Self> {
        let units_max = rules.bytes_max / SMALLEST_BYTES as u64;
        let units_max = u32::try_from(units_max).unwrap_or(u32::MAX);
        Arc::new(Self {
            handout: rules.handout,
            units_max,
            wait_max: rules.wait_max,
            units: FairSemaphore::new(units_max.into()),
            lendable: Arc::new(Semaphore::new(units_max as usize / 2)),
            // The sum is no limit: the same memory may be offered to many peers.
            lent_shares: Quota::new(u64::MAX),
            store: BlockStore::new(device, rules.access, units_max, arbiter),
        })
    }

    /// Deregisters what this pool, and those that make way for it, keep unused. Returns false if
    /// that was nothing, or if others register now.
    pub(crate) fn free_unused(&self) -> bool {
        let permit = self.store.arbiter.memlock.try_permit(LockMode::Exclusive);
        permit.is_some_and(|_permit| self.store.arbiter.reclaim())
    }

    /// Takes a buffer of exactly `len` bytes, with whatever its last user left in it. Waits for no
    /// other user, and registers memory of any length.
    ///
    /// # Errors
    ///
    /// [`PoolError::TooLarge`], [`PoolError::Exhausted`] when others use the budget or wait for
    /// it, or [`PoolError::Register`].
    pub fn try_take(self: &Arc<Self>, len: usize) -> Result<LargeBuffer, PoolError> {
        let class = self.class_for(len)?;
        match self.try_place(&self.own_share(), class) {
            Ok(placed) => Ok(hand_out(&self.store, placed, len, self.handout)),
            Err(refusal) => Err(self.error(len, refusal)),
        }
    }

    /// Takes a buffer like [`RegionPool::try_take`], for a task that must not be held up. Registers
    /// nothing: without a free buffer it is [`PoolError::Exhausted`].
    ///
    /// # Errors
    ///
    /// Returns [`PoolError::TooLarge`] or [`PoolError::Exhausted`].
    pub fn try_take_at_once(self: &Arc<Self>, len: usize) -> Result<LargeBuffer, PoolError> {
        self.try_take_at_once_for(&self.own_share(), len)
    }

    pub(super) fn try_take_at_once_for(
        self: &Arc<Self>,
        share: &PeerShare,
        len: usize,
    ) -> Result<LargeBuffer, PoolError> {
        let class = self.class_for(len)?;
        let placed = share.try_take(class.units().into()).and_then(|permit| {
            let block = self.store.table().pop(class);
            // A waiter may do with the permit what this caller could not.
            let block = block.or_else(|| {
                self.store.arbiter.memlock.freed.notify_waiters();
                None
            });
            Some(Placed { block: block?, class, permit })
        });
        let placed = placed.ok_or_else(|| self.exhausted(len))?;
        Ok(hand_out(&self.store, placed, len, self.handout))
    }

    fn try_place(self: &Arc<Self>, share: &PeerShare, class: SizeClass) -> Result<Placed, Refusal> {
        let permit = share.try_take(class.units().into()).ok_or(Refusal::Full)?;
        let block = self
            .store
            .try_grow(class)
            .inspect_err(|_| self.store.arbiter.memlock.freed.notify_waiters())?;
        Ok(Placed { block, class, permit })
    }

    /// Takes a buffer of exactly `len` bytes, waiting for budget in the order of asking. What has
    /// to be registered is registered by the device's command thread.
    ///
    /// # Errors
    ///
    /// [`PoolError::TooLarge`]; [`PoolError::Exhausted`] or [`PoolError::Register`] when nothing
    /// was given back within the pool's `wait_max`, or when waiting would not help.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its place in the queue and nothing else.
    pub async fn take(self: &Arc<Self>, len: usize) -> Result<LargeBuffer, PoolError> {
        self.take_for(&self.own_share(), len).await
    }

    pub(super) async fn take_for(
        self: &Arc<Self>,
        share: &PeerShare,
        len: usize,
    ) -> Result<LargeBuffer, PoolError> {
        let class = self.class_for(len)?;
        let mut refused = None;
        let placing = self.place(share, class, &mut refused);
        let waited = tokio::time::timeout(self.wait_max, placing).await;
        match waited {
            Ok(placed) => Ok(hand_out(&self.store, placed?, len, self.handout)),
            Err(_) => Err(match (refused, share.held_if_full(class.units().into())) {
                (Some(error), _) => PoolError::Register(error),
                (None, Some(held)) => self.over_share(len, held),
                (None, None) => self.exhausted(len),
            }),
        }
    }

    async fn place(
        self: &Arc<Self>,
        share: &PeerShare,
        class: SizeClass,
        refused: &mut Option<VerbsError>,
    ) -> Result<Placed, PoolError> {
        let permit = share.take(class.units().into()).await;
        let permit = permit.map_err(|TooMuch| self.too_large(class.bytes()))?;
        loop {
            // Before looking, so that nothing that comes back meanwhile is missed.
            let mut freed = std::pin::pin!(self.store.arbiter.memlock.freed.notified());
            freed.as_mut().enable();
            let mode = if refused.is_none() { LockMode::Shared } else { LockMode::Exclusive };
            match self.store.grow(class, mode).await {
                Ok(block) => return Ok(Placed { block, class, permit }),
                Err(refusal) if refusal.may_come_free(class.bytes()) => {
                    *refused = refusal.into_error().or(refused.take());
                }
                Err(refusal) => {
                    self.store.arbiter.memlock.freed.notify_waiters();
                    return Err(self.error(class.bytes(), refusal));
                }
            }
            freed.await;
        }
    }

    /// Lends a buffer of exactly `len` bytes to an application, whose slices
    /// [`RegionPool::find_lent`] recognises; `None` when there is none without waiting for another
    /// user, or when applications have half of the budget already.
    #[must_use]
    pub fn try_lend(self: &Arc<Self>, len: usize) -> Option<LentBuffer> {
        let share = self.share_for(len)?;
        let class = self.class_for(len).ok()?;
        let placed = self.try_place(&self.own_share(), class).ok()?;
        Some(LentBuffer::new(hand_out(&self.store, placed, len, self.lent_handout()), share))
    }

    /// Lends a buffer like [`RegionPool::try_lend`], and has memory registered by the device's
    /// command thread. Waits for nothing else.
    ///
    /// # Cancel safety
    ///
    /// Cancelling lends nothing.
    pub async fn lend(self: &Arc<Self>, len: usize) -> Option<LentBuffer> {
        let share = self.share_for(len)?;
        let class = self.class_for(len).ok()?;
        let permit = self.own_share().try_take(class.units().into())?;
        let block = self.store.grow(class, LockMode::Shared).await;
        let block =
            block.inspect_err(|_| self.store.arbiter.memlock.freed.notify_waiters()).ok()?;
        let placed = Placed { block, class, permit };
        Some(LentBuffer::new(hand_out(&self.store, placed, len, self.lent_handout()), share))
    }

    /// Returns the contents of a lent buffer at its handout. A peer can read all of it if its key
    /// opens it.
    fn lent_handout(&self) -> Handout {
        match self.store.access {
            Access::Source => Handout::Erased,
            Access::Windowed | Access::Sink | Access::RelaxedSink | Access::Eager => {
                Handout::AsLeft
            }
        }
    }

    fn share_for(&self, len: usize) -> Option<OwnedSemaphorePermit> {
        let class = self.class_for(len).ok()?;
        Arc::clone(&self.lendable).try_acquire_many_owned(class.units()).ok()
    }

    /// The registered memory that `bytes` lie in, if it was lent to an application.
    #[must_use]
    pub fn find_lent(&self, bytes: &[u8]) -> Option<Lent> {
        self.store.lent.find(bytes)
    }

    /// Returns the device's access to the buffers.
    #[must_use]
    pub fn access(&self) -> Access {
        self.store.access
    }

    /// The budget in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        u64::from(self.units_max) * SMALLEST_BYTES as u64
    }

    /// Returns the pool's memory.
    #[must_use]
    pub fn bytes(&self) -> PoolBytes {
        let table = self.store.table();
        let huge = table.regions().filter(|region| region.page_kind() == PageKind::Huge);
        PoolBytes {
            in_use: (table.in_use() * SMALLEST_BYTES) as u64,
            registered: (table.registered() * SMALLEST_BYTES) as u64,
            in_huge_pages: huge.map(|region| region.len() as u64).sum(),
        }
    }

    /// Bytes in use, counted in whole buffers.
    #[must_use]
    pub fn bytes_in_use(&self) -> u64 {
        (self.store.table().in_use() * SMALLEST_BYTES) as u64
    }

    /// Returns a peer's share of the buffers, and its share of lent memory within `bound`.
    pub(super) fn shares(&self, peer: PeerKey, bound: Bound) -> (PeerShare, Arc<Share<PeerKey>>) {
        (self.units.share(peer), self.lent_shares.share(peer, bound))
    }

    /// Returns the share of this process itself, which is unlimited.
    fn own_share(&self) -> PeerShare {
        self.units.share(PeerKey::Local)
    }

    fn class_for(&self, len: usize) -> Result<SizeClass, PoolError> {
        let class = SizeClass::of(len).filter(|class| self.store.blocks_max(*class) > 1);
        class
            .or_else(|| SizeClass::for_pages(len, page_len()))
            .filter(|class| class.units() <= self.units_max)
            .ok_or_else(|| self.too_large(len))
    }

    fn too_large(&self, len: usize) -> PoolError {
        PoolError::TooLarge { len, bytes_max: self.bytes_max() }
    }

    fn over_share(&self, len: usize, held_units: u64) -> PoolError {
        let held = held_units * SMALLEST_BYTES as u64;
        PoolError::OverShare { len, held, bytes_max: self.bytes_max() }
    }

    fn exhausted(&self, len: usize) -> PoolError {
        PoolError::Exhausted { len, bytes_max: self.bytes_max() }
    }

    fn error(&self, len: usize, refusal: Refusal) -> PoolError {
        refusal.into_error().map_or_else(|| self.exhausted(len), PoolError::Register)
    }
}

impl fmt::Debug for RegionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionPool")
            .field("access", &self.store.access)
            .field("bytes_max", &self.bytes_max())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "region_pool_tests.rs"]
mod tests;
