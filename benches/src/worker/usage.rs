//! The resources that a process has used, by Linux's counters.

use anyhow::{Context as _, Result};
use farcall_testkit::counters::ProcessStatus;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::{Deserialize, Serialize};

/// Counts the heap allocations of this process so far. Only the programs that are built for it have
/// one, since counting slows everything else down.
pub type AllocationCounter = fn() -> u64;

/// The resources that a process has used since its start, and its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Time in user mode, in microseconds.
    pub user_us: u64,
    /// Time in the kernel, in microseconds.
    pub system_us: u64,
    /// Number of context switches, voluntary or by preemption.
    pub switches: u64,
    /// Memory that it has now, in KiB.
    pub resident_kib: u64,
    /// The most that it ever had, in KiB: never less than what it has now, but at times some tens
    /// of KiB less than a reading before, since Linux counts for each processor apart.
    pub peak_kib: u64,
    /// Heap allocations, where they are counted.
    pub allocations: Option<u64>,
}

impl Usage {
    /// Returns the usage of this process.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does not report it.
    pub fn now(counter: Option<AllocationCounter>) -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).context("asking for the resources used")?;
        let status = ProcessStatus::own()?;
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        Ok(Self {
            user_us: micros(usage.user_time())?,
            system_us: micros(usage.system_time())?,
            switches: u64::try_from(switches)?,
            resident_kib: status.resident_kib()?,
            peak_kib: status.peak_kib()?,
            allocations: counter.map(|counter| counter()),
        })
    }

    /// Returns the usage since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Spent {
        Spent {
            user_us: self.user_us.saturating_sub(earlier.user_us),
            system_us: self.system_us.saturating_sub(earlier.system_us),
            switches: self.switches.saturating_sub(earlier.switches),
            peak_kib: self.peak_kib,
            allocations: self.allocations.zip(earlier.allocations).map(|(now, then)| now - then),
        }
    }
}

/// The cost of some work to a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Time in user mode, in microseconds.
    pub user_us: u64,
    /// Time in the kernel, in microseconds.
    pub system_us: u64,
    /// Number of context switches.
    pub switches: u64,
    /// The most memory that it had up to the end, in KiB.
    pub peak_kib: u64,
    /// Heap allocations, where they are counted.
    pub allocations: Option<u64>,
}

impl Spent {
    /// Time on a processor, in microseconds.
    #[must_use]
    pub fn cpu_us(&self) -> u64 {
        self.user_us + self.system_us
    }
}

fn micros(time: TimeVal) -> Result<u64> {
    let seconds = u64::try_from(time.tv_sec())?;
    Ok(seconds * 1_000_000 + u64::try_from(time.tv_usec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_usage() {
        let before = Usage::now(Some(|| 5)).unwrap();
        let mut sum = 0_u64;
        while Usage::now(None).unwrap().since(&before).cpu_us() < 1000 {
            sum = std::hint::black_box(sum + 1);
        }
        let spent = Usage::now(Some(|| 7)).unwrap().since(&before);
        assert!(spent.cpu_us() >= 1000, "{spent:?}");
        assert_eq!(spent.allocations, Some(2));
        assert_eq!(Usage::now(None).unwrap().since(&before).allocations, None);
    }

    #[test]
    fn the_peak_outlives_the_memory() {
        // More than the other tests of this process have at a time.
        let mib = 256;
        let memory = std::hint::black_box(vec![1_u8; mib << 20]);
        let with = Usage::now(None).unwrap();
        drop(memory);
        let without = Usage::now(None).unwrap();
        let most = u64::try_from(mib << 10).unwrap();
        assert!(with.resident_kib >= most && with.peak_kib >= with.resident_kib, "{with:?}");
        assert!(without.resident_kib < most && without.peak_kib >= most, "{without:?}");
    }
}
