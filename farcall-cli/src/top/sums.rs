//! Sums of what servers count. A server may send any numbers, under any names.

use std::collections::BTreeMap;

/// Longest text of a server that is kept, in characters.
const TEXT_LEN_MAX: usize = 60;

pub(super) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// Sums the counts of each name, of the first `max` names alone.
pub(super) fn by_name<'a>(
    counts: impl Iterator<Item = (&'a str, u64)>,
    max: usize,
) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in counts {
        let name = short(name);
        if sums.len() < max || sums.contains_key(&name) {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    sums
}

/// Cuts a text of a server.
pub(super) fn short(text: &str) -> String {
    text.chars().take(TEXT_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_names_are_counted() {
        let counts = [("b", 1), ("a", u64::MAX), ("c", 5), ("b", 2), ("a", 1)];
        let sums = by_name(counts.into_iter(), 2);
        assert_eq!(sums, BTreeMap::from([("a".to_owned(), u64::MAX), ("b".to_owned(), 3)]));
    }
}
