//! The counters that the kernel has of a host's RDMA device.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;

use super::host::{Host, SHORT};

/// Counters that tell of lost packets, and of peers that are not ready or not allowed: those of
/// mlx5, and below them those of Soft-RoCE.
const WATCHED: &[&str] = &[
    "out_of_sequence",
    "packet_seq_err",
    "rnr_nak_retry_err",
    "local_ack_timeout_err",
    "req_remote_access_errors",
    "out_of_seq_request",
    "rcvd_seq_err",
    "rcvd_rnr_err",
    "retry_exceeded_err",
    "completer_retry_err",
];

/// The counters of one device at one time, each the sum of its ports.
#[derive(Debug, Default)]
pub(super) struct Counters(BTreeMap<String, i64>);

impl Counters {
    /// Reads those of the device that has the host's address.
    ///
    /// # Errors
    ///
    /// Returns an error if the host cannot be reached.
    pub(super) fn read(host: &Host) -> Result<Self> {
        let script = format!(
            "device=$(device_on $(netdev_of {}))
            cd /sys/class/infiniband/${{device:-none}}/ports || exit 0
            grep -H . */hw_counters/* 2>/dev/null
            true",
            host.address
        );
        Ok(Self::parse(&host.run(&script, SHORT)?))
    }

    /// Reads lines of a path, a colon and a number.
    fn parse(lines: &str) -> Self {
        let mut counters = BTreeMap::new();
        for (path, value) in lines.lines().filter_map(|line| line.rsplit_once(':')) {
            let name = path.rsplit('/').next().unwrap_or(path);
            // A setting among the counters: the time for which the kernel keeps values.
            if let (Ok(value), true) = (value.trim().parse::<i64>(), name != "lifespan") {
                *counters.entry(name.to_owned()).or_default() += value;
            }
        }
        Self(counters)
    }

    /// Returns the differences to an earlier time. A counter of a device that was reset goes down.
    pub(super) fn since(&self, before: &Self) -> Self {
        let difference = |(name, now): (&String, &i64)| {
            (name.clone(), now - before.0.get(name).copied().unwrap_or_default())
        };
        Self(self.0.iter().map(difference).collect())
    }

    /// Returns those that tell of faults.
    pub(super) fn watched(&self) -> impl Iterator<Item = (&'static str, i64)> {
        WATCHED.iter().filter_map(|name| self.0.get(*name).map(|value| (*name, *value)))
    }
}

/// Shows those that are not zero.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = self.0.iter().filter(|(_, value)| **value != 0).peekable();
        if all.peek().is_none() {
            f.write_str("none")?;
        }
        for (index, (name, value)) in all.enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {value:+}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_summed_over_ports() {
        let read = |port: &str, lost: i64, sent: i64| {
            let folder = format!("{port}/hw_counters");
            format!("{folder}/lifespan:12\n{folder}/sent:{sent}\n{folder}/out_of_sequence:{lost}\n")
        };
        let before = Counters::parse(&(read("1", 3, 10) + &read("2", 1, 10)));
        let after = Counters::parse(&(read("1", 5, 10) + &read("2", 2, 10)));
        let since = after.since(&before);
        assert_eq!(since.watched().collect::<Vec<_>>(), [("out_of_sequence", 3)]);
        assert_eq!(since.to_string(), "out_of_sequence +3");
        assert_eq!(before.since(&before).to_string(), "none");
        assert_eq!(Counters::parse("grep: no such file").to_string(), "none");
    }
}
