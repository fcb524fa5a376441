//! How much memory the process has.

use std::io;

/// The process's resident memory in KiB, as Linux counts it.
///
/// # Errors
///
/// When Linux does not say.
pub fn resident_kib() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other("/proc/self/status says nothing of VmRSS"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_memory() {
        assert!(super::resident_kib().unwrap() > 100);
    }
}
