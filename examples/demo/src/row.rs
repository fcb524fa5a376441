//! A line of the table.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;

/// What one size of values has cost over one transport.
#[derive(Debug)]
pub(crate) struct Row {
    /// What carried the calls.
    pub(crate) transport: &'static str,
    /// The length of a value in bytes.
    pub(crate) value_len: usize,
    /// By which path the values travelled.
    pub(crate) path: &'static str,
    /// All calls: puts, ranges, and the deletion with its check.
    pub(crate) call_count: u64,
    /// The latency of puts and ranges, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// What puts and ranges took together, one after the other.
    pub(crate) elapsed: Duration,
    /// The bytes that farcall copied, on both sides.
    pub(crate) copied_bytes: u64,
    /// Why the connection is not on a better path, when its address asked for one.
    pub(crate) fallback: Option<String>,
}

impl Row {
    /// The table's head.
    #[must_use]
    pub(crate) fn head() -> String {
        format!(
            "{:<9} {:>8} {:>6} {:>5} {:>9} {:>9} {:>8} {:>11}  {}",
            "transport",
            "value",
            "path",
            "calls",
            "p50 us",
            "p99 us",
            "MB/s",
            "copied/call",
            "fallback"
        )
    }

    fn micros(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latency.value_at_quantile(quantile))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |quantile| self.micros(quantile).as_secs_f64() * 1e6;
        let moved = self.value_len as f64 * self.latency.len() as f64;
        write!(
            f,
            "{:<9} {:>8} {:>6} {:>5} {:>9.1} {:>9.1} {:>8.1} {:>11}  {}",
            self.transport,
            in_units(self.value_len),
            self.path,
            self.call_count,
            micros(0.5),
            micros(0.99),
            moved / self.elapsed.as_secs_f64() / 1e6,
            self.copied_bytes / self.call_count.max(1),
            self.fallback.as_deref().unwrap_or("-"),
        )
    }
}

fn in_units(len: usize) -> String {
    match len {
        len if len >= 1 << 20 && len.is_multiple_of(1 << 20) => format!("{} MiB", len >> 20),
        len if len >= 1 << 10 && len.is_multiple_of(1 << 10) => format!("{} KiB", len >> 10),
        len => format!("{len} B"),
    }
}
