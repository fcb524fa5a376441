//! A line of the table.

use std::time::Duration;

use farcall_testkit::table::Columns;
use hdrhistogram::Histogram;

/// The cost of one size of values over one transport.
#[derive(Debug)]
pub(crate) struct Row {
    /// The transport that carried the calls.
    pub(crate) transport: &'static str,
    /// The length of a value in bytes.
    pub(crate) value_len: usize,
    /// By which path the values travelled.
    pub(crate) path: &'static str,
    /// All calls: puts, ranges, and the deletion with its check.
    pub(crate) call_count: u64,
    /// The latency of puts and ranges, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Time of all puts and ranges, one after the other.
    pub(crate) elapsed: Duration,
    /// The bytes that farcall copied, on both sides.
    pub(crate) copied_bytes: u64,
    /// Why the connection is not on an upgraded path, when its address asked for one.
    pub(crate) fallback: Option<String>,
}

/// The worth of the times and rates in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speeds {
    /// Measured on the host's own processor.
    OfThisHost,
    /// Without meaning: the processor is emulated.
    Emulated,
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

impl Speeds {
    /// Explains the marks below a table.
    #[must_use]
    pub(crate) fn legend(self) -> &'static str {
        match self {
            Self::OfThisHost => {
                "Every byte was checked. This build is made quickly, without link-time \
                 optimization:\ndocs/book/src/performance/figures.md has measured times."
            }
            Self::Emulated => {
                "Every byte was checked. ( ) marks times and rates of an emulated processor: they \
                 show that\nRDMA works, and say nothing about its speed."
            }
        }
    }

    fn mark(self, number: f64) -> String {
        match self {
            Self::OfThisHost => format!("{number:.1}"),
            Self::Emulated => format!("({number:.0})"),
        }
    }
}

impl Row {
    /// The row as a line of the table, for an address with this scheme.
    #[must_use]
    pub(crate) fn line(&self, scheme: &str, speeds: Speeds) -> String {
        let micros = |quantile| self.micros(quantile).as_secs_f64() * 1e6;
        let moved = self.value_len as f64 * self.latency.len() as f64;
        let cells = [
            scheme.to_owned(),
            self.transport.to_owned(),
            in_units(self.value_len),
            self.path.to_owned(),
            self.call_count.to_string(),
            speeds.mark(micros(0.5)),
            speeds.mark(micros(0.99)),
            speeds.mark(moved / self.elapsed.as_secs_f64() / 1e6),
            (self.copied_bytes / self.call_count.max(1)).to_string(),
            self.fallback.clone().unwrap_or_else(|| "-".to_owned()),
        ];
        columns().line(cells)
    }
}

fn columns() -> Columns {
    Columns::new()
        .left("address", 9)
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
