//! What the kernel has counted: work of RDMA devices, and TCP's.
//!
//! The counters are of the whole machine, so they tell something only where nothing else is busy,
//! as in the virtual machine of `cargo xtask demo`. Bytes of IP are not among them: Soft-RoCE's
//! packets count there too, as those of a NIC would not.

use std::fmt;
use std::fs;
use std::ops::Sub;
use std::path::{Path, PathBuf};

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
        let snmp = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
        let netstat = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
        Self {
            device: DEVICE_COUNTERS.map(|name| device_sum(name).unwrap_or(0)),
            tcp_segments: protocol_value(&snmp, "Tcp:", "OutSegs").unwrap_or(0),
            tcp_data_segments: protocol_value(&netstat, "TcpExt:", "TCPOrigDataSent").unwrap_or(0),
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

fn device_sum(name: &str) -> Option<u64> {
    let mut sum = None;
    for device in entries(Path::new("/sys/class/infiniband")) {
        for port in entries(&device.join("ports")) {
            let text = fs::read_to_string(port.join("hw_counters").join(name)).ok();
            let count: Option<u64> = text.and_then(|text| text.trim().parse().ok());
            sum = count.map(|count| sum.unwrap_or(0) + count).or(sum);
        }
    }
    sum
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// A value of the kernel's tables, where a line of names stands above a line of values.
fn protocol_value(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter(|line| line.split(' ').next() == Some(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split_whitespace().position(|candidate| candidate == name)?;
    values.split_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_under_its_name() {
        let table = "Ip: Forwarding OutSegs\nIp: 1 2\nTcp: InSegs OutSegs\nTcp: 30 40\n";
        assert_eq!(protocol_value(table, "Tcp:", "OutSegs"), Some(40));
        assert_eq!(protocol_value(table, "Tcp:", "Absent"), None);
        assert_eq!(protocol_value(table, "Udp:", "OutSegs"), None);
    }

    #[test]
    fn a_difference_never_runs_below_zero() {
        let after = NetworkCounters { tcp_segments: 5, ..NetworkCounters::default() };
        let before = NetworkCounters { tcp_segments: 2, tcp_data_segments: 9, ..after };
        assert_eq!(after - before, NetworkCounters { tcp_segments: 3, ..Default::default() });
    }
}
