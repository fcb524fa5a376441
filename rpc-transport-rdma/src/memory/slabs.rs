//! The free blocks of all slabs, and the room for another slab.
//!
//! ```text
//!   plan ──register──> add ──> free ──pop──> in use ──push──> free ──evict──> gone
//!     └────cancel────> gone
//! ```
//! A slab is a region cut into equal blocks of one class. Its bytes count against the budget from
//! the moment it is planned until it is evicted, so that what is registered never exceeds it. A
//! class begins with one block and doubles with each slab: what is used once costs one block, what
//! is used much costs few registrations. Pure: a region is an opaque value here.
//!
//! # Size classes
//!
//! Buffers are multiples of 8 KiB, in four classes to each doubling, in which both the budget and
//! the free lists count. Messages tend to be a power
//! of two and a few bytes of header, which classes of powers of two would double; four steps to a
//! doubling waste at most a fifth of a buffer beyond 64 KiB.

use std::sync::Arc;

use slab::Slab;

/// The blocks of a pool.
#[derive(Debug)]
pub(super) struct SlabTable<R> {
    slabs: Slab<Entry<R>>,
    classes: Vec<Class>,
    units_max: usize,
    /// Units of all slabs, planned ones included.
    registered: usize,
    in_use: usize,
}

#[derive(Debug, Clone, Default)]
struct Class {
    /// The slabs that have a free block.
    open: Vec<usize>,
    /// Blocks of all its slabs, planned ones included.
    block_count: u32,
}

#[derive(Debug)]
struct Entry<R> {
    region: Arc<R>,
    class: SizeClass,
    free: Vec<Free>,
    block_count: u32,
}

/// A block that is free.
#[derive(Debug, Clone, Copy)]
struct Free {
    index: u32,
    /// Value of [`Block::written`].
    written: usize,
}

/// A block in use.
#[derive(Debug)]
pub(super) struct Block<R> {
    pub(super) region: Arc<R>,
    /// Offset in the region.
    pub(super) offset: usize,
    /// Number of first bytes that may have been written; the others are zero.
    pub(super) written: usize,
    slab: usize,
    index: u32,
}

/// A slab that is about to be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) class: SizeClass,
    pub(super) block_count: u32,
}

impl Plan {
    pub(super) fn bytes(self) -> usize {
        self.block_count as usize * self.class.bytes()
    }

    fn units(self) -> usize {
        self.block_count as usize * self.class.units() as usize
    }
}

impl<R> SlabTable<R> {
    pub(super) fn new(units_max: u32) -> Self {
        Self {
            slabs: Slab::new(),
            classes: vec![Class::default(); COUNT],
            units_max: units_max as usize,
            registered: 0,
            in_use: 0,
        }
    }

    /// Units of blocks in use.
    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Units of all slabs, planned ones included.
    pub(super) fn registered(&self) -> usize {
        self.registered
    }

    /// The regions that there are.
    pub(super) fn regions(&self) -> impl Iterator<Item = &R> {
        self.slabs.iter().map(|(_, entry)| &*entry.region)
    }

    /// Takes a free block.
    pub(super) fn pop(&mut self, class: SizeClass) -> Option<Block<R>> {
        let open = &mut self.classes[class.position()].open;
        let slab = *open.last()?;
        let entry = &mut self.slabs[slab];
        let Free { index, written } = entry.free.pop()?;
        if entry.free.is_empty() {
            open.pop();
        }
        self.in_use += class.units() as usize;
        let (region, offset) = (Arc::clone(&entry.region), index as usize * class.bytes());
        Some(Block { region, offset, written, slab, index })
    }

    /// Takes a block back.
    pub(super) fn push(&mut self, block: Block<R>) {
        let Block { region, slab, index, written, .. } = block;
        // The slab keeps it.
        drop(region);
        let entry = &mut self.slabs[slab];
        if entry.free.is_empty() {
            self.classes[entry.class.position()].open.push(slab);
        }
        entry.free.push(Free { index, written });
        self.in_use -= entry.class.units() as usize;
    }

    /// Plans a slab of at most `block_max` blocks, and gives the regions that make way for it:
    /// they are to be dropped first. `None` when there is no room for a single block.
    pub(super) fn plan(&mut self, class: SizeClass, block_max: u32) -> Option<(Plan, Vec<Arc<R>>)> {
        let units = class.units() as usize;
        let mut evicted = Vec::new();
        while self.registered + units > self.units_max {
            evicted.push(self.evict()?);
        }
        let room = (self.units_max - self.registered) / units;
        let wanted = self.classes[class.position()].block_count.clamp(1, block_max.max(1));
        let block_count = wanted.min(u32::try_from(room).unwrap_or(u32::MAX));
        let plan = Plan { class, block_count };
        self.registered += plan.units();
        self.classes[class.position()].block_count += block_count;
        Some((plan, evicted))
    }

