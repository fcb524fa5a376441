//! The output of perftest's tools: one row of numbers under a row of names.

use anyhow::{Context as _, Result};

/// The unit of perftest's bandwidth, which it calls MB.
const MEBIBYTE: f64 = 1_048_576.0;

/// The typical, that is median, half round trip in the output of a latency tool, in microseconds.
///
/// # Errors
///
/// Returns an error if there is no such number.
pub(super) fn half_round_trip_us(text: &str) -> Result<f64> {
    column(text, "t_typical[usec]")
}

/// The average bandwidth in the output of a bandwidth tool, in units of a million bytes a second.
///
/// # Errors
///
/// Returns an error if there is no such number.
pub(super) fn megabytes_per_second(text: &str) -> Result<f64> {
    Ok(column(text, "average[MB/sec]")? * MEBIBYTE / 1e6)
}

/// The messages a second in the output of a bandwidth tool.
///
/// # Errors
///
/// Returns an error if there is no such number.
pub(super) fn messages_per_second(text: &str) -> Result<f64> {
    Ok(column(text, "MsgRate[Mpps]")? * 1e6)
}

/// The number under `name` in the only row. Names of two words, such as `BW average` and
/// `99% percentile`, stand over one number, so that their first words are left out.
fn column(text: &str, name: &str) -> Result<f64> {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let names = lines.next().context("perftest printed no table")?;
    let is_name = |word: &&str| *word != "BW" && !word.ends_with('%');
    let names: Vec<&str> = names.split_whitespace().filter(is_name).collect();
    let place = names.iter().position(|word| *word == name);
    let place = place.with_context(|| format!("perftest's table has no column {name}"))?;
    let row = lines.map(numbers).find(|numbers| numbers.len() == names.len());
    let row = row.context("perftest's table has no row")?;
    Ok(row[place])
}

/// The numbers of a line; none when something else stands in it.
fn numbers(line: &str) -> Vec<f64> {
    let numbers: Option<Vec<f64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = "\
---------------------------------------------------------------
                    Send Latency Test
 Number of qps   : 1\t\tTransport type : IB
 remote address: LID 0000 QPN 0x0012 PSN 0x1
---------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 A remark in between, of 9 words in all .
 64      1000          6.50           40.25        7.75             8.01        1.02      \
10.50     40.25
---------------------------------------------------------------
";

    const BANDWIDTH: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1048576    100              0.00               200.00             0.000200
---------------------------------------------------------------
";

    #[test]
    fn the_typical_latency_is_found_by_its_name() {
        assert_eq!(half_round_trip_us(LATENCY).unwrap(), 7.75);
    }

    #[test]
    fn bandwidth_is_in_millions_and_agrees_with_the_rate() {
        assert_eq!(megabytes_per_second(BANDWIDTH).unwrap(), 209.7152);
        assert_eq!(messages_per_second(BANDWIDTH).unwrap() * MEBIBYTE / 1e6, 209.7152);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = half_round_trip_us(BANDWIDTH).unwrap_err().to_string();
        assert!(error.contains("t_typical"), "{error}");
        assert!(
            half_round_trip_us("Couldn't connect\n").unwrap_err().to_string().contains("table")
        );
        let head = BANDWIDTH.lines().next().unwrap();
        assert!(messages_per_second(head).unwrap_err().to_string().contains("row"));
    }
}
