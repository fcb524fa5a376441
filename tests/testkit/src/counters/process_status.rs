//! The memory of a process.

use std::{fs, io};

/// The kernel's figures of a process at one moment.
#[derive(Debug, Clone)]
pub struct ProcessStatus {
    file: String,
    text: String,
}

impl ProcessStatus {
    /// Reads the figures of this process.
    ///
    /// # Errors
    ///
    /// Returns the error of reading the kernel's file.
    pub fn own() -> io::Result<Self> {
        Self::read("/proc/self/status".to_owned())
    }

    /// Reads the figures of process `id`.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such process.
    pub fn of(id: u32) -> io::Result<Self> {
        Self::read(format!("/proc/{id}/status"))
    }

    fn read(file: String) -> io::Result<Self> {
        let text = fs::read_to_string(&file)?;
        Ok(Self { file, text })
    }

    /// Its resident memory in KiB.
    ///
    /// # Errors
    ///
    /// Returns an error if Linux does not say: the process has ended and was not waited for.
    pub fn resident_kib(&self) -> io::Result<u64> {
        self.kib("VmRSS")
    }

    /// The most resident memory that it ever had, in KiB: never less than what it has now, but at
    /// times some tens of KiB less than a reading before, since Linux counts for each processor
    /// apart.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`resident_kib`](Self::resident_kib).
    pub fn peak_kib(&self) -> io::Result<u64> {
        self.kib("VmHWM")
    }

    fn kib(&self, name: &str) -> io::Result<u64> {
        let value = |line: &str| {
            let value = line.strip_prefix(name)?.strip_prefix(':')?;
            value.split_whitespace().next()?.parse().ok()
        };
        let missing = || io::Error::other(format!("{} has no {name}", self.file));
        self.text.lines().find_map(value).ok_or_else(missing)
    }
}

/// This process's resident memory in KiB.
///
/// # Errors
///
/// Returns the errors of [`ProcessStatus::own`] and [`ProcessStatus::resident_kib`].
pub fn resident_kib() -> io::Result<u64> {
    ProcessStatus::own()?.resident_kib()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_name() {
        let text = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let status = ProcessStatus { file: "it".to_owned(), text: text.to_owned() };
        assert_eq!(status.peak_kib().unwrap(), 2048);
        assert_eq!(status.resident_kib().unwrap(), 1024);
        assert_eq!(status.kib("VmSwap").unwrap_err().to_string(), "it has no VmSwap");
    }

    #[test]
    fn a_process_has_memory() {
        assert!(resident_kib().unwrap() > 100);
        assert!(ProcessStatus::of(u32::MAX).is_err());
    }
}
