//! Checks that repeated measurements stay flat. Pure.
//!
//! Descriptors, queues and the like belong to connections: without any, there are always as many,
//! and the run itself waits for that. Memory is another thing. Pools and the allocator reach their
//! height late, and the allocator keeps what it likes; so the first third of the looks counts for
//! nothing, and the medians of the other two are compared.

use super::holdings::Holdings;

/// Fewer looks have no thirds to speak of.
pub(super) const LOOKS_MIN: usize = 6;

/// Maximum growth from the second third to the last, as a factor. An allocator's own moves stay
/// below: 100,000 calls of 256 at a time end with 1.00 to 1.04 times the memory after half of them.
/// A leak grows with the length of the run: at a hundred connections a second, half an hour makes
/// 60,000 in a third, so 50 bytes of each are found in a process of 60 MiB.
const GROWTH_MAX: f64 = 1.03;
const SLACK_KIB: u64 = 1024;

/// A pool of large frames has a few regions more or less, by what was in flight at once.
const SLACK_REGIONS: u64 = 8;

/// The medians of the second and the last third.
fn medians(looks: &[Holdings], value: impl Fn(&Holdings) -> u64) -> (u64, u64) {
    let median = |part: &[Holdings]| {
        let mut values: Vec<_> = part.iter().map(&value).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    let third = looks.len() / 3;
    let (middle, last) = looks[third..].split_at((looks.len() - third) / 2);
    (median(middle), median(last))
}

/// Growth of memory from the second to the last third, in KiB; negative when there is less.
pub(super) fn growth_kib(looks: &[Holdings]) -> i64 {
    let (middle, last) = medians(looks, |look| look.resident_kib);
    last.cast_signed() - middle.cast_signed()
}

/// Returns a description of each value that has grown.
pub(super) fn complaints(looks: &[Holdings]) -> Vec<String> {
    let mut complaints = Vec::new();
    if looks.len() < LOOKS_MIN {
        complaints.push(format!("{} looks are too few to judge by", looks.len()));
        return complaints;
    }
    let mut compare = |what: &str, (middle, last): (u64, u64), slack: u64| {
        if last.saturating_sub(slack) as f64 > middle as f64 * GROWTH_MAX {
            complaints.push(format!("{what} grew from {middle} to {last}"));
        }
    };
    compare("KiB of memory", medians(looks, |look| look.resident_kib), SLACK_KIB);
    compare("memory regions", medians(looks, |look| look.regions), SLACK_REGIONS);
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(resident_kib: impl Fn(u64) -> u64) -> Vec<Holdings> {
        let look = |number| Holdings {
            resident_kib: resident_kib(number),
            descriptors: 10,
            regions: 3,
            on_devices: Vec::new(),
        };
        (0..30).map(look).collect()
    }

    #[test]
    fn what_rises_at_first_and_wobbles_later_is_flat() {
        let flat = looks(|number| 50_000 + 1000 * number.min(8) + 300 * (number % 3));
        assert_eq!(complaints(&flat), [""; 0]);
        assert!(growth_kib(&flat).abs() < 500);
    }

    #[test]
    fn what_rises_all_the_time_is_found() {
        let leak = looks(|number| 60_000 + 300 * number);
        assert_eq!(growth_kib(&leak), 3000);
        assert_eq!(complaints(&leak), ["KiB of memory grew from 64500 to 67500"]);
        assert_eq!(complaints(&leak[..4]), ["4 looks are too few to judge by"]);
    }

    #[test]
    fn regions_that_pile_up_are_found() {
        let mut piling = looks(|_| 50_000);
        piling.iter_mut().zip(0..).for_each(|(look, number)| look.regions = 2 * number);
        assert_eq!(complaints(&piling), ["memory regions grew from 30 to 50"]);
    }
}
