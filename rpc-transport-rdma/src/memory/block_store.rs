//! The blocks of a pool: what is registered, what of it is in use, and what of it is lent.
//!
//! # Lent buffers
//!
//! An application fills a lent buffer itself, and offers what it likes of it.
//!
//! A `Bytes` does not say whose memory it is, but its address does: while a slice within a lent
//! buffer exists, that buffer does, because the memory is ours alone (M1) and comes back only when
//! the last slice of it is gone. So a message's field is recognised whatever the application did
//! with the buffer in between: sliced it, cloned it, kept it in a cache.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::memory::memlock::Memlock;
use crate::memory::slabs::{Block, SizeClass, SlabTable};
use crate::memory::{Binding, Region, Window};
use crate::quota::semaphore::FairPermit;
use crate::sys::provider::{Access, Device, RemoteMemory};

/// The memlock arbiter: pools that make way for each other when `RLIMIT_MEMLOCK` is met.
///
/// The limit counts all of a process's registrations, so a pool that meets it asks the others to
/// let go of what they keep unused.
#[derive(Debug, Default)]
pub struct MemlockArbiter {
    pub(super) memlock: Arc<Memlock>,
    stores: Mutex<Vec<Weak<BlockStore>>>,
}

/// The store that buffers are made from and return to.
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

impl MemlockArbiter {
    /// Deregisters everything that no buffer uses. Returns false if there was nothing.
    pub(super) fn reclaim(&self) -> bool {
        // All of them, also after one had something.
        let stores: Vec<_> = self.stores().iter().filter_map(Weak::upgrade).collect();
        stores.iter().filter(|store| store.make_way()).count() > 0
    }

    fn stores(&self) -> MutexGuard<'_, Vec<Weak<BlockStore>>> {
        self.stores.lock()
    }
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
        arbiter.stores().push(Arc::downgrade(&store));
        store
    }

    pub(super) fn table(&self) -> MutexGuard<'_, SlabTable<Region>> {
        self.table.lock()
    }

    /// Takes back a block, and wakes the tasks that wait for its budget.
    pub(super) fn put_back(&self, Placed { block, permit, .. }: Placed) {
        self.table().push(block);
        // After the block, which the next holder of its units looks for.
        drop(permit);
        self.arbiter.memlock.freed.notify_waiters();
    }

    /// Deregisters everything that no buffer uses. Returns false if there was nothing.
    fn make_way(&self) -> bool {
        let regions: Vec<_> = {
            let mut table = self.table();
            std::iter::from_fn(|| table.evict()).collect()
        };
        let has_any = !regions.is_empty();
        // Outside of the lock.
        regions.into_iter().for_each(Region::deregister);
        has_any
    }
}

impl fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockStore").field("access", &self.access).finish_non_exhaustive()
    }
}

/// The lent buffers of a pool, by the address of their first byte.
#[derive(Debug, Default)]
pub(super) struct LentTable {
    by_address: Mutex<BTreeMap<usize, Entry>>,
}

#[derive(Debug)]
struct Entry {
    len: usize,
    region: Arc<Region>,
    /// Offset of the buffer in the region.
    offset: usize,
}

/// Registered bytes within a lent buffer. They can be read as long as the `Bytes` that they were
/// found by exist.
#[derive(Debug, Clone)]
pub struct Lent {
    region: Arc<Region>,
    offset: usize,
    len: usize,
}

impl Lent {
    /// The bytes as a peer names them.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        let RemoteMemory { address, key } = self.region.remote();
        RemoteMemory { address: address + self.offset as u64, key }
    }

    /// Binds a window to them, once the binding is posted; a device refuses if their pool is not
    /// one of [`Access::Windowed`]. Until the window's key is dead again
    /// the `Bytes` must be kept, or the peer reads what the memory's next user writes.
    #[must_use]
    pub fn bind(&self, window: Window) -> Binding {
        Binding::new(window, &self.region, self.offset, self.len)
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no bytes, which is never the case.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl LentTable {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<usize, Entry>> {
        self.by_address.lock()
    }

    /// The registered memory that `bytes` lie in, if it is lent.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<Lent> {
        let address = bytes.as_ptr().addr();
        let entries = self.entries();
        let (start, entry) = entries.range(..=address).next_back()?;
        let within = address - start;
        let is_whole = !bytes.is_empty() && within.checked_add(bytes.len())? <= entry.len;
        let region = is_whole.then(|| Arc::clone(&entry.region))?;
        Some(Lent { region, offset: entry.offset + within, len: bytes.len() })
    }

    /// Records that `len` bytes from `address` on are lent, which lie in `region` from `offset` on.
    pub(super) fn insert(&self, address: usize, len: usize, region: &Arc<Region>, offset: usize) {
        let entry = Entry { len, region: Arc::clone(region), offset };
        self.entries().insert(address, entry);
    }

    /// Forgets what was lent from `address` on.
    pub(super) fn remove(&self, address: usize) {
        self.entries().remove(&address);
    }
}

#[cfg(all(test, feature = "sim"))]
#[path = "memlock_tests.rs"]
mod tests;
