//! Where the buffers lie that an application fills itself.
//!
//! A `Bytes` does not say whose memory it is, but its address does: while a slice within a lent
//! buffer exists, that buffer does, because the memory is ours alone (M1) and comes back only when
//! the last slice of it is gone. So a message's field is recognised whatever the application did
//! with the buffer in between: sliced it, cloned it, kept it in a cache.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

use super::{LargeBuffer, Region};
use crate::verbs::{Binding, RemoteMemory, Window};

/// The lent buffers of a pool, by the address of their first byte.
#[derive(Debug, Default)]
pub(super) struct LentTable {
    by_address: Mutex<BTreeMap<usize, Entry>>,
}

#[derive(Debug)]
struct Entry {
    len: usize,
    region: Arc<Region>,
    /// Where in the region the buffer begins.
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
    /// one of [`Access::Windowed`](super::Access::Windowed). Until the window's key is dead again
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

    /// Whether it has no bytes, which is never.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl LentTable {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<usize, Entry>> {
        // A map is whole between any two statements.
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn insert(&self, buffer: &LargeBuffer) {
        let (region, offset) = buffer.place();
        let entry = Entry { len: buffer.capacity(), region: Arc::clone(region), offset };
        self.entries().insert(buffer.as_ptr().addr(), entry);
    }

    fn remove(&self, buffer: &LargeBuffer) {
        self.entries().remove(&buffer.as_ptr().addr());
    }
}

/// A buffer that an application fills itself; back in its pool when dropped.
#[derive(Debug)]
pub struct LentBuffer {
    buffer: LargeBuffer,
    _share: OwnedSemaphorePermit,
}

impl LentBuffer {
    pub(super) fn new(buffer: LargeBuffer, share: OwnedSemaphorePermit) -> Self {
        buffer.pool().lent().insert(&buffer);
        Self { buffer, _share: share }
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        // Before the buffer goes back: the next of its users may not be found by its address.
        self.buffer.pool().lent().remove(&self.buffer);
    }
}

impl Deref for LentBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl DerefMut for LentBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }
}

impl AsRef<[u8]> for LentBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for LentBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::memory::{Access, RegionPool};
    use crate::verbs::mock::MockDevice;

    #[test]
    fn any_slice_of_a_lent_buffer_is_found_and_nothing_else() {
        let mock = MockDevice::new();
        let pool = RegionPool::new(&mock.device(), Access::Source, 1 << 20);
        let mut buffer = pool.try_lend(100_000).unwrap();
        buffer.fill(7);
        let whole = Bytes::from_owner(buffer);
        let base = pool.find_lent(&whole).expect("it is lent").remote();
        let slice = whole.slice(10..200);
        drop(whole);
        let found = pool.find_lent(&slice).unwrap();
        assert_eq!((found.remote().address, found.len()), (base.address + 10, 190));
        assert_eq!(found.remote().key, base.key);
        assert!(pool.find_lent(&slice[..0]).is_none(), "an empty slice");
        let own = pool.try_take(100_000).unwrap();
        assert!(pool.find_lent(&own).is_none(), "a buffer that was not lent");
        assert!(pool.find_lent(&[7; 100]).is_none(), "memory of another allocator");
        let address = slice.as_ptr();
        drop(slice);
        let again = pool.try_take(100_000).unwrap();
        assert_eq!(again.as_ptr().addr() + 10, address.addr(), "the memory came back");
        assert!(pool.find_lent(&again).is_none(), "it is not lent any more");
    }

    #[test]
    fn half_of_a_pool_is_never_lent() {
        let mock = MockDevice::new();
        let pool = RegionPool::new(&mock.device(), Access::Source, 64 << 10);
        let lent = pool.try_lend(32 << 10).unwrap();
        assert!(pool.try_lend(8 << 10).is_none());
        pool.try_take(32 << 10).expect("the other half is there for messages");
        drop(lent);
        assert!(pool.try_lend(32 << 10).is_some());
    }
}
