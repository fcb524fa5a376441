//! A slab on its way into a pool: registered where it is dropped into the table, or given up.
//!
//! A value of its own so that its bytes of the budget cannot be lost: whoever drops it, a future
//! that was cancelled or a thread that never ran it, gives them back.

use std::sync::Arc;

use super::slab_table::Plan;
use super::{Region, RegionPool};
use crate::verbs::VerbsError;

/// Registering up to this much takes less than the hop to another thread and back. More may take
/// milliseconds, which a task that others wait for has not.
pub(super) const REGISTER_IN_PLACE_LEN_MAX: usize = 512 << 10;

/// A planned slab of a pool.
#[derive(Debug)]
pub(super) struct Registration {
    pool: Arc<RegionPool>,
    plan: Plan,
}

impl Registration {
    pub(super) fn new(pool: Arc<RegionPool>, plan: Plan) -> Self {
        Self { pool, plan }
    }

    /// Bytes to register.
    pub(super) fn len(&self) -> usize {
        self.plan.bytes()
    }

    /// Registers the slab and puts its blocks into the pool. Where the memory cannot be pinned,
    /// one block is tried, and then once more without what the pools of the group keep unused.
    ///
    /// # Errors
    ///
    /// [`VerbsError::MemoryLock`] when not even a block can be pinned, or what the system said.
    pub(super) fn run(mut self) -> Result<(), VerbsError> {
        let mut region = self.register();
        if self.plan.block_count > 1 && is_over_lock_limit(&region) {
            self.keep_one_block();
            region = self.register();
        }
        if is_over_lock_limit(&region) && self.pool.group().reclaim() {
            region = self.register();
        }
        // Either the blocks take over the plan's bytes, or nobody does. Whoever waits for room is
        // told of a failure by a caller that gives up, and not by one that waits too: two of those
        // would wake each other for ever.
        let plan = self.plan;
        self.plan.block_count = 0;
        match region {
            Ok(region) => {
                self.pool.table().add(plan, region);
                self.pool.group().freed.notify_waiters();
                Ok(())
            }
            Err(error) => {
                self.pool.table().cancel(plan);
                Err(error)
            }
        }
    }

    /// As [`Registration::run`], on a thread that may take its time if it takes long.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the slab is registered for whoever asks next, or not begun with.
    pub(super) async fn run_where_it_may(self) -> Result<(), VerbsError> {
        if self.len() <= REGISTER_IN_PLACE_LEN_MAX {
            return self.run();
        }
        let ran = tokio::task::spawn_blocking(move || self.run()).await;
        ran.unwrap_or_else(|error| Err(VerbsError::system("register memory", error.into())))
    }

    fn register(&self) -> Result<Region, VerbsError> {
        Region::new(self.pool.device(), self.plan.bytes(), self.pool.access())
    }

    fn keep_one_block(&mut self) {
        let beyond = Plan { block_count: self.plan.block_count - 1, ..self.plan };
        self.pool.table().cancel(beyond);
        self.plan.block_count = 1;
    }
}

/// Dropped without being run, it leaves its room to others.
impl Drop for Registration {
    fn drop(&mut self) {
        if self.plan.block_count > 0 {
            self.pool.table().cancel(self.plan);
            self.pool.group().freed.notify_waiters();
        }
    }
}

fn is_over_lock_limit(result: &Result<Region, VerbsError>) -> bool {
    matches!(result, Err(VerbsError::MemoryLock { .. }))
}
