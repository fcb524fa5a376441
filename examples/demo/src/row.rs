//! A line of the table.

use std::fmt;
use std::time::Duration;

use farcall_testkit::table::Columns;
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
    /// Why the connection is not on an upgraded path, when its address asked for one.
    pub(crate) fallback: Option<String>,
}

impl Row {
    /// The table's head.
    #[must_use]
    pub(crate) fn head() -> String {
        columns().heading()
    }

    fn micros(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latency.value_at_quantile(quantile))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |quantile| self.micros(quantile).as_secs_f64() * 1e6;
        let moved = self.value_len as f64 * self.latency.len() as f64;
        let cells = [
            self.transport.to_owned(),
            in_units(self.value_len),
            self.path.to_owned(),
            self.call_count.to_string(),
            format!("{:.1}", micros(0.5)),
            format!("{:.1}", micros(0.99)),
            format!("{:.1}", moved / self.elapsed.as_secs_f64() / 1e6),
            (self.copied_bytes / self.call_count.max(1)).to_string(),
            self.fallback.clone().unwrap_or_else(|| "-".to_owned()),
        ];
        f.write_str(&columns().line(cells))
    }
}

fn columns() -> Columns {
    Columns::new()
        .left("transport", 9)
        .right("value", 8)
        .right("path", 6)
        .right("calls", 5)
        .right("p50 us", 9)
        .right("p99 us", 9)
        .right("MB/s", 8)
        .right("copied/call", 11)
        .left("fallback", 0)
}

fn in_units(len: usize) -> String {
    match len {
        len if len >= 1 << 20 && len.is_multiple_of(1 << 20) => format!("{} MiB", len >> 20),
        len if len >= 1 << 10 && len.is_multiple_of(1 << 10) => format!("{} KiB", len >> 10),
        len => format!("{len} B"),
    }
}
