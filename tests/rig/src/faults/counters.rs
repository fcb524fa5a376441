//! The kernel's counters, which prove that a fault happened.

use std::collections::BTreeMap;
use std::fmt;

use farcall_testkit::counters::ProtocolTable::{Netstat, Snmp};
use farcall_testkit::counters::{device_counter, protocol_counter};
use serde_json::Value;

use crate::RigError;
use crate::conductor::command::run;

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counter {
    /// Packets that the emulated network lost.
    Lost,
    /// Packets that an emulated network saw.
    Emulated,
    /// Requests of an RDMA device that it sent again.
    RdmaSentAgain,
    /// Requests that came to an RDMA device out of their order.
    RdmaDisordered,
    /// Requests that came to an RDMA device twice.
    RdmaTwice,
    /// Segments that TCP sent again.
    TcpSentAgain,
    /// Segments that TCP threw away for their checksum.
    TcpCorrupt,
    /// Segments that came to TCP out of their order.
    TcpDisordered,
    /// Segments that came to TCP twice.
    TcpTwice,
}

impl Counter {
    const ALL: [Self; 9] = [
        Self::Lost,
        Self::Emulated,
        Self::RdmaSentAgain,
        Self::RdmaDisordered,
        Self::RdmaTwice,
        Self::TcpSentAgain,
        Self::TcpCorrupt,
        Self::TcpDisordered,
        Self::TcpTwice,
    ];

    fn read(self) -> Result<u64, RigError> {
        Ok(match self {
            Self::Lost => emulated("drops")?,
            Self::Emulated => emulated("packets")?,
            Self::RdmaSentAgain => device("completer_retry_err"),
            Self::RdmaDisordered => device("out_of_seq_request") + device("rcvd_seq_err"),
            Self::RdmaTwice => device("duplicate_request"),
            Self::TcpSentAgain => protocol_counter(Snmp, "Tcp", "RetransSegs")?,
            Self::TcpCorrupt => protocol_counter(Snmp, "Tcp", "InCsumErrors")?,
            Self::TcpDisordered => protocol_counter(Netstat, "TcpExt", "TCPOFOQueue")?,
            Self::TcpTwice => protocol_counter(Netstat, "TcpExt", "TCPDSACKOldSent")?,
        })
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lost => "packets lost",
            Self::Emulated => "packets over the emulated network",
            Self::RdmaSentAgain => "RDMA requests sent again",
            Self::RdmaDisordered => "RDMA packets out of order",
            Self::RdmaTwice => "RDMA requests received twice",
            Self::TcpSentAgain => "TCP segments sent again",
            Self::TcpCorrupt => "TCP segments with a wrong checksum",
            Self::TcpDisordered => "TCP segments out of order",
            Self::TcpTwice => "TCP segments received twice",
        })
    }
}

/// All counters at a moment, or what they moved by between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counters(BTreeMap<Counter, u64>);

impl Counters {
    pub(super) fn read() -> Result<Self, RigError> {
        let read = |counter: Counter| counter.read().map(|value| (counter, value));
        Counter::ALL.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the differences. A counter that is smaller than before belongs to an object that was
    /// made meanwhile.
    pub(super) fn since(&self, before: &Self) -> Self {
        let moved = |(&counter, &now): (&Counter, &u64)| {
            (counter, now.checked_sub(before.of(counter)).unwrap_or(now))
        };
        Self(self.0.iter().map(moved).collect())
    }

    pub(super) fn of(&self, counter: Counter) -> u64 {
        self.0.get(&counter).copied().unwrap_or_default()
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moved = self.0.iter().filter(|(_, count)| **count > 0);
        let moved: Vec<_> = moved.map(|(counter, count)| format!("{count} {counter}")).collect();
        f.write_str(if moved.is_empty() { "nothing" } else { "" })?;
        f.write_str(&moved.join(", "))
    }
}

/// The sum over all network emulators.
fn emulated(field: &str) -> Result<u64, RigError> {
    let shown = run(&["tc", "-s", "-j", "qdisc", "show"])?;
    let queues: Vec<Value> = serde_json::from_str(&shown)
        .map_err(|_| RigError::Unexpected { role: "program tc", line: shown })?;
    let emulators = queues.iter().filter(|queue| queue["kind"] == "netem");
    Ok(emulators.filter_map(|queue| queue[field].as_u64()).sum())
}

/// The sum over all RDMA devices; one that is just being removed has none.
fn device(name: &str) -> u64 {
    device_counter(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moved_is_said_and_nothing_else() {
        let counters = |lost| Counters([(Counter::Lost, lost), (Counter::RdmaTwice, 4)].into());
        assert_eq!(counters(5).since(&counters(2)).to_string(), "3 packets lost");
        assert_eq!(counters(2).since(&counters(5)).of(Counter::Lost), 2);
        assert_eq!(counters(1).since(&counters(1)).to_string(), "nothing");
    }
}
