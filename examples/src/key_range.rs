//! The keys that a request selects: etcd's `key` and `range_end`.

use std::ops::{Bound, RangeBounds};

use bytes::Bytes;

/// A range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRange {
    /// One key.
    Single(Bytes),
    /// All keys from one on.
    From(Bytes),
    /// All keys from the first up to, and without, the second.
    Between(Bytes, Bytes),
}

impl KeyRange {
    /// The range of a request: no `range_end` means one key, a zero byte all keys from `key` on.
    /// A prefix is a range that ends at [`prefix_end`].
    #[must_use]
    pub fn new(key: Bytes, range_end: Bytes) -> Self {
        match &range_end[..] {
            [] => Self::Single(key),
            [0] => Self::From(key),
            _ => Self::Between(key, range_end),
        }
    }

    /// The bounds in the order of the keys' bytes; `None` when no key can be within.
    #[must_use]
    pub fn bounds(&self) -> Option<impl RangeBounds<[u8]> + use<'_>> {
        let (start, end): (&[u8], Bound<&[u8]>) = match self {
            Self::Single(key) => (key, Bound::Included(key)),
            Self::From(key) => (key, Bound::Unbounded),
            Self::Between(key, end) if key < end => (key, Bound::Excluded(end)),
            Self::Between(..) => return None,
        };
        Some((Bound::Included(start), end))
    }
}

/// The `range_end` of all keys that begin with `prefix`: the prefix plus one, and for a prefix
/// that has no successor, or for none at all, the zero byte that means all keys from there on.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    match prefix.iter().rposition(|byte| *byte < 0xff) {
        None => Bytes::from_static(b"\0"),
        Some(at) => {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            end.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(key: &'static [u8], end: &'static [u8], candidate: &[u8]) -> bool {
        let range = KeyRange::new(key.into(), end.into());
        range.bounds().is_some_and(|bounds| bounds.contains(candidate))
    }

    #[test]
    fn without_an_end_it_is_one_key() {
        assert!(contains(b"a", b"", b"a"));
        assert!(!contains(b"a", b"", b"aa"));
    }

    #[test]
    fn a_zero_byte_means_to_the_end() {
        assert!(contains(b"b", b"\0", b"\xff\xff"));
        assert!(!contains(b"b", b"\0", b"a"));
        assert!(contains(b"\0", b"\0", b"\0"));
    }

    #[test]
    fn an_end_is_not_within_and_may_lie_before_the_key() {
        assert!(contains(b"a", b"c", b"bz"));
        assert!(!contains(b"a", b"c", b"c"));
        assert!(!contains(b"c", b"a", b"b"));
        assert!(!contains(b"a", b"a", b"a"));
    }

    #[test]
    fn a_prefix_ends_at_its_successor() {
        assert_eq!(prefix_end(b"key"), "kez");
        assert_eq!(prefix_end(b"k\xff\xff"), "l");
        assert_eq!(prefix_end(b"\xff"), "\0");
        assert_eq!(prefix_end(b""), "\0");
    }
}
