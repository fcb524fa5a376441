//! A mapping that a device knows under its keys.

use std::ptr::NonNull;
use std::sync::Arc;

use super::memlock::Pinned;
use super::{Access, Mapping, PageKind};
use crate::sys::provider::{
    DeferredDrop, Device, FirmwareCommand, LocalKey, ObjectHandle, PreferredNode, RawMemoryRegion,
    RawSegment, RemoteKey, RemoteMemory, VerbsError,
};

/// Registered memory: registered once, deregistered and unmapped when dropped, by the device's
/// command thread.
#[derive(Debug)]
pub struct Region {
    registered: DeferredDrop<Registered>,
    device: Device,
    base: NonNull<u8>,
    address: u64,
    len: usize,
    local_key: LocalKey,
    page_kind: PageKind,
}

#[derive(Debug)]
struct Registered {
    raw: Box<dyn RawMemoryRegion>,
    /// Behind `raw`, so that waiters for memory wake after it is deregistered.
    pinned: Option<Pinned>,
}

// SAFETY: M1, M5: `base` points into the mapping that `registered` keeps, and both `Mapping` and
// `RawMemoryRegion` may be sent and shared; the pointer is dereferenced only by the owner of a
// span (M3).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps at least `len` bytes and registers them.
    ///
    /// # Errors
    ///
    /// [`VerbsError::MemoryLock`] when they cannot be pinned, or what the system said.
    pub fn new(device: &Device, len: usize, access: Access) -> Result<Self, VerbsError> {
        let mapping = {
            // Mapping touches the pages.
            let _near = device.raw().node().and_then(PreferredNode::new);
            Mapping::new(len).map_err(|error| VerbsError::system("map memory", error))?
        };
        let raw = {
            let _awaited = device.commands().await_firmware(FirmwareCommand::RegisterMemory);
            device.raw().register(mapping, access)?
        };
        let mapping = raw.mapping();
        let (base, address, len) = (mapping.base(), mapping.address(), mapping.len());
        let (local_key, page_kind) = (raw.local_key(), mapping.page_kind());
        let registered = Registered { raw, pinned: None };
        let registered = DeferredDrop::new(registered, device, FirmwareCommand::DeregisterMemory);
        let device = device.clone();
        Ok(Self { registered, device, base, address, len, local_key, page_kind })
    }

    /// Counts it as pinned until it is deregistered.
    pub(super) fn counted(mut self, pinned: Pinned) -> Self {
        self.registered.pinned = Some(pinned);
        self
    }

    /// Deregisters it here unless there is another handle, for a caller that may wait for firmware.
    pub(super) fn deregister(self: Arc<Self>) {
        if let Some(region) = Arc::into_inner(self) {
            region.registered.drop_here();
        }
    }

    /// Length in bytes, a whole number of pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no bytes, which is never the case.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the kind of its pages.
    #[must_use]
    pub fn page_kind(&self) -> PageKind {
        self.page_kind
    }

    /// The key for the peer. It opens nothing unless the region is a [`Access::Source`].
    #[must_use]
    pub fn remote_key(&self) -> RemoteKey {
        self.registered.raw.remote_key()
    }

    /// The region as its peer names it.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory { address: self.address, key: self.remote_key() }
    }

    /// The bytes of a span as a pointer. A caller that dereferences it must own the span (M3).
    ///
    /// # Panics
    ///
    /// Panics if the span is not within the region.
    pub(crate) fn span(&self, offset: usize, len: usize) -> NonNull<[u8]> {
        self.assert_within(offset, len);
        // SAFETY: M1, M2: the offset is within the mapping that `base` reaches all of.
        let start = unsafe { self.base.add(offset) };
        NonNull::slice_from_raw_parts(start, len)
    }

    /// The bytes of a span as a work request names them.
    ///
    /// # Panics
    ///
    /// Panics if the span is not within the region.
    pub(crate) fn segment(&self, offset: usize, len: u32) -> RawSegment {
        self.assert_within(offset, len as usize);
        RawSegment { address: self.address + offset as u64, len, key: self.local_key }
    }

    /// The address of a span as the device knows it.
    ///
    /// # Panics
    ///
    /// Panics if the span is not within the region.
    pub(crate) fn address_of(&self, offset: usize, len: usize) -> u64 {
        self.assert_within(offset, len);
        self.address + offset as u64
    }

    /// The region as a request to bind a window names it.
    pub(crate) fn handle(&self) -> ObjectHandle {
        self.registered.raw.handle()
    }

    pub(crate) fn local_key(&self) -> LocalKey {
        self.local_key
    }

    /// Returns true if it is registered with this opening of a device.
    pub(crate) fn is_of(&self, device: &Device) -> bool {
        self.device.is_same(device)
    }

    fn assert_within(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "a span of {len} bytes at {offset} in a region of {}",
            self.len
        );
    }
}
