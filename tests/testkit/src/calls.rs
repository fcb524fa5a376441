//! Payloads of calls whose every byte is checked.
//!
//! A payload follows from its seed, so that the other end can make it too, and no two calls have
//! the same one. The calls themselves stand with the services that they call.

use std::fmt;

use bytes::Bytes;
use fastrand::Rng;

/// The pseudo-random payload of that seed and length.
#[must_use]
pub fn payload(seed: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes.into()
}

/// Payloads that are cut from one large one at random places, without a copy. Clones share it.
#[derive(Debug, Clone)]
pub struct PayloadSource {
    bytes: Bytes,
    /// Chooses the positions.
    pub random: Rng,
}

impl PayloadSource {
    /// Payloads up to `len_max` bytes.
    #[must_use]
    pub fn new(seed: u64, len_max: usize) -> Self {
        Self { bytes: payload(seed, len_max), random: Rng::with_seed(seed) }
    }

    /// The same bytes, with places of another seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        Self { bytes: self.bytes.clone(), random: Rng::with_seed(seed) }
    }

    /// The next payload, of `len` bytes.
    ///
    /// # Panics
    ///
    /// Panics if `len` is more than the source has.
    pub fn cut(&mut self, len: usize) -> Bytes {
        let start = self.random.usize(0..=self.bytes.len() - len);
        self.bytes.slice(start..start + len)
    }
}

/// A difference between bytes and the expected bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// The length that was found.
    pub found_len: usize,
    /// The length that was expected.
    pub expected_len: usize,
    /// Number of positions that differ, including those beyond the shorter of the two.
    pub count: usize,
    /// The first of them.
    pub first: usize,
    /// The last of them.
    pub last: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found_len, expected_len, count, first, last } = self;
        write!(
            f,
            "{found_len} bytes instead of {expected_len} bytes, {count} of them differ, from \
             {first} to {last}"
        )
    }
}

/// Compares every byte.
///
/// # Errors
///
/// Returns an error if `found` differs from `expected`.
pub fn same_bytes(found: &[u8], expected: &[u8]) -> Result<(), Difference> {
    let (found_len, expected_len) = (found.len(), expected.len());
    let differ = |at: &usize| found.get(*at) != expected.get(*at);
    let differing = || (0..found_len.max(expected_len)).filter(differ);
    // Compared as slices first: most are equal, and may have many MiB.
    if found == expected {
        return Ok(());
    }
    let (count, first) = (differing().count(), differing().next().unwrap_or_default());
    let last = differing().next_back().unwrap_or_default();
    Err(Difference { found_len, expected_len, count, first, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ() {
        assert_ne!(payload(1, 64), payload(2, 64));
        assert_eq!(payload(3, 64), payload(3, 64));
    }

    #[test]
    fn payloads_of_every_length_are_cut_from_their_source() {
        let mut source = PayloadSource::new(1, 100);
        for len in 0..=100 {
            assert_eq!(source.cut(len).len(), len);
        }
        assert_eq!(source.cut(100), payload(1, 100));
    }

    #[test]
    fn wrong_bytes_are_named() {
        let expected = payload(1, 100);
        let mut found = expected.to_vec();
        assert_eq!(same_bytes(&found, &expected), Ok(()));
        (found[70], found[80]) = (!found[70], !found[80]);
        let difference = same_bytes(&found, &expected).unwrap_err();
        assert_eq!((difference.count, difference.first, difference.last), (2, 70, 80));
        let shorter = same_bytes(&expected[..99], &expected).unwrap_err().to_string();
        let text = "99 bytes instead of 100 bytes, 1 of them differ, from 99 to 99";
        assert_eq!(shorter, text);
    }
}
