//! Hashing of call ids, for which one multiplication is enough, and of methods' paths, for which
//! one for eight bytes is.
//!
//! The standard hasher costs as much as the rest of a look-up in a table of calls. Ids are chosen
//! by the peer, so that a hash that it can foresee would let it make every look-up slow: each
//! table has a key of its own, which the peer does not know.

use std::hash::{BuildHasher, Hasher, RandomState};

/// An odd number without pattern: the fraction of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes the keys of one table.
#[derive(Debug, Clone)]
pub struct IdHashing {
    key: u64,
}

impl Default for IdHashing {
    fn default() -> Self {
        Self { key: RandomState::new().hash_one(FACTOR) }
    }
}

impl BuildHasher for IdHashing {
    type Hasher = IdHasher;

    fn build_hasher(&self) -> IdHasher {
        IdHasher(self.key)
    }
}

/// The hash of one key.
#[derive(Debug)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks();
        for chunk in chunks {
            self.write_u64(u64::from_le_bytes(*chunk));
        }
        if !rest.is_empty() {
            self.write_u64(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u64(&mut self, id: u64) {
        // Both halves of the product, so that every bit of the id has a part in every bit here.
        let mixed = self.0 ^ id;
        let high = (u128::from(mixed) * u128::from(FACTOR)) >> 64;
        self.0 = high as u64 ^ mixed.wrapping_mul(FACTOR);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_as_clients_choose_them_spread_over_all_bits() {
        let hashing = IdHashing::default();
        let hashes: Vec<_> =
            (0..1024u64).map(|number| hashing.hash_one((number << 32) | (number % 64))).collect();
        // A table takes its place from the low bits and tells entries apart by the high ones.
        for shift in [0, 57] {
            let parts: HashSet<_> = hashes.iter().map(|hash| (hash >> shift) & 0x7f).collect();
            // Some keys leave a pattern that misses a few; none may miss half.
            assert!(parts.len() > 64, "{} values of bits from {shift} on", parts.len());
        }
    }

    #[test]
    fn no_two_tables_hash_alike() {
        let [one, other] = [IdHashing::default(), IdHashing::default()];
        assert_ne!(one.hash_one(7u64), other.hash_one(7u64));
    }

    /// With a part of the id lost, ids that differ in that part alone would be one.
    #[test]
    fn every_bit_of_an_id_has_a_part_in_its_hash() {
        let hashing = IdHashing::default();
        let ids = (0..64).map(|bit| 1 << bit).chain([0]);
        let hashes: HashSet<_> = ids.map(|id: u64| hashing.hash_one(id)).collect();
        assert_eq!(hashes.len(), 65);
    }

    #[test]
    fn about_half_of_the_bits_of_hashes_are_set() {
        let hashing = IdHashing::default();
        let ones = (0..4096u64).map(|id| u64::from(hashing.hash_one(id << 20).count_ones()));
        let share = ones.sum::<u64>() as f64 / (64.0 * 4096.0);
        assert!((0.4..0.6).contains(&share), "{share}");
    }

    #[test]
    fn paths_that_differ_in_one_byte_hash_apart() {
        let hashing = IdHashing::default();
        let path = "/farcall.example.Store/Put";
        let mut hashes = HashSet::from([hashing.hash_one(path)]);
        for at in 0..path.len() {
            let mut other = path.as_bytes().to_vec();
            other[at] ^= 1;
            assert!(hashes.insert(hashing.hash_one(String::from_utf8(other).unwrap())), "{at}");
        }
    }
}
