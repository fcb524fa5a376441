//! The resources of an idle process.

use std::fmt;
use std::io;

use farcall_testkit::counters::resident_kib;

use crate::faults::Resources;
use farcall_suite::Path;

/// The resources of the process, and its registrations with RDMA devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holdings {
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Memory regions on RDMA devices. Pools keep theirs for the next large frame.
    pub regions: u64,
    /// Whatever else there is on RDMA devices, by kind.
    pub on_devices: Vec<(&'static str, u64)>,
}

impl Holdings {
    /// Looks at it.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut on_devices = on_devices(path)?;
        let is_region = |(kind, _): &mut (&'static str, u64)| *kind == "mr";
        let regions = on_devices.extract_if(.., is_region).map(|(_, count)| count).sum();
        let descriptors = std::fs::read_dir("/proc/self/fd")?.count() as u64;
        Ok(Self { resident_kib: resident_kib()?, descriptors, regions, on_devices })
    }

    /// Returns the resources that come and go with connections, which must be the same whenever
    /// there are none.
    pub(super) fn without_memory(&self) -> (u64, &[(&'static str, u64)]) {
        (self.descriptors, &self.on_devices)
    }
}

impl fmt::Display for Holdings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8} KiB {:>3} descriptors", self.resident_kib, self.descriptors)?;
        for (kind, count) in &self.on_devices {
            write!(f, " {kind} {count}")?;
        }
        if !self.on_devices.is_empty() {
            write!(f, " mr {}", self.regions)?;
        }
        Ok(())
    }
}

fn on_devices(path: &Path) -> io::Result<Vec<(&'static str, u64)>> {
    match path {
        Path::Rdma { .. } => Ok(Resources::read().map_err(io::Error::other)?.into_counts()),
        _ => Ok(Vec::new()),
    }
}
