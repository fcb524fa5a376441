//! The blocks of a pool: what is registered, what of it is in use, and what of it is lent.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lent_table::LentTable;
use super::memlock_arbiter::MakeWay;
use super::size_class::SizeClass;
use super::slab_table::{Block, SlabTable};
use super::{Access, MemlockArbiter, Region};
use crate::fair::semaphore::FairPermit;
use crate::verbs::Device;

/// What buffers are made of, and go back to.
pub(super) struct BlockStore {
    pub(super) device: Device,
    pub(super) access: Access,
    pub(super) arbiter: Arc<MemlockArbiter>,
    pub(super) lent: LentTable,
    table: Mutex<SlabTable<Region>>,
}

/// A block that a buffer is made of, and the units that it takes.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) block: Block<Region>,
    pub(super) class: SizeClass,
    pub(super) permit: FairPermit,
}

impl BlockStore {
    /// A store without blocks, which may have `units_max` of them and makes way for the others of
    /// `arbiter`.
    pub(super) fn new(
        device: &Device,
        access: Access,
        units_max: u32,
        arbiter: &Arc<MemlockArbiter>,
    ) -> Arc<Self> {
        let store = Arc::new(Self {
            device: device.clone(),
            access,
            arbiter: Arc::clone(arbiter),
            lent: LentTable::default(),
            table: Mutex::new(SlabTable::new(units_max)),
        });
        let weak = Arc::downgrade(&store);
        arbiter.join(weak);
        store
    }

    pub(super) fn table(&self) -> MutexGuard<'_, SlabTable<Region>> {
        // Every change to the table is complete before anything that could panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back a block, and wakes the tasks that wait for its budget.
    pub(super) fn put_back(&self, Placed { block, permit, .. }: Placed) {
        self.table().push(block);
        // After the block, which the next holder of its units looks for.
        drop(permit);
        self.arbiter.freed.notify_waiters();
    }
}

impl MakeWay for BlockStore {
    fn make_way(&self) -> bool {
        let regions: Vec<_> = {
            let mut table = self.table();
            std::iter::from_fn(|| table.evict()).collect()
        };
        // Deregistered here, outside of the lock.
        !regions.is_empty()
    }
}

impl fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockStore").field("access", &self.access).finish_non_exhaustive()
    }
}
