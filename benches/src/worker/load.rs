//! The load of a client, and its report.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::usage::Spent;

/// An operation to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The payload there and back.
    Echo,
    /// The payload to the server.
    Upload,
    /// The payload from the server.
    Download,
    /// A stream of payloads from the server; what is counted is messages.
    Feed,
}

/// The length of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Span {
    /// Until so many calls or messages have been made, rounded up to a multiple of those in flight.
    Calls(u64),
    /// Time in milliseconds. Calls that begin within it are completed and counted.
    Millis(u64),
}

impl Span {
    /// Returns the maximum time that the load itself should take.
    #[must_use]
    pub fn duration_max(self) -> Duration {
        match self {
            // Slower than a millisecond a call is nothing that the harness measures by count.
            Self::Calls(count) => Duration::from_millis(count),
            Self::Millis(millis) => Duration::from_millis(millis),
        }
    }
}

/// A load for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Operation to call.
    pub operation: Operation,
    /// Bytes of payload.
    pub size: usize,
    /// Calls in flight, over all connections, on which they take turns.
    pub in_flight: usize,
    /// Length of the load.
    pub span: Span,
    /// The length of large messages that go up and down the first connection all the while, one
    /// each way at a time; nothing for none.
    pub beside: Option<usize>,
}

impl Load {
    /// Calls one after the other.
    #[must_use]
    pub fn new(operation: Operation, size: usize, span: Span) -> Self {
        Self { operation, size, in_flight: 1, span, beside: None }
    }

    /// With so many calls in flight.
    #[must_use]
    pub fn with_in_flight(self, in_flight: usize) -> Self {
        Self { in_flight, ..self }
    }

    /// With large messages of this length on the same connection.
    #[must_use]
    pub fn with_beside(self, beside: usize) -> Self {
        Self { beside: Some(beside), ..self }
    }
}

/// A client's report of a load. Latencies are in microseconds, of whole calls. There are none where
/// messages are counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadOutcome {
    /// Calls that were made, or messages that were received.
    pub count: u64,
    /// Time that it took, in seconds.
    pub seconds: f64,
    /// The median latency.
    pub p50_us: f64,
    /// The latency that nine of ten calls did not exceed.
    pub p90_us: f64,
    /// The latency that 99 of a hundred calls did not exceed.
    pub p99_us: f64,
    /// The longest latency.
    pub longest_us: f64,
    /// Fairness among the callers (Jain's index): 1 if all have the same count.
    pub fairness: f64,
    /// Cost to the client's process.
    pub spent: Spent,
}
