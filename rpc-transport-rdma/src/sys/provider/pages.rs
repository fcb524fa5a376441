//! The system's pages beneath a mapping: huge ones where they are granted, touched in any case.
//!
//! Registering touched pages takes a twenty-fifth of the time, and a device translates fewer
//! addresses where pages are huge. Whether they are is a matter of the machine's settings, so
//! nothing fails for want of them: explicit huge pages first, then ordinary memory that the
//! kernel is asked to back with huge pages, then plain pages.

use std::sync::LazyLock;

use nix::unistd::{SysconfVar, sysconf};

/// The kind of a mapping's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Explicit huge pages (`vm.nr_hugepages`).
    Huge,
    /// Aligned ordinary memory that the kernel was asked to back with huge pages, and may have.
    Advised,
    /// Pages as the system has them, of 4 to 64 KiB.
    Plain,
}

/// Length of a page: 4 KiB on x86-64, 4, 16 or 64 KiB on 64-bit Arm, as its kernel was built. A
/// device pins whole pages.
pub(crate) fn page_len() -> usize {
    static PAGE_LEN: LazyLock<usize> = LazyLock::new(|| {
        let len = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        len.and_then(|len| usize::try_from(len).ok())
            .filter(|len| len.is_power_of_two())
            .unwrap_or(4096)
    });
    *PAGE_LEN
}

/// `len` rounded up to whole pages and to one at least; `None` beyond `usize`.
pub(crate) fn whole_pages(len: usize) -> Option<usize> {
    len.max(1).checked_next_multiple_of(page_len())
}

/// Length of a huge page. Longer ones exist, and are of use to mappings far longer than ours.
#[cfg(not(miri))]
pub(crate) const HUGE_LEN: usize = 2 << 20;

#[cfg(not(miri))]
pub(crate) use system::{map, unmap};

#[cfg(miri)]
pub(crate) use allocator::{map, unmap};

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
    pub(crate) fn map(len: usize) -> io::Result<(NonNull<u8>, PageKind)> {
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
                // SAFETY: M1: made above, and nothing else has seen it.
                unsafe { unmap(base.cast(), len) };
                Err(error.into())
            }
        }
    }

    fn map_huge(len: usize) -> Option<NonNull<u8>> {
        // Touched apart from mapping: a fault that a control group refuses is an error of
        // `madvise` and would be a signal otherwise. So kernels before 5.14, whose `madvise` cannot
        // touch, give no explicit huge pages.
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
            // SAFETY: M1: made above, and nothing else has seen it.
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
            // SAFETY: M1: they are whole pages that nothing has seen.
            unsafe { unmap(behind.cast(), HUGE_LEN - before) };
        }
        let touched = advise(base, len, MmapAdvise::MADV_DONTFORK)
            .and_then(|()| advise(base, len, MmapAdvise::MADV_HUGEPAGE))
            .and_then(|()| match advise(base, len, MmapAdvise::MADV_POPULATE_WRITE) {
                Err(Errno::EINVAL) => {
                    touch(base, len);
                    Ok(())
                }
                touched => touched,
            });
        keep_if(base, len, touched)
    }

    /// Writes to each page of a mapping, which is what kernels before 5.14 leave to us.
    fn touch(base: NonNull<c_void>, len: usize) {
        for offset in (0..len).step_by(super::page_len()) {
            // SAFETY: M1: the offset lies within the mapping of `len` bytes.
            let page = unsafe { base.byte_add(offset) }.cast::<u8>();
            // SAFETY: M1: the byte is mapped for writing, and only this function knows the mapping.
            unsafe { page.write_volatile(0) };
        }
    }

    fn keep_if(
        base: NonNull<c_void>,
        len: usize,
        touched: Result<(), Errno>,
    ) -> Option<NonNull<u8>> {
        if touched.is_err() {
            // SAFETY: M1: a whole mapping of the caller's that nothing else has seen.
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
        // SAFETY: M1, M6: the range is a mapping of our own that nothing else has seen, and no
        // advice given here takes its contents away from this process.
        unsafe { madvise(base, len, advice) }
    }

    /// # Safety
    ///
    /// `base` and `len` are whole pages of a mapping that nothing uses any more.
    pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { munmap(base.cast(), len) } {
            tracing::error!(
                target: "farcall::rdma", %error, len, "cannot unmap memory; it is leaked"
            );
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Bytes of the mapping at `base` that have a page, as the kernel counts them.
        fn resident_bytes(base: NonNull<c_void>) -> usize {
            let start = format!("{:x}-", base.as_ptr().addr());
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
            let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
            resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
        }

        #[test]
        fn pages_that_the_kernel_does_not_touch_are_touched() {
            let page_len = crate::sys::provider::pages::page_len();
            let (len, whole_len) = (8 * page_len, 10 * page_len);
            let whole = map_with(whole_len, MapFlags::empty()).unwrap();
            // SAFETY: M1: the mapping has two pages more.
            let base = unsafe { whole.byte_add(page_len) };
            // Unlike its neighbours, because the kernel shows like ones as one mapping.
            advise(base, len, MmapAdvise::MADV_DONTFORK).unwrap();
            assert_eq!(resident_bytes(base), 0);
            touch(base, len);
            assert_eq!(resident_bytes(base), len);
            // SAFETY: M1: mapped above, and used no more.
            unsafe { unmap(whole.cast(), whole_len) };
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn lengths_become_whole_pages() {
        let page_len = page_len();
        assert!(page_len.is_power_of_two() && page_len >= 4096);
        assert_eq!(whole_pages(0), Some(page_len));
        assert_eq!(whole_pages(page_len), Some(page_len));
        assert_eq!(whole_pages(page_len + 1), Some(2 * page_len));
        assert_eq!(whole_pages(usize::MAX), None);
    }
}

/// The allocator in place of the system, for the interpreter that checks aliasing.
#[cfg(miri)]
mod allocator {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    use super::PageKind;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, super::page_len()).expect("checked by the caller")
    }

    pub(crate) fn map(len: usize) -> io::Result<(NonNull<u8>, PageKind)> {
        // SAFETY: the length is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout(len)) });
        base.map(|base| (base, PageKind::Plain)).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    ///
    /// `base` and `len` are a whole mapping that nothing uses any more.
    pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise; `map` allocated it with this layout.
        unsafe { dealloc(base.as_ptr(), layout(len)) };
    }
}
