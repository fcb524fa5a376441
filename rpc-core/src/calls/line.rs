//! Those that wait for something, in the order in which they came. Any of them may leave the line.

use std::collections::BTreeMap;

/// A line of `T`.
#[derive(Debug)]
pub(crate) struct Line<T> {
    waiting: BTreeMap<u64, T>,
    next: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), next: 0 }
    }
}

impl<T> Line<T> {
    /// Returns the number of those that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Puts one at the end. Returns its number, by which it can leave.
    pub(crate) fn push(&mut self, waiting: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, waiting);
        number
    }

    /// Takes the first one out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.waiting.pop_first().map(|(_, waiting)| waiting)
    }

    /// Takes the one with this number out; `None` if it was taken before.
    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        self.waiting.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_those_that_are_left_comes_next() {
        let mut line = Line::default();
        let numbers = ['a', 'b', 'c', 'd'].map(|waiting| line.push(waiting));
        assert_eq!((line.remove(numbers[0]), line.remove(numbers[2])), (Some('a'), Some('c')));
        assert_eq!((line.pop(), line.remove(numbers[1])), (Some('b'), None));
        assert_eq!((line.push('e') > numbers[3], line.len()), (true, 2));
        assert_eq!([line.pop(), line.pop(), line.pop()], [Some('d'), Some('e'), None]);
    }
}
