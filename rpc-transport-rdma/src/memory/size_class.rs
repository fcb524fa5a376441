//! Size classes of large buffers: multiples of 8 KiB, four to each doubling.
//!
//! Here because both the budget and the free lists count in classes. Messages tend to be a power
//! of two and a few bytes of header, which classes of powers of two would double; four steps to a
//! doubling waste at most a fifth of a buffer beyond 64 KiB.

/// Bytes of the smallest class: below it messages are eager.
pub(super) const SMALLEST_BYTES: usize = 8 * 1024;

/// Number of classes: the largest has 1 TiB.
pub(super) const COUNT: usize = 104;

/// Classes up to this many units are every multiple of a unit.
const EXACT_MAX: usize = 8;

/// A size class by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizeClass(u8);

impl SizeClass {
    /// The smallest class for `len` bytes, or `None` when there is none so large.
    pub(super) fn of(len: usize) -> Option<Self> {
        let units = len.max(1).div_ceil(SMALLEST_BYTES);
        let position = if units <= EXACT_MAX {
            units - 1
        } else {
            // Four steps between a power of two and the next.
            let below = (units - 1).ilog2() as usize;
            let step = units.div_ceil(1 << (below - 2)) - 5;
            EXACT_MAX + (below - 3) * 4 + step
        };
        u8::try_from(position).ok().filter(|at| usize::from(*at) < COUNT).map(Self)
    }

    /// The smallest class for `len` bytes in whole pages of `page_len`. A device pins whole
    /// pages, so that a buffer with a registration of its own takes them from the budget.
    pub(super) fn of_pages(len: usize, page_len: usize) -> Option<Self> {
        Self::of(len.max(1).checked_next_multiple_of(page_len)?)
    }

    /// Bytes of a buffer of the class.
    pub(super) fn bytes(self) -> usize {
        self.units() as usize * SMALLEST_BYTES
    }

    /// Budget units of a buffer of the class; a unit is the smallest class.
    pub(super) fn units(self) -> u32 {
        let position = u32::from(self.0);
        match position.checked_sub(8) {
            None => position + 1,
            Some(beyond) => (5 + beyond % 4) << (1 + beyond / 4),
        }
    }

    /// Position among the classes, from the smallest.
    pub(super) fn position(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_length_and_wastes_at_most_a_fifth() {
        for (len, kib) in [(0, 8), (1, 8), (8192, 8), (8193, 16), (40_000, 40), (1 << 26, 1 << 16)]
        {
            let class = SizeClass::of(len).unwrap();
            assert_eq!(class.bytes(), kib << 10, "for {len}");
        }
        for len in (1..40).flat_map(|log2| [1usize << log2, (1 << log2) + 33, 3 << (log2 - 1)]) {
            let bytes = SizeClass::of(len).unwrap().bytes();
            assert!(bytes >= len, "{len} in {bytes}");
            assert!(len < 64 << 10 || bytes - len <= bytes / 5, "{len} in {bytes}");
        }
    }

    #[test]
    fn classes_for_whole_pages_are_whole_pages() {
        for page_len in [4 << 10, 16 << 10, 64 << 10] {
            for len in (0..60).map(|step| step * 9973) {
                let bytes = SizeClass::of_pages(len, page_len).unwrap().bytes();
                assert!(bytes >= len && bytes.is_multiple_of(page_len), "{len} in {bytes}");
            }
        }
        assert_eq!(SizeClass::of_pages(usize::MAX, 4096), None);
    }

    #[test]
    fn every_class_is_the_class_of_its_own_bytes() {
        for position in 0..COUNT {
            let class = SizeClass(u8::try_from(position).unwrap());
            assert_eq!(SizeClass::of(class.bytes()), Some(class));
            assert_eq!(
                SizeClass::of(class.bytes() + 1).map_or(COUNT, SizeClass::position),
                position + 1
            );
        }
    }

    #[test]
    fn classes_end_at_a_tebibyte() {
        assert_eq!(SizeClass::of(1 << 40).unwrap().position(), COUNT - 1);
        assert_eq!(SizeClass::of((1 << 40) + 1), None);
        assert_eq!(SizeClass::of(usize::MAX), None);
    }
}
