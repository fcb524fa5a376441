//! The cost of a step: time, and processor time, which stays the same on a busy machine.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// The cost of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// From its start to its end.
    pub wall: Duration,
    /// The processor time of the processes that it started.
    pub cpu: Duration,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }
}

/// A step that is being measured.
#[derive(Debug)]
pub struct Meter {
    started: Instant,
    cpu: Duration,
}

impl Meter {
    /// Starts measuring.
    pub fn start() -> Self {
        Self { started: Instant::now(), cpu: cpu_of_children() }
    }

    /// Returns the cost since the start.
    pub fn read(&self) -> Cost {
        let cpu = cpu_of_children().saturating_sub(self.cpu);
        Cost { wall: self.started.elapsed(), cpu }
    }
}

/// The processor time of all children that have ended, and of theirs.
fn cpu_of_children() -> Duration {
    let taken = |time: TimeVal| {
        let micros = u64::try_from(time.tv_usec()).unwrap_or_default();
        let seconds = u64::try_from(time.tv_sec()).unwrap_or_default();
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map(|usage| taken(usage.user_time()) + taken(usage.system_time()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn processor_time_of_what_was_started_counts() {
        let meter = Meter::start();
        let counting = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", counting]).status().unwrap().success());
        let cost = meter.read();
        assert!(!cost.cpu.is_zero() && !cost.wall.is_zero(), "{cost:?}");
    }
}
