//! The kernel's figures of a victim: memory, processor time, and failed connections.

use std::time::Duration;
use std::{fs, io};

use farcall_testkit::counters::{ProcessStatus, ProtocolTable, protocol_counter};

use crate::RigError;

/// The unit of processor time in `/proc/PID/stat`: a hundredth of a second on every architecture
/// that Linux runs on today (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// The resources of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    /// Resident memory.
    pub(super) resident_kib: u64,
    /// The most resident memory since [`reset_peak`].
    pub(super) peak_kib: u64,
    /// Processor time of all its threads.
    pub(super) cpu: Duration,
}

/// Looks at a process.
pub(super) fn usage(process: u32) -> Result<Usage, RigError> {
    let status = ProcessStatus::of(process)?;
    let stat_file = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&stat_file)?;
    let no_time = || io::Error::other(format!("{stat_file} has no processor time"));
    Ok(Usage {
        resident_kib: status.resident_kib()?,
        peak_kib: status.peak_kib()?,
        cpu: ticks(&stat).map(|ticks| TICK * ticks).ok_or_else(no_time)?,
    })
}

/// Makes a process's peak what it has now.
pub(super) fn reset_peak(process: u32) -> Result<(), RigError> {
    Ok(fs::write(format!("/proc/{process}/clear_refs"), "5")?)
}

/// Returns the number of this host's failed connections so far, to any address: the kernel counts
/// no finer where no socket listens. Those of other programs count, too, and bounds allow for them.
pub(super) fn failed_connections() -> Result<u64, RigError> {
    Ok(protocol_counter(ProtocolTable::Snmp, "Tcp", "AttemptFails")?)
}

/// User and system time: the 14th and 15th field. The second field is a name in parentheses, which
/// may hold anything.
fn ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let [user, system] = [fields.next()?, fields.next()?];
    user.parse::<u32>().ok()?.checked_add(system.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_measured() {
        let ours = usage(std::process::id()).unwrap();
        assert!(ours.resident_kib > 100 && ours.peak_kib >= ours.resident_kib / 2, "{ours:?}");
        assert!(usage(u32::MAX).is_err());
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "1 (a) b) S 1 1 1 0 -1 4194560 1 2 3 4 700 50 9 9 20 0 1 0 5 1 1";
        assert_eq!(ticks(stat), Some(750));
        assert_eq!(ticks("1 (a"), None);
    }

    #[test]
    fn the_kernel_counts_connections_that_failed() {
        failed_connections().unwrap();
    }
}
