//! The memory of a registered region as a simulated device reaches it.

use std::ptr::NonNull;

use crate::sys::provider::Mapping;

/// The location of a region. It is in the network's table of regions and nowhere else.
#[derive(Debug)]
pub(crate) struct SimulatedAccess {
    base: NonNull<u8>,
    address: u64,
    len: usize,
}

// SAFETY: V9: the pointer is used under the network's lock only.
unsafe impl Send for SimulatedAccess {}

impl SimulatedAccess {
    /// Access to a mapping without owning it.
    ///
    /// # Safety
    ///
    /// V9 of `verbs` has the conditions: it is gone before the mapping is unmapped, used under the
    /// network's lock only, and written through only where a receive or a READ is posted.
    pub(crate) unsafe fn of(mapping: &Mapping) -> Self {
        Self { base: mapping.base(), address: mapping.address(), len: mapping.len() }
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Returns true if all of these bytes are within the region.
    pub(crate) fn contains(&self, address: u64, len: u64) -> bool {
        self.offset(address, len).is_some()
    }

    /// A copy of some bytes, or `None` when they are not within the region.
    pub(crate) fn read(&self, address: u64, len: u64) -> Option<Box<[u8]>> {
        let offset = self.offset(address, len)?;
        let mut bytes = vec![0; usize::try_from(len).ok()?].into_boxed_slice();
        // SAFETY: V9, M1: the offset is within the mapping, which is registered as long as the
        // table has it, and mapped as long as it is registered.
        let from = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: V9, M1: the bytes are initialised, and the copy is new memory of that length.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Some(bytes)
    }

    /// Writes some bytes; false when there is no such place within the region.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let Some(offset) = self.offset(address, bytes.len() as u64) else { return false };
        // SAFETY: V9, M1: the offset is within the mapping, as above.
        let to = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: V9: a device writes only to what is posted and not yet polled, which V2 and V6
        // keep everybody else away from.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }

    fn offset(&self, address: u64, len: u64) -> Option<usize> {
        let offset = address.checked_sub(self.address)?;
        let end = offset.checked_add(len)?;
        (end <= self.len as u64).then(|| usize::try_from(offset).ok())?
    }
}
