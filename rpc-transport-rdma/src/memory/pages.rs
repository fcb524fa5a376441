//! The system's pages beneath a mapping: huge ones where they are granted, touched in any case.
//!
//! Registering touched pages takes a twenty-fifth of the time, and a device translates fewer
//! addresses where pages are huge. Whether they are is a matter of the machine's settings, so
//! nothing fails for want of them: explicit huge pages first, then ordinary memory that the
//! kernel is asked to back with huge pages, then plain pages.

/// What a mapping is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Explicit huge pages (`vm.nr_hugepages`).
    Huge,
    /// Aligned ordinary memory that the kernel was asked to back with huge pages, and may have.
    Advised,
    /// Pages of 4 KiB.
    Plain,
}

/// Length of a huge page. Longer ones exist, and are of use to mappings far longer than ours.
#[cfg(not(miri))]
pub(super) const HUGE_LEN: usize = 2 << 20;

#[cfg(not(miri))]
pub(super) use system::{map, unmap};

#[cfg(miri)]
pub(super) use allocator::{map, unmap};

#[cfg(not(miri))]
mod system {
    use std::io;
    use std::num::NonZeroUsize;
    use std::ptr::NonNull;

    use nix::errno::Errno;
    use nix::libc::c_void;
    use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{HUGE_LEN, PageKind};

    /// Maps `len` bytes, whole pages, and touches them.
    pub(in crate::memory) fn map(len: usize) -> io::Result<(NonNull<u8>, PageKind)> {
        if len.is_multiple_of(HUGE_LEN) {
            if let Some(base) = map_huge(len) {
                return Ok((base, PageKind::Huge));
            }
            if let Some(base) = map_advised(len) {
                return Ok((base, PageKind::Advised));
            }
        }
        // MAP_POPULATE writes to every page, so that none is the shared zero page when pinned.
        let base = map_with(len, MapFlags::MAP_POPULATE)?;
        match advise(base, len, MmapAdvise::MADV_DONTFORK) {
            Ok(()) => Ok((base.cast(), PageKind::Plain)),
            Err(error) => {
                // SAFETY: M1: made above, and nobody else has seen it.
                unsafe { unmap(base.cast(), len) };
                Err(error.into())
            }
        }
    }

    fn map_huge(len: usize) -> Option<NonNull<u8>> {
        // Touched apart from mapping: a fault that a control group refuses is an error of
        // `madvise` and would be a signal otherwise.
        let flags = MapFlags::MAP_HUGETLB | MapFlags::MAP_HUGE_2MB;
        let base = map_with(len, flags).ok()?;
        let touched = advise(base, len, MmapAdvise::MADV_DONTFORK)
            .and_then(|()| advise(base, len, MmapAdvise::MADV_POPULATE_WRITE));
        keep_if(base, len, touched)
    }

    /// Memory that begins at a multiple of a huge page, which `mmap` alone does not promise.
    fn map_advised(len: usize) -> Option<NonNull<u8>> {
        let whole = len.checked_add(HUGE_LEN)?;
        let start = map_with(whole, MapFlags::empty()).ok()?;
        let before = start.as_ptr().align_offset(HUGE_LEN);
        if before > HUGE_LEN {
            // SAFETY: M1: made above, and nobody else has seen it.
            unsafe { unmap(start.cast(), whole) };
            return None;
        }
        // SAFETY: M1: `before` is at most HUGE_LEN, so that `len` bytes follow it.
        let base = unsafe { start.byte_add(before) };
        if before > 0 {
            // SAFETY: M1: the part of the mapping before what is kept.
            unsafe { unmap(start.cast(), before) };
        }
        if before < HUGE_LEN {
            // SAFETY: M1: `HUGE_LEN - before` bytes of the mapping lie behind what is kept.
            let behind = unsafe { base.byte_add(len) };
            // SAFETY: M1: they are whole pages that nobody has seen.
            unsafe { unmap(behind.cast(), HUGE_LEN - before) };
        }
        let touched = advise(base, len, MmapAdvise::MADV_DONTFORK)
            .and_then(|()| advise(base, len, MmapAdvise::MADV_HUGEPAGE))
            .and_then(|()| advise(base, len, MmapAdvise::MADV_POPULATE_WRITE));
        keep_if(base, len, touched)
    }

    fn keep_if(
        base: NonNull<c_void>,
        len: usize,
        touched: Result<(), Errno>,
    ) -> Option<NonNull<u8>> {
        if touched.is_err() {
            // SAFETY: M1: a whole mapping of the caller's that nobody else has seen.
            unsafe { unmap(base.cast(), len) };
            return None;
        }
        Some(base.cast())
    }

    fn map_with(len: usize, flags: MapFlags) -> io::Result<NonNull<c_void>> {
        let length = NonZeroUsize::new(len).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | flags;
        // SAFETY: a new anonymous mapping at a place of the system's choice touches nothing that
        // exists.
        Ok(unsafe { mmap_anonymous(None, length, protection, flags) }?)
    }

    fn advise(base: NonNull<c_void>, len: usize, advice: MmapAdvise) -> Result<(), Errno> {
        // SAFETY: M1, M6: the range is a mapping of our own that nobody else has seen, and no
        // advice given here takes its contents away from this process.
        unsafe { madvise(base, len, advice) }
    }

    /// # Safety
    ///
    /// `base` and `len` are whole pages of a mapping that nothing uses any more.
    pub(in crate::memory) unsafe fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { munmap(base.cast(), len) } {
            tracing::error!(%error, len, "cannot unmap memory; it is leaked");
        }
    }
}

/// The allocator in place of the system, for the interpreter that checks aliasing.
#[cfg(miri)]
mod allocator {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    use super::PageKind;
    use crate::memory::Mapping;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, Mapping::PAGE_LEN).expect("checked by the caller")
    }

    pub(in crate::memory) fn map(len: usize) -> io::Result<(NonNull<u8>, PageKind)> {
        // SAFETY: the length is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout(len)) });
        base.map(|base| (base, PageKind::Plain)).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    ///
    /// `base` and `len` are a whole mapping that nothing uses any more.
    pub(in crate::memory) unsafe fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise; `map` allocated it with this layout.
        unsafe { dealloc(base.as_ptr(), layout(len)) };
    }
}
