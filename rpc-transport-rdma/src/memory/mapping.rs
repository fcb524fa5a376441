//! Anonymous, page-aligned memory that is ours alone.
//!
//! Here rather than an allocator's memory because pages are pinned whole: nothing else may share
//! them, and they must not change their place when the process forks.

use std::io;
use std::ptr::NonNull;

/// Memory mapped for a device: zeroed at first, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: M1: the mapping is plain memory with one owner; the value itself reads and writes none
// of it, so moving it or sharing it between threads is as for any pointer and length.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Granularity of lengths; a page on every platform that this crate supports.
    const PAGE_LEN: usize = 4096;

    /// Maps at least `len` bytes, rounded up to whole pages and at least one, and touches them:
    /// registering untouched pages takes 25 times as long.
    ///
    /// # Errors
    ///
    /// What the system said when there is no memory, or `InvalidInput` for an absurd length.
    pub fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1).checked_next_multiple_of(Self::PAGE_LEN);
        let len = len.filter(|len| isize::try_from(*len).is_ok()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a mapping longer than the address space")
        })?;
        Ok(Self { base: pages::map(len)?, len })
    }

    /// The first byte. The pointer reaches all of the mapping.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The first byte's address as a device knows it.
    #[must_use]
    pub fn address(&self) -> u64 {
        // Exposed because devices, and simulated ones too, come back with an integer.
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Length in bytes, a whole number of pages.
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

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: M1: this value alone owns the pages, which `pages::map` made with this length.
        unsafe { pages::unmap(self.base, self.len) };
    }
}

/// The system's pages.
#[cfg(not(miri))]
mod pages {
    use std::io;
    use std::num::NonZeroUsize;
    use std::ptr::NonNull;

    use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

    pub(super) fn map(len: usize) -> io::Result<NonNull<u8>> {
        let length = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // MAP_POPULATE writes to every page, so that none is the shared zero page when pinned.
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE;
        // SAFETY: a new anonymous mapping at a place of the system's choice touches nothing that
        // exists.
        let base = unsafe { mmap_anonymous(None, length, protection, flags) }?;
        // SAFETY: M1, M6: the range is the mapping made above; a child without it is the purpose.
        let advised = unsafe { madvise(base, len, MmapAdvise::MADV_DONTFORK) };
        if let Err(error) = advised {
            // SAFETY: M1: made above, and nobody else has seen it.
            unsafe { unmap(base.cast(), len) };
            return Err(error.into());
        }
        Ok(base.cast())
    }

    /// # Safety
    ///
    /// `base` and `len` are a whole mapping that nothing uses any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { munmap(base.cast(), len) } {
            tracing::error!(%error, len, "cannot unmap memory; it is leaked");
        }
    }
}

/// The allocator in place of the system, for the interpreter that checks aliasing.
#[cfg(miri)]
mod pages {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, super::Mapping::PAGE_LEN).expect("checked by the caller")
    }

    pub(super) fn map(len: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: the length is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout(len)) }).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    ///
    /// `base` and `len` are a whole mapping that nothing uses any more.
    pub(super) unsafe fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise; `map` allocated it with this layout.
        unsafe { dealloc(base.as_ptr(), layout(len)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_whole_zeroed_pages() {
        let mapping = Mapping::new(4097).unwrap();
        assert_eq!(mapping.len(), 8192);
        assert_eq!(mapping.address() % 4096, 0);
        // SAFETY: M1: nobody else knows the mapping.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.base().as_ptr(), mapping.len()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn an_absurd_length_is_an_error() {
        assert!(Mapping::new(usize::MAX).is_err());
        assert!(Mapping::new(isize::MAX as usize + 1).is_err());
    }
}
