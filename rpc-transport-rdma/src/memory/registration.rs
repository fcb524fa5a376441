//! A slab on its way into a pool: registered where it is dropped into the table, or given up.
//!
//! A value of its own so that its bytes of the budget cannot be lost: dropping it gives them back,
//! in a cancelled future and in a thread that never ran it alike.

use std::sync::Arc;

use super::Region;
use super::block_store::BlockStore;
use super::memlock_arbiter::RegistrationPermit;
use super::slab_table::Plan;
use crate::verbs::VerbsError;

/// Registering up to this much takes less than the hop to another thread and back. More may take
/// milliseconds, which a task that others wait for has not.
pub(super) const REGISTER_IN_PLACE_LEN_MAX: usize = 512 << 10;

/// Why there is no block.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Blocks in use leave no room, or others register now; it may be different later.
    Full,
    /// The device or the system refused.
    Register {
        error: VerbsError,
        /// Whether anything was pinned that its holder may give back.
        may_come_free: bool,
    },
}

impl Refusal {
    pub(super) fn is_over_lock_limit(&self) -> bool {
        matches!(self, Self::Register { error: VerbsError::MemoryLock { .. }, .. })
    }

    /// Whether `len` bytes may be there when others give some back.
    pub(super) fn may_come_free(&self, len: usize) -> bool {
        match self {
            Self::Full => true,
            Self::Register {
                error: VerbsError::MemoryLock { limit_bytes, .. },
                may_come_free: true,
            } => limit_bytes.is_none_or(|limit| len as u64 <= limit),
            Self::Register { .. } => false,
        }
    }

    pub(super) fn into_error(self) -> Option<VerbsError> {
        match self {
            Self::Full => None,
            Self::Register { error, .. } => Some(error),
        }
    }
}

/// A planned slab of a pool.
#[derive(Debug)]
pub(super) struct Registration {
    store: Arc<BlockStore>,
    plan: Plan,
}

impl Registration {
    pub(super) fn new(store: Arc<BlockStore>, plan: Plan) -> Self {
        Self { store, plan }
    }

    /// Bytes to register.
    pub(super) fn len(&self) -> usize {
        self.plan.bytes()
    }

    /// Registers the slab and puts its blocks into the pool. Where the memory cannot be pinned, one
    /// block is tried, and then once more without what the arbiter's pools keep unused, if no other
    /// caller registers meanwhile. The permit that comes back keeps the blocks from being taken for
    /// unused before they are used.
    ///
    /// # Errors
    ///
    /// [`Refusal::Register`].
    pub(super) fn run(mut self, permit: RegistrationPermit) -> Result<RegistrationPermit, Refusal> {
        let arbiter = Arc::clone(&self.store.arbiter);
        // Looked at before each attempt: what is freed meanwhile wakes the waiters.
        let mut may_come_free = arbiter.has_pinned();
        let mut region = self.register();
        if self.plan.block_count > 1 && is_over_lock_limit(&region) {
            self.keep_one_block();
            region = self.register();
        }
        if permit.is_exclusive() && is_over_lock_limit(&region) && arbiter.reclaim() {
            may_come_free = arbiter.has_pinned();
            region = self.register();
        }
        // Either the blocks take over the plan's bytes, or nothing does. A waiter for room is told
        // of a failure by a caller that gives up, and not by one that waits too: two of those would
        // wake each other for ever.
        let plan = self.plan;
        self.plan.block_count = 0;
        match region {
            Ok(region) => {
                self.store.table().add(plan, region.counted(arbiter.pin()));
                arbiter.freed.notify_waiters();
                Ok(permit)
            }
            Err(error) => {
                self.store.table().cancel(plan);
                Err(Refusal::Register { error, may_come_free })
            }
        }
    }

    /// As [`Registration::run`], on a thread that may take its time if it takes long.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the slab is registered for the next caller, or not begun.
    pub(super) async fn run_where_it_may(
        self,
        permit: RegistrationPermit,
    ) -> Result<RegistrationPermit, Refusal> {
        if self.len() <= REGISTER_IN_PLACE_LEN_MAX {
            return self.run(permit);
        }
        let ran = tokio::task::spawn_blocking(move || self.run(permit)).await;
        ran.unwrap_or_else(|error| {
            let error = VerbsError::system("register memory", error.into());
            Err(Refusal::Register { error, may_come_free: false })
        })
    }

    fn register(&self) -> Result<Region, VerbsError> {
        Region::new(&self.store.device, self.plan.bytes(), self.store.access)
    }

    fn keep_one_block(&mut self) {
        let beyond = Plan { block_count: self.plan.block_count - 1, ..self.plan };
        self.store.table().cancel(beyond);
        self.plan.block_count = 1;
    }
}

/// Dropped without being run, it leaves its room to others.
impl Drop for Registration {
    fn drop(&mut self) {
        if self.plan.block_count > 0 {
            self.store.table().cancel(self.plan);
            self.store.arbiter.freed.notify_waiters();
        }
    }
}

fn is_over_lock_limit(result: &Result<Region, VerbsError>) -> bool {
    matches!(result, Err(VerbsError::MemoryLock { .. }))
}
