//! Anonymous, page-aligned memory that is ours alone, and what a device may do with it.
//!
//! Here rather than an allocator's memory because pages are pinned whole: nothing else may share
//! them, and they must not change their place when the process forks.

use std::io;
use std::ptr::NonNull;

use crate::sys::provider::pages;
use crate::sys::provider::pages::PageKind;

/// Memory mapped for a device: zeroed at first, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    kind: PageKind,
}

// SAFETY: M1: the mapping is plain memory with one owner; the value itself reads and writes none
// of it, so moving it or sharing it between threads is as for any pointer and length.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` bytes, rounded up to whole pages and at least one, and touches them:
    /// registering untouched pages takes 25 times as long.
    ///
    /// # Errors
    ///
    /// Returns the system's error when there is no memory, or `InvalidInput` for an absurd length.
    pub fn new(len: usize) -> io::Result<Self> {
        let len = pages::whole_pages(len).filter(|len| isize::try_from(*len).is_ok());
        let len = len.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a mapping longer than the address space")
        })?;
        let (base, kind) = pages::map(len)?;
        Ok(Self { base, len, kind })
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

    /// Returns the kind of its pages.
    #[must_use]
    pub fn page_kind(&self) -> PageKind {
        self.kind
    }

    /// Returns true if it has no bytes, which is never the case.
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

/// A device's access to a region. Remote writing is deliberately not among the choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The peer may read it; the device never writes to it. For messages that are offered.
    Source,
    /// The peer may read what a window is bound to, and nothing else of it; the device never
    /// writes to it. For messages that are offered through windows.
    Windowed,
    /// Our own READs write to it; no peer can reach it. For messages that are fetched.
    Sink,
    /// The same, and what a READ writes may reach memory in any order before its completion does.
    RelaxedSink,
    /// Our own receives write to it, or it is only sent from; no peer can reach it.
    Eager,
}

impl Access {
    /// Returns true if READs may write to it.
    pub(crate) fn is_sink(self) -> bool {
        matches!(self, Self::Sink | Self::RelaxedSink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_whole_zeroed_pages() {
        let page_len = pages::page_len();
        let mapping = Mapping::new(page_len + 1).unwrap();
        assert_eq!(mapping.len(), 2 * page_len);
        assert_eq!(mapping.address() % page_len as u64, 0);
        // SAFETY: M1: nothing else knows the mapping.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.base().as_ptr(), mapping.len()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "the allocator stands in for the system's pages")]
    fn a_huge_page_mapping_is_aligned_if_granted() {
        let mapping = Mapping::new(4 << 20).unwrap();
        if mapping.page_kind() != PageKind::Plain {
            assert_eq!(mapping.address() % (2 << 20), 0);
        }
        // SAFETY: M1: the mapping is as long as it says.
        let last = unsafe { mapping.base().add(mapping.len() - 1) };
        // SAFETY: M1: nothing else knows the mapping.
        unsafe { last.write(7) };
        assert_eq!(Mapping::new(12 << 10).unwrap().page_kind(), PageKind::Plain);
    }

    #[test]
    fn an_absurd_length_is_an_error() {
        assert!(Mapping::new(usize::MAX).is_err());
        assert!(Mapping::new(isize::MAX as usize + 1).is_err());
    }
}
