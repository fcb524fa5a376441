//! How a pool comes by a block: one that is free, or of a slab that is registered for it.
//!
//! Here because a limit on what may be pinned has two answers, which everybody who takes a buffer
//! needs: a caller first registers under a shared permit, and if nothing more can be pinned it
//! tries again under an exclusive one, when what is there can be known exactly (see
//! `memlock_arbiter`).

use std::sync::Arc;

use super::block_store::BlockStore;
use super::memlock_arbiter::LockMode;
use super::registration::{Refusal, Registration};
use super::size_class::SizeClass;
use super::slab_table::Block;
use super::{Access, Region};

/// The longest buffer that is cut from a slab.
const CUT_LEN_MAX: usize = 64 << 10;

/// The longest slab that is cut: registering it takes about 60 us.
const SLAB_LEN_MAX: usize = super::registration::REGISTER_IN_PLACE_LEN_MAX;

/// What a table answers a caller that wants a block.
enum Next {
    /// There is one.
    Block(Block<Region>),
    /// A slab has to be registered first.
    Register(Registration),
    /// Blocks in use leave no room for one.
    Full,
}

impl BlockStore {
    /// A block for a caller that holds permits for it. Waits only for registrations in progress.
    pub(super) async fn grow(
        self: &Arc<Self>,
        class: SizeClass,
        mut mode: LockMode,
    ) -> Result<Block<Region>, Refusal> {
        loop {
            if let Some(block) = self.table().pop(class) {
                return Ok(block);
            }
            let permit = self.arbiter.permit(mode).await;
            let registered = match self.next(class) {
                Next::Block(block) => return Ok(block),
                Next::Full => return Err(Refusal::Full),
                Next::Register(registration) => registration.run_where_it_may(permit).await,
            };
            match registered {
                // Taken while the permit lasts.
                Ok(_turn) => match self.table().pop(class) {
                    Some(block) => return Ok(block),
                    None => continue,
                },
                Err(refusal) => mode = self.give_up(mode, refusal)?,
            }
        }
    }

    /// As [`BlockStore::grow`] for a caller that cannot wait; registers at most `len_max` bytes.
    pub(super) fn try_grow(
        self: &Arc<Self>,
        class: SizeClass,
        len_max: usize,
    ) -> Result<Block<Region>, Refusal> {
        let mut mode = LockMode::Shared;
        loop {
            let registration = match self.next(class) {
                Next::Block(block) => return Ok(block),
                Next::Register(registration) if registration.len() <= len_max => registration,
                Next::Register(_) | Next::Full => return Err(Refusal::Full),
            };
            let permit = self.arbiter.try_permit(mode).ok_or(Refusal::Full)?;
            match registration.run(permit) {
                Ok(_turn) => match self.table().pop(class) {
                    Some(block) => return Ok(block),
                    None => continue,
                },
                Err(refusal) => mode = self.give_up(mode, refusal)?,
            }
        }
    }

    /// What to try after a refusal, if there is anything.
    fn give_up(&self, mode: LockMode, refusal: Refusal) -> Result<LockMode, Refusal> {
        if mode == LockMode::Exclusive || !refusal.is_over_lock_limit() {
            return Err(refusal);
        }
        // Its room may be what another caller waits for. Each caller wakes the others once, so this
        // ends.
        self.arbiter.freed.notify_waiters();
        Ok(LockMode::Exclusive)
    }

    /// A block of the class, or the way to one.
    fn next(self: &Arc<Self>, class: SizeClass) -> Next {
        let planned = {
            let mut table = self.table();
            match table.pop(class) {
                Some(block) => return Next::Block(block),
                None => table.plan(class, self.blocks_max(class)),
            }
        };
        // Deregistering is slow, so the lock is not held while what was evicted is dropped.
        let Some((plan, _evicted)) = planned else { return Next::Full };
        Next::Register(Registration::new(Arc::clone(self), plan))
    }

    /// How many blocks a slab of the class may have.
    pub(super) fn blocks_max(&self, class: SizeClass) -> u32 {
        // A peer that may read one buffer by a key may read all of what the key opens.
        if self.access == Access::Source || class.bytes() > CUT_LEN_MAX {
            return 1;
        }
        u32::try_from(SLAB_LEN_MAX / class.bytes()).unwrap_or(1)
    }
}
