//! Counts of valgrind's callgrind: instructions of user space, and atomic operations. Both repeat,
//! where a clock does not.

use std::fs;
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};

/// Options that make callgrind count from the start, without the work of the simulated device
/// itself, and count atomic operations, each of which locks the bus.
const OPTIONS: [&str; 4] = [
    "--tool=callgrind",
    "--toggle-collect=*rpc_transport_rdma::sim::fabric::Fabric::simulate*",
    "--collect-atstart=yes",
    "--collect-bus=yes",
];

/// The counts of a program, or of one of its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    pub(crate) atomics: u64,
}

impl Counts {
    /// Parses the counts in the order in which callgrind writes them. It leaves out zeros at the
    /// end.
    fn parse(text: &str) -> Option<Self> {
        let mut counts = text.split_whitespace().map(str::parse);
        let instructions = counts.next()?.ok()?;
        let atomics = counts.next().map_or(Ok(0), |count| count).ok()?;
        Some(Self { instructions, atomics })
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let instructions = self.instructions + other.instructions;
        Self { instructions, atomics: self.atomics + other.atomics }
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let instructions = self.instructions.saturating_sub(other.instructions);
        Self { instructions, atomics: self.atomics.saturating_sub(other.atomics) }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

/// Runs this program again with `arguments`, and counts each of its threads, in the order in which
/// they were started. A program of one thread is counted as a whole.
///
/// # Errors
///
/// Returns an error if valgrind does not start, or the program fails.
pub(crate) fn count(arguments: &[&str]) -> Result<Vec<Counts>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("counts");
    let mut command = Command::new("valgrind");
    command.args(OPTIONS).arg("--separate-threads=yes");
    command.arg(format!("--callgrind-out-file={}", path.display()));
    command.arg(std::env::current_exe()?).args(arguments);
    let output = command.output().context("valgrind, which counts instructions, does not start")?;
    let Output { status, stderr, .. } = &output;
    ensure!(status.success(), "callgrind ended with {status}: {}", String::from_utf8_lossy(stderr));
    let counts = (1..).map(|thread| folder.path().join(format!("counts-{thread:02}")));
    let counts = counts.take_while(|path| path.exists()).map(|path| thread_counts(&path));
    let counts = counts.collect::<Result<Vec<_>>>()?;
    ensure!(!counts.is_empty(), "callgrind has written no counts");
    Ok(counts)
}

/// Returns the counts of the thread whose file lies at `path`.
fn thread_counts(path: &Path) -> Result<Counts> {
    let report = fs::read_to_string(path)?;
    let totals = report.lines().filter_map(|line| {
        let (name, counts) = line.split_once(": ")?;
        ["summary", "totals"].contains(&name).then(|| Counts::parse(counts))
    });
    match totals.flatten().next() {
        Some(counts) => Ok(counts),
        None => bail!("callgrind has written no sums to {}", path.display()),
    }
}
