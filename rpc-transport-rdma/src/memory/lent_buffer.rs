//! Buffers that applications fill themselves.

use std::ops::{Deref, DerefMut};

use tokio::sync::OwnedSemaphorePermit;

use crate::memory::LargeBuffer;

/// A buffer that an application fills itself; back in its pool when dropped.
#[derive(Debug)]
pub struct LentBuffer {
    buffer: LargeBuffer,
    _share: OwnedSemaphorePermit,
}

impl LentBuffer {
    pub(super) fn new(buffer: LargeBuffer, share: OwnedSemaphorePermit) -> Self {
        let (region, offset) = buffer.place();
        let lent = &buffer.store().lent;
        lent.insert(buffer.as_ptr().addr(), buffer.capacity(), region, offset);
        Self { buffer, _share: share }
    }
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        // Before the buffer goes back: the next of its users may not be found by its address.
        self.buffer.store().lent.remove(self.buffer.as_ptr().addr());
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
    use crate::testing::scripted::ScriptedDevice;

    #[test]
    fn any_slice_of_a_lent_buffer_is_found_and_nothing_else() {
        let sim = ScriptedDevice::new();
        let pool = RegionPool::new(&sim.device(), Access::Source, 1 << 20);
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
        let sim = ScriptedDevice::new();
        let pool = RegionPool::new(&sim.device(), Access::Source, 64 << 10);
        let lent = pool.try_lend(32 << 10).unwrap();
        assert!(pool.try_lend(8 << 10).is_none());
        pool.try_take(32 << 10).expect("the other half is there for messages");
        drop(lent);
        assert!(pool.try_lend(32 << 10).is_some());
    }
}
