//! The kernel's tables of network protocols. They count for the whole machine.

use std::{fs, io};

/// A file of such tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolTable {
    /// The counters of RFC 1213: `Ip`, `Tcp`, `Udp`.
    Snmp,
    /// Linux's own counters: `TcpExt`, `IpExt`.
    Netstat,
}

impl ProtocolTable {
    fn file(self) -> &'static str {
        match self {
            Self::Snmp => "/proc/net/snmp",
            Self::Netstat => "/proc/net/netstat",
        }
    }
}

/// A counter of `protocol`, for example `OutSegs` of `Tcp`.
///
/// # Errors
///
/// Returns an error if the table cannot be read or lacks the counter.
pub fn protocol_counter(table: ProtocolTable, protocol: &str, name: &str) -> io::Result<u64> {
    let file = table.file();
    let text = fs::read_to_string(file)?;
    let missing = || io::Error::other(format!("{file} has no {name} of {protocol}"));
    value(&text, protocol, name).ok_or_else(missing)
}

/// A value of a table in which a line of names is followed by a line of values.
fn value(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let is_protocol =
        |line: &&str| line.strip_prefix(protocol).is_some_and(|rest| rest.starts_with(':'));
    let mut lines = table.lines().filter(is_protocol);
    let (names, values) = (lines.next()?, lines.next()?);
    let index = names.split_whitespace().position(|candidate| candidate == name)?;
    values.split_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_under_its_name() {
        let table = "Ip: Forwarding OutSegs\nIp: 1 2\nTcpExt: OutSegs\nTcpExt: 9\n\
                     Tcp: InSegs OutSegs MaxConn\nTcp: 30 40 -1\n";
        assert_eq!(value(table, "Tcp", "OutSegs"), Some(40));
        assert_eq!(value(table, "Ip", "OutSegs"), Some(2));
        assert_eq!(value(table, "Tcp", "MaxConn"), None);
        assert_eq!(value(table, "Tcp", "Absent"), None);
        assert_eq!(value(table, "Udp", "OutSegs"), None);
    }

    #[test]
    fn the_kernel_counts_and_what_it_does_not_count_is_named() {
        protocol_counter(ProtocolTable::Snmp, "Tcp", "AttemptFails").unwrap();
        let error = protocol_counter(ProtocolTable::Snmp, "Tcp", "Absent").unwrap_err();
        assert_eq!(error.to_string(), "/proc/net/snmp has no Absent of Tcp");
    }
}
