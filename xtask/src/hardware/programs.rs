//! The programs of the rows: those that are measured, and tests that run on a host's own device.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::host::{Host, PROGRAMS, quoted};
use crate::batch::Job;
use crate::cargo;
use crate::rdma_place::REQUIRED_VARIABLE;
use crate::rdma_programs::{self, BUILD_LIMIT, RdmaProgram, SERVER_VARIABLE, Target};

/// The variable by which tests of the verbs know the address whose device they connect.
const ADDRESSES_VARIABLE: &str = "FARCALL_RDMA_ADDRS";

/// The tests of the verbs.
const VERBS: RdmaProgram = rdma_programs::VERBS[0];

/// The behaviours of every transport, over RDMA. The other programs of the suite need a cable that
/// they can cut, or the counters of Soft-RoCE.
const SUITE: RdmaProgram = rdma_programs::SUITE[0];

/// The programs of the rows, as tests are built.
pub(crate) const DRY: &[RdmaProgram] = &[
    RdmaProgram {
        package: "farcall-cli",
        target: Target::Bin { name: "farcall", test: "causes" },
        arguments: &[],
        limit_seconds: 0,
    },
    RdmaProgram {
        package: "farcall-benches",
        target: Target::Bin { name: "farcall-bench", test: "driver" },
        arguments: &[],
        limit_seconds: 0,
    },
    VERBS,
    SUITE,
];

/// Builds the programs as they are measured, and returns their folder.
///
/// # Errors
///
/// Returns an error if the build fails.
pub(super) fn build_measured() -> Result<PathBuf> {
    let [cli, bench] = PROGRAMS;
    let arguments = ["build", "--release", "--package", "farcall-cli", "--bin", cli];
    let arguments = [&arguments[..], &["--package", "farcall-benches", "--bin", bench]].concat();
    let built = cargo::executables(&arguments, BUILD_LIMIT)?;
    let file = built.iter().find(|it| it.name == cli).context("the build made no program")?;
    Ok(file.path.parent().context("a program is in no folder")?.to_owned())
}

/// Tests that run on the device of one host.
#[derive(Debug)]
pub(super) struct TestPrograms {
    verbs: Job,
    suite: Job,
    /// The copy of `verbs` on B.
    verbs_there: PathBuf,
}

/// The end of a test program.
#[derive(Debug)]
pub(super) struct Tested {
    pub(super) has_passed: bool,
    /// Tests that passed.
    pub(super) count: f64,
    pub(super) printed: String,
}

impl TestPrograms {
    /// Builds them, and copies to B what runs there.
    ///
    /// # Errors
    ///
    /// Returns an error if the build or the copy fails.
    pub(super) fn build(b: &Host) -> Result<Self> {
        let jobs = [VERBS, SUITE].map(|program| program.build(&Default::default()));
        let jobs = jobs.into_iter().collect::<Result<Vec<_>>>()?.concat();
        let mut programs = Self::among(&jobs)?;
        programs.verbs_there = b.copy(&programs.verbs.program, "verbs")?;
        Ok(programs)
    }

    /// Reads those in a file that a dry run has written. Both hosts have them at the same paths.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or has none.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).context("reading the list of tests")?;
        Self::among(&serde_json::from_str::<Vec<Job>>(&text)?)
    }

    fn among(jobs: &[Job]) -> Result<Self> {
        let find = |RdmaProgram { package, .. }: RdmaProgram| {
            let found = jobs.iter().find(|job| job.name.split(' ').next() == Some(package));
            found.cloned().with_context(|| format!("no tests of {package} were built"))
        };
        let verbs = find(VERBS)?;
        Ok(Self { verbs_there: verbs.program.clone(), verbs, suite: find(SUITE)? })
    }

    /// Runs the tests of the verbs on A.
    ///
    /// # Errors
    ///
    /// Returns an error if they do not end.
    pub(super) fn verbs(&self, a: &Host, arguments: &str) -> Result<Tested> {
        run(a, &self.verbs, &self.verbs.program, arguments)
    }

    /// Runs the tests of the verbs on B.
    ///
    /// # Errors
    ///
    /// Returns an error if they do not end.
    pub(super) fn verbs_there(&self, b: &Host, arguments: &str) -> Result<Tested> {
        run(b, &self.verbs, &self.verbs_there, arguments)
    }

    /// Runs the suite on A.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not end.
    pub(super) fn suite(&self, a: &Host, arguments: &str) -> Result<Tested> {
        run(a, &self.suite, &self.suite.program, arguments)
    }
}

/// Runs the program of `job` on the device of `host`. Both ends of its connections are there.
fn run(host: &Host, job: &Job, program: &Path, arguments: &str) -> Result<Tested> {
    let (address, limit) = (&host.address, job.limit_seconds);
    let script = format!(
        r#"cd {} 2>/dev/null || cd "$dir"
        export CARGO_MANIFEST_DIR=$PWD {REQUIRED_VARIABLE}=required
        export {SERVER_VARIABLE}={address} {ADDRESSES_VARIABLE}={address}
        timeout -s KILL {limit} {} {} {arguments} 2>&1 </dev/null
        echo "exit $?""#,
        quoted(&job.directory.display().to_string()),
        quoted(&program.display().to_string()),
        job.arguments.join(" "),
    );
    let printed = host.run(&script, Duration::from_secs(limit + 60))?;
    Ok(Tested::parse(printed))
}

impl Tested {
    fn parse(printed: String) -> Self {
        let has_passed = printed.trim_end().ends_with("\nexit 0");
        let results = printed.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
        let counts = results.filter_map(|line| line.split(' ').next()?.parse::<u32>().ok());
        let count = f64::from(counts.sum::<u32>());
        Self { has_passed: has_passed && count > 0.0, count, printed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_did_not_run_have_not_passed() {
        let parse = |count: u32, exit: u32| {
            let result = format!("test result: ok. {count} passed; 0 failed; 0 ignored");
            let tested = Tested::parse(format!("running\n{result}; finished\n\nexit {exit}\n"));
            (tested.has_passed, tested.count)
        };
        assert_eq!(parse(3, 0), (true, 3.0));
        assert_eq!(parse(3, 1), (false, 3.0));
        assert_eq!(parse(0, 0), (false, 0.0));
        assert!(!Tested::parse("exit 0".into()).has_passed);
    }
}
