//! The memory of a process.

use std::io;

use farcall_testkit::counters::ProcessStatus;

/// The process's resident memory in KiB, as Linux counts it.
///
/// # Errors
///
/// When Linux does not say.
pub fn resident_kib() -> io::Result<u64> {
    ProcessStatus::own()?.resident_kib()
}

/// Another process's resident memory in KiB.
pub(crate) fn resident_kib_of(process: u32) -> io::Result<u64> {
    ProcessStatus::of(process)?.resident_kib()
}
