//! Counters of the kernel: work of RDMA devices, and TCP segments.
//!
//! The counters are of the whole machine, so they tell something only where nothing else is busy,
//! as in the virtual machine of `cargo xtask demo`. Bytes of IP are not among them: Soft-RoCE's
//! packets count there too, as those of a NIC would not.

use std::fmt;
use std::ops::Sub;

use farcall_testkit::counters::{ProtocolTable, device_counter, protocol_counter};

/// The counts that are summed over all ports of all devices.
const DEVICE_COUNTERS: [&str; 4] = ["rdma_sends", "rdma_recvs", "sent_pkts", "rcvd_pkts"];

/// The counts at a moment, or between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NetworkCounters {
    /// In the order of their names.
    device: [u64; DEVICE_COUNTERS.len()],
    tcp_segments: u64,
    /// Of the segments, those that carried bytes of an application for the first time.
    tcp_data_segments: u64,
}

impl NetworkCounters {
    /// Reads them; what the kernel does not show counts as 0.
    #[must_use]
    pub(crate) fn read() -> Self {
        let sent = |table, protocol, name| protocol_counter(table, protocol, name).unwrap_or(0);
        Self {
            device: DEVICE_COUNTERS.map(|name| device_counter(name).unwrap_or(0)),
            tcp_segments: sent(ProtocolTable::Snmp, "Tcp", "OutSegs"),
            tcp_data_segments: sent(ProtocolTable::Netstat, "TcpExt", "TCPOrigDataSent"),
        }
    }
}

impl Sub for NetworkCounters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let device = |index: usize| self.device[index].saturating_sub(before.device[index]);
        Self {
            device: std::array::from_fn(device),
            tcp_segments: self.tcp_segments.saturating_sub(before.tcp_segments),
            tcp_data_segments: self.tcp_data_segments.saturating_sub(before.tcp_data_segments),
        }
    }
}

impl fmt::Display for NetworkCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "devices:")?;
        for (name, count) in DEVICE_COUNTERS.iter().zip(self.device) {
            write!(f, " {name} +{count}")?;
        }
        let Self { tcp_segments, tcp_data_segments, .. } = self;
        write!(f, "; TCP segments sent +{tcp_segments}, with data +{tcp_data_segments}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_never_runs_below_zero() {
        let after = NetworkCounters { tcp_segments: 5, ..NetworkCounters::default() };
        let before = NetworkCounters { tcp_segments: 2, tcp_data_segments: 9, ..after };
        assert_eq!(after - before, NetworkCounters { tcp_segments: 3, ..Default::default() });
    }
}
