//! How much memory a process has.

use std::io;

/// The process's resident memory in KiB, as Linux counts it.
///
/// # Errors
///
/// When Linux does not say.
pub fn resident_kib() -> io::Result<u64> {
    resident_kib_in("/proc/self/status")
}

/// Another process's resident memory in KiB.
pub(crate) fn resident_kib_of(process: u32) -> io::Result<u64> {
    resident_kib_in(&format!("/proc/{process}/status"))
}

fn resident_kib_in(file: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(file)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("{file} says nothing of VmRSS")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_memory() {
        assert!(super::resident_kib().unwrap() > 100);
    }
}
