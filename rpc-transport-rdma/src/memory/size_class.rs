//! Size classes of large buffers: powers of two from 8 KiB.
//!
//! Here because both the budget and the free lists count in classes. A power of two wastes at most
//! half of a buffer and lets any buffer of a class serve any request of that class.

/// Bytes of the smallest class: below it messages are eager.
pub(super) const SMALLEST_BYTES: usize = 8 * 1024;

/// Number of classes: the largest has `SMALLEST_BYTES << (COUNT - 1)` bytes, 1 TiB.
pub(super) const COUNT: usize = 28;

/// A size class by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizeClass(u8);

impl SizeClass {
    /// The smallest class for `len` bytes, or `None` when there is none so large.
    pub(super) fn of(len: usize) -> Option<Self> {
        let bytes = len.max(SMALLEST_BYTES).checked_next_power_of_two()?;
        let position = bytes.ilog2() - SMALLEST_BYTES.ilog2();
        u8::try_from(position).ok().filter(|at| usize::from(*at) < COUNT).map(Self)
    }

    /// Bytes of a buffer of the class.
    pub(super) fn bytes(self) -> usize {
        SMALLEST_BYTES << self.0
    }

    /// Budget units of a buffer of the class; a unit is the smallest class.
    pub(super) fn units(self) -> u32 {
        1 << self.0
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
    fn a_class_holds_its_length_and_wastes_at_most_half() {
        for (len, bytes) in [(0, 8192), (1, 8192), (8192, 8192), (8193, 16384), (1 << 26, 1 << 26)]
        {
            let class = SizeClass::of(len).unwrap();
            assert_eq!(class.bytes(), bytes, "for {len}");
            assert_eq!(class.units() as usize * SMALLEST_BYTES, bytes);
        }
    }

    #[test]
    fn classes_end_at_a_tebibyte() {
        assert_eq!(SizeClass::of(1 << 40).unwrap().position(), COUNT - 1);
        assert_eq!(SizeClass::of((1 << 40) + 1), None);
        assert_eq!(SizeClass::of(usize::MAX), None);
    }
}
