//! A slab on its way into a pool: registered where it is dropped into the table, or given up.
//!
//! A value of its own so that its bytes of the budget cannot be lost: dropping it gives them back,
//! in a cancelled future and in a thread that never ran it alike. A task has it registered by its
//! device's command thread, whatever its length: a lane, and a sender's task, never wait for
//! firmware.
//!
//! A pool comes by a block in two ways: one is free, or a slab is registered for it. A limit on
//! what may be pinned has two answers, which everybody who takes a buffer needs: a caller first
//! registers under a shared permit, and if nothing more can be pinned it tries again under an
//! exclusive one, when what is there can be known exactly (`memlock`).

use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::memory::Region;
use crate::memory::block_store::BlockStore;
use crate::memory::memlock::{LockMode, RegistrationPermit};
use crate::memory::slabs::{Block, Plan, SizeClass};
use crate::sys::provider::{Access, FirmwareCommand, VerbsError};

/// Why there is no block.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Blocks in use leave no room, or others register now; it may be different later.
    Full,
    /// The device or the system refused.
    Register {
        error: VerbsError,
        /// Set if anything was pinned that its holder may give back.
        may_come_free: bool,
    },
}

impl Refusal {
    pub(super) fn is_over_lock_limit(&self) -> bool {
        matches!(self, Self::Register { error: VerbsError::MemoryLock { .. }, .. })
    }

    /// Returns true if `len` bytes may become free when others give some back.
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
    /// Regions that make way for it, deregistered first.
    evicted: Vec<Arc<Region>>,
}

impl Registration {
    pub(super) fn new(store: Arc<BlockStore>, plan: Plan, evicted: Vec<Arc<Region>>) -> Self {
        Self { store, plan, evicted }
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
        self.evicted.drain(..).for_each(Region::deregister);
        let arbiter = Arc::clone(&self.store.arbiter);
        // Looked at before each attempt: what is freed meanwhile wakes the waiters.
        let mut may_come_free = arbiter.memlock.has_pinned();
        let mut region = self.register();
        if self.plan.block_count > 1 && is_over_lock_limit(&region) {
            self.keep_one_block();
            region = self.register();
        }
        if permit.is_exclusive() && is_over_lock_limit(&region) && arbiter.reclaim() {
            may_come_free = arbiter.memlock.has_pinned();
            region = self.register();
        }
        // Either the blocks take over the plan's bytes, or nothing does. A waiter for room is told
        // of a failure by a caller that gives up, and not by one that waits too: two of those would
        // wake each other for ever.
        let plan = self.plan;
        self.plan.block_count = 0;
        match region {
            Ok(region) => {
                self.store.table().add(plan, region.counted(arbiter.memlock.pin()));
                arbiter.memlock.freed.notify_waiters();
                Ok(permit)
            }
            Err(error) => {
                self.store.table().cancel(plan);
                Err(Refusal::Register { error, may_come_free })
            }
        }
    }

    /// Registers like [`Registration::run`], on the device's command thread.
    ///
    /// # Cancel safety
    ///
    /// If cancelled, the slab is registered for the next caller, or not begun.
    async fn run_by_command(
        self,
        permit: RegistrationPermit,
    ) -> Result<RegistrationPermit, Refusal> {
        // No lane is without a runtime.
        let Ok(runtime) = Handle::try_current() else { return self.run(permit) };
        let (answer, answered) = oneshot::channel();
        let device = self.store.device.clone();
        let bulk = &device.commands().bulk;
        bulk.push(FirmwareCommand::RegisterMemory, move || drop(answer.send(self.run(permit))));
        bulk.serve(&runtime);
        answered.await.unwrap_or_else(|error| {
            let error = VerbsError::system("register memory", io::Error::other(error));
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
            self.store.arbiter.memlock.freed.notify_waiters();
        }
    }
}

fn is_over_lock_limit(result: &Result<Region, VerbsError>) -> bool {
    matches!(result, Err(VerbsError::MemoryLock { .. }))
}

/// The longest buffer that is cut from a slab.
const CUT_LEN_MAX: usize = 64 << 10;

/// The longest slab that is cut: registering it takes about 60 us.
const SLAB_LEN_MAX: usize = 512 << 10;

/// The answer of a table to a caller that wants a block.
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
            let permit = self.arbiter.memlock.permit(mode).await;
            let registered = match self.next(class) {
                Next::Block(block) => return Ok(block),
                Next::Full => return Err(Refusal::Full),
                Next::Register(registration) => registration.run_by_command(permit).await,
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

    /// Grows like [`BlockStore::grow`], for a caller that waits for no other user, but may for the
    /// device.
    pub(super) fn try_grow(self: &Arc<Self>, class: SizeClass) -> Result<Block<Region>, Refusal> {
        let mut mode = LockMode::Shared;
        loop {
            let registration = match self.next(class) {
                Next::Block(block) => return Ok(block),
                Next::Register(registration) => registration,
                Next::Full => return Err(Refusal::Full),
            };
            let permit = self.arbiter.memlock.try_permit(mode).ok_or(Refusal::Full)?;
            match registration.run(permit) {
                Ok(_turn) => match self.table().pop(class) {
                    Some(block) => return Ok(block),
                    None => continue,
                },
                Err(refusal) => mode = self.give_up(mode, refusal)?,
            }
        }
    }

    /// Returns the next mode to try after a refusal.
    fn give_up(&self, mode: LockMode, refusal: Refusal) -> Result<LockMode, Refusal> {
        if mode == LockMode::Exclusive || !refusal.is_over_lock_limit() {
            return Err(refusal);
        }
        // Its room may be what another caller waits for. Each caller wakes the others once, so this
        // ends.
        self.arbiter.memlock.freed.notify_waiters();
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
        let Some((plan, evicted)) = planned else { return Next::Full };
        Next::Register(Registration::new(Arc::clone(self), plan, evicted))
    }

    /// Returns the maximum number of blocks in a slab of the class.
    pub(super) fn blocks_max(&self, class: SizeClass) -> u32 {
        // A peer that may read one buffer by a key may read all of what the key opens.
        if self.access == Access::Source || class.bytes() > CUT_LEN_MAX {
            return 1;
        }
        u32::try_from(SLAB_LEN_MAX / class.bytes()).unwrap_or(1)
    }
}
