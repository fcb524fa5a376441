//! Blocks of registered memory on loan from a pool, and the sinks of READs that they become.
//!
//! Several READs fill one sink at the same time: until the last has completed there must be no
//! slice of it, so a [`Sink`] has no way to one. Each READ in flight holds a clone of the `Arc`;
//! [`Arc::into_inner`] gives the sink back when the last is gone.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

use crate::memory::block_store::{BlockStore, Placed};
use crate::memory::slabs::SizeClass;
use crate::memory::{Binding, Region, Window};
use crate::sys::provider::{Access, Device, RawSegment, RemoteMemory};

/// A large registered buffer; back in its pool when dropped.
pub struct LargeBuffer {
    store: Arc<BlockStore>,
    /// Taken by `drop` only.
    placed: Option<Placed>,
    class: SizeClass,
    len: usize,
}

impl LargeBuffer {
    pub(super) fn new(store: Arc<BlockStore>, placed: Placed, len: usize) -> Self {
        let Placed { block, class, .. } = &placed;
        debug_assert!(len <= class.bytes() && block.offset + class.bytes() <= block.region.len());
        Self { store, class: *class, placed: Some(placed), len }
    }

    /// Length that it could have: the bytes of its size class.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.class.bytes()
    }

    /// Shortens it to `len` bytes; does nothing if it is no longer than that.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes it as long as it could be.
    #[cfg(test)]
    pub(super) fn extend_to_capacity(&mut self) {
        self.len = self.capacity();
    }

    /// Returns the device's access to the buffer.
    #[must_use]
    pub fn access(&self) -> Access {
        self.store.access
    }

    /// The buffer as a peer names it. Of use for a [`Access::Source`] only.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        let (region, offset) = self.place();
        let RemoteMemory { address, key } = region.remote();
        RemoteMemory { address: address + offset as u64, key }
    }

    /// Binds a window to it, once the binding is posted. Until the window's key is dead again the
    /// buffer must be kept, or the peer reads what its next user writes.
    ///
    /// # Panics
    ///
    /// Panics if the buffer is not from a pool of [`Access::Windowed`]: a device would refuse.
    #[must_use]
    pub fn bind(&self, window: Window) -> Binding {
        self.bind_from(window, 0)
    }

    /// Binds a window like [`LargeBuffer::bind`], to the part of the buffer that begins at `from`.
    ///
    /// # Panics
    ///
    /// Panics like `bind`, and if `from` is beyond the buffer's end.
    #[must_use]
    pub fn bind_from(&self, window: Window, from: usize) -> Binding {
        assert!(from <= self.len, "a window from {from} on: {self:?}");
        assert_eq!(self.access(), Access::Windowed, "a window must be bound to windowed memory");
        let (region, offset) = self.place();
        Binding::new(window, region, offset + from, self.len - from)
    }

    /// Turns it into shared bytes; it is back in its pool when the last of them is dropped.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// A part of it as a work request names it.
    ///
    /// # Panics
    ///
    /// Panics if the part is not within the buffer's size class.
    pub(super) fn segment(&self, offset: usize, len: u32) -> RawSegment {
        let end = offset.checked_add(len as usize);
        assert!(end.is_some_and(|end| end <= self.capacity()), "{len} bytes at {offset}: {self:?}");
        let (region, start) = self.place();
        region.segment(start + offset, len)
    }

    /// The region that it lies in, and where in it.
    pub(super) fn place(&self) -> (&Arc<Region>, usize) {
        let block = &self.placed.as_ref().expect("only drop takes the block").block;
        (&block.region, block.offset)
    }

    pub(super) fn store(&self) -> &Arc<BlockStore> {
        &self.store
    }

    fn span(&self) -> NonNull<[u8]> {
        let (region, offset) = self.place();
        region.span(offset, self.len)
    }
}

impl Deref for LargeBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: M1, M3, M4: the span is initialised, only this value owns it, and no device
        // writes to it; the borrow of `self` keeps the region.
        unsafe { self.span().as_ref() }
    }
}

impl DerefMut for LargeBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: M1, M3, M4: as above, and the borrow is exclusive.
        unsafe { self.span().as_mut() }
    }
}

impl AsRef<[u8]> for LargeBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for LargeBuffer {
    fn drop(&mut self) {
        if let Some(placed) = self.placed.take() {
            self.store.put_back(placed);
        }
    }
}

impl fmt::Debug for LargeBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LargeBuffer of {} bytes ({:?})", self.len, self.access())
    }
}

/// A buffer to read into, shared by the READs that fill it.
#[derive(Debug)]
pub struct Sink {
    buffer: LargeBuffer,
}

impl Sink {
    /// Gives up access to the buffer's bytes, so that READs can write to it.
    ///
    /// # Panics
    ///
    /// Panics if the buffer is not from a pool of [`Access::Sink`]: a device would refuse to write
    /// to it.
    #[must_use]
    pub fn new(buffer: LargeBuffer) -> Self {
        assert!(buffer.access().is_sink(), "a sink must come from a pool of sinks");
        Self { buffer }
    }

    /// Gives the buffer back. Owning the sink proves that no READ holds it.
    #[must_use]
    pub fn into_buffer(self) -> LargeBuffer {
        self.buffer
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns true if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if its memory is registered with this opening of a device.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        self.buffer.place().0.is_of(device)
    }

    /// A part as a work request names it, or `None` when it is not within the sink.
    pub(crate) fn segment(&self, offset: usize, len: u32) -> Option<RawSegment> {
        let end = offset.checked_add(len as usize)?;
        (end <= self.len()).then(|| self.buffer.segment(offset, len))
    }
}