    /// Gives up a plan, or the part of it that is beyond `plan`.
    pub(super) fn cancel(&mut self, plan: Plan) {
        self.registered -= plan.units();
        self.classes[plan.class.position()].block_count -= plan.block_count;
    }

    /// Adds a planned slab, all of whose blocks are free.
    pub(super) fn add(&mut self, plan: Plan, region: R) {
        let Plan { class, block_count } = plan;
        // A new mapping is zero.
        let free = (0..block_count).rev().map(|index| Free { index, written: 0 }).collect();
        let entry = Entry { region: Arc::new(region), class, free, block_count };
        let key = self.slabs.insert(entry);
        self.classes[class.position()].open.push(key);
    }

    /// Takes out a slab of the largest class that has one without a block in use: few evictions
    /// make much room.
    pub(super) fn evict(&mut self) -> Option<Arc<R>> {
        let slabs = &self.slabs;
        let is_unused = |key: &usize| slabs[*key].free.len() == slabs[*key].block_count as usize;
        let (class, at) = self.classes.iter_mut().rev().find_map(|class| {
            let at = class.open.iter().position(is_unused)?;
            Some((class, at))
        })?;
        let entry = self.slabs.remove(class.open.remove(at));
        let plan = Plan { class: entry.class, block_count: entry.block_count };
        self.cancel(plan);
        Some(entry.region)
    }
}

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
    pub(super) fn for_pages(len: usize, page_len: usize) -> Option<Self> {
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
    use std::collections::HashSet;

    use super::*;
    use proptest::prelude::*;

    fn class(kib: usize) -> SizeClass {
        SizeClass::of(kib << 10).unwrap()
    }

    fn grow(table: &mut SlabTable<u32>, kib: usize, block_max: u32) -> Option<u32> {
        let (plan, _) = table.plan(class(kib), block_max)?;
        table.add(plan, plan.block_count);
        Some(plan.block_count)
    }

    #[test]
    fn a_class_doubles_with_each_slab_up_to_the_longest() {
        let mut table = SlabTable::new(1000);
        let counts: Vec<_> = (0..5).map(|_| grow(&mut table, 8, 4).unwrap()).collect();
        assert_eq!(counts, [1, 1, 2, 4, 4]);
        assert_eq!(grow(&mut table, 16, 1), Some(1));
        assert_eq!(table.registered(), 12 + 2);
    }

    #[test]
    fn a_slab_with_a_block_in_use_does_not_make_way() {
        let mut table = SlabTable::new(4);
        for _ in 0..3 {
            grow(&mut table, 8, 2);
        }
        let used = table.pop(class(8)).unwrap();
        assert_eq!(*used.region, 2);
        assert!(table.plan(class(24), 1).is_none(), "two of four units hold a block in use");
        let (plan, evicted) = table.plan(class(16), 1).unwrap();
        assert_eq!((plan.block_count, evicted.len()), (1, 0));
        table.cancel(plan);
        table.push(used);
        assert!(table.plan(class(32), 1).is_some());
    }

    proptest! {
        #[test]
        fn no_block_is_given_twice_and_the_budget_is_kept(
            steps in prop::collection::vec((0u8..6, 1usize..200), 1..200),
            block_max in 1u32..9,
        ) {
            let mut table = SlabTable::new(64);
            let (mut used, mut planned, mut next) = (Vec::new(), Vec::new(), 0u32);
            for (step, kib) in steps {
                match step {
                    0 => planned.extend(table.plan(class(kib), block_max).map(|(plan, _)| plan)),
                    1 => if let Some(plan) = planned.pop() {
                        next += 1;
                        table.add(plan, next);
                    }
                    2 => if let Some(plan) = planned.pop() { table.cancel(plan) },
                    3 | 4 => used.extend(table.pop(class(kib)).map(|block| (block, class(kib)))),
                    _ => if !used.is_empty() {
                        let (block, _) = used.swap_remove(kib % used.len());
                        table.push(block);
                    }
                }
                let places: HashSet<_> =
                    used.iter().map(|(block, _)| (*block.region, block.offset)).collect();
                prop_assert_eq!(places.len(), used.len());
                let in_use: usize = used.iter().map(|(_, class)| class.units() as usize).sum();
                prop_assert_eq!(table.in_use(), in_use);
                prop_assert!(table.in_use() <= table.registered() && table.registered() <= 64);
            }
            used.into_iter().for_each(|(block, _)| table.push(block));
            planned.into_iter().for_each(|plan| table.cancel(plan));
            while table.evict().is_some() {}
            prop_assert_eq!(table.registered(), 0);
        }
    }

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
                let bytes = SizeClass::for_pages(len, page_len).unwrap().bytes();
                assert!(bytes >= len && bytes.is_multiple_of(page_len), "{len} in {bytes}");
            }
        }
        assert_eq!(SizeClass::for_pages(usize::MAX, 4096), None);
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
