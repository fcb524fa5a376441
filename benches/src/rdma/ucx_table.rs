//! The output of `ucx_perftest`: one row of numbers under rows of names.

use anyhow::{Context as _, Result};

/// The unit of its bandwidth, which it calls MB.
const MEBIBYTE: f64 = 1_048_576.0;

/// The numbers of a row: iterations; median, average and overall average of the time; bandwidth and
/// message rate, of the last second and of all.
const COLUMNS: usize = 8;
const MEDIAN: usize = 1;
const BANDWIDTH: usize = 5;

/// The median of half a round trip in the output of a latency test, in microseconds.
///
/// # Errors
///
/// Returns an error if there is no such number.
pub(super) fn half_round_trip_us(text: &str) -> Result<f64> {
    Ok(last_row(text)?[MEDIAN])
}

/// The overall bandwidth in the output of a bandwidth test, in units of a million bytes a second.
///
/// # Errors
///
/// Returns an error if there is no such number.
pub(super) fn megabytes_per_second(text: &str) -> Result<f64> {
    Ok(last_row(text)?[BANDWIDTH] * MEBIBYTE / 1e6)
}

/// The last row, which is that of the whole test. It may begin with a word.
fn last_row(text: &str) -> Result<Vec<f64>> {
    let row = |line: &str| {
        let pieces = line.split_whitespace().skip_while(|word| word.ends_with(':'));
        let row: Option<Vec<f64>> = pieces.map(|word| word.parse().ok()).collect();
        row.filter(|row| row.len() == COLUMNS)
    };
    text.lines().rev().find_map(row).context("ucx_perftest printed no row of numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: &str = "\
+--------------+--------------+----------+
|    Stage     | # iterations | 50.0%ile |
+--------------+--------------+----------+
[thread 0]     500    9.000    9.500    9.500     6.00     6.00    100000    100000
Final:        1000    8.500    9.000    9.250     6.50     7.00    110000    120000
";

    #[test]
    fn the_last_row_counts_with_or_without_a_word() {
        assert_eq!(half_round_trip_us(STAGES).unwrap(), 8.5);
        let bare = STAGES.replace("Final:", "      ");
        assert_eq!(half_round_trip_us(&bare).unwrap(), 8.5);
    }

    #[test]
    fn bandwidth_is_the_overall_one_in_millions() {
        assert_eq!(megabytes_per_second(STAGES).unwrap(), 7.340_032);
    }

    #[test]
    fn complaints_are_no_numbers() {
        let error = half_round_trip_us("ucx: no device\n+--+\n").unwrap_err();
        assert!(error.to_string().contains("no row"));
    }
}
