//! One command of the README on one machine: how it ended, what it installed, and what its user
//! saw first.

use std::fs::{self, File};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded::{CommandEnd, Running};

use super::machine::{Machine, Packages};
use super::options::{ReadmeCommand, Suite, User};

/// Number of output lines to show.
const SHOWN_LINES: usize = 10;

/// One command that a user is to run on a suite.
#[derive(Debug)]
pub(super) struct Trial {
    suite: Suite,
    user: User,
    command: ReadmeCommand,
    pieces: Vec<String>,
}

/// The report of a trial.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) suite: Suite,
    pub(super) user: User,
    /// The command line.
    pub(super) line: String,
    pub(super) verdict: Verdict,
    pub(super) took: Duration,
    pub(super) installed: Installed,
    /// The first lines that the user saw.
    pub(super) first_lines: Vec<String>,
    /// The last ones, if it failed.
    pub(super) last_lines: Vec<String>,
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed(ExitStatus),
    /// It was still running at its bound.
    Hung,
    /// There was no machine for it, it could not be started, or this program was interrupted.
    Unknown(String),
}

/// The packages that a command has installed on its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Installed {
    /// Number of all packages.
    pub(super) all: usize,
    /// Those of them that it asked for by name.
    pub(super) by_name: Vec<String>,
}

impl Trial {
    pub(super) fn new(
        suite: Suite,
        user: User,
        command: ReadmeCommand,
        pieces: Vec<String>,
    ) -> Self {
        Self { suite, user, command, pieces }
    }

    /// Runs it on `machine`, with its output in a log.
    pub(super) fn run(&self, machine: &Machine) -> Report {
        self.try_run(machine).unwrap_or_else(|error| self.prevented(&error))
    }

    /// The report of a trial that `error` has prevented.
    pub(super) fn prevented(&self, error: &anyhow::Error) -> Report {
        self.report(Verdict::Unknown(format!("{error:#}")))
    }

    fn try_run(&self, machine: &Machine) -> Result<Report> {
        let log = machine.log(&self.command.to_string());
        let line = self.pieces.join(" ");
        eprintln!("xtask: {} as {}: `{line}`, see {}", self.suite, self.user, log.display());
        let before = machine.packages()?;
        let output = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let pieces: Vec<&str> = self.pieces.iter().map(String::as_str).collect();
        let mut command = machine.command(&pieces);
        command.stdout(output.try_clone()?).stderr(output);
        let started = Instant::now();
        let end = Running::start(&mut command)?.wait(self.command.limit())?;
        let mut report = self.report(match end {
            CommandEnd::Exited(status) if status.success() => Verdict::Passed,
            CommandEnd::Exited(status) => Verdict::Failed(status),
            CommandEnd::Expired => Verdict::Hung,
        });
        report.took = started.elapsed();
        report.installed = Installed::between(&before, &machine.packages()?);
        report.read(&log)?;
        Ok(report)
    }

    fn report(&self, verdict: Verdict) -> Report {
        Report {
            suite: self.suite,
            user: self.user,
            line: self.pieces.join(" "),
            verdict,
            took: Duration::ZERO,
            installed: Installed::default(),
            first_lines: Vec::new(),
            last_lines: Vec::new(),
        }
    }
}

impl Report {
    fn read(&mut self, log: &Path) -> Result<()> {
        let bytes = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let owned = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
        self.first_lines = owned(&lines[..lines.len().min(SHOWN_LINES)]);
        if self.verdict != Verdict::Passed {
            self.last_lines = owned(&lines[lines.len().saturating_sub(SHOWN_LINES)..]);
        }
        Ok(())
    }
}

impl ReadmeCommand {
    /// Several times what it takes from nothing on two cores; its own steps have bounds too.
    fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Demo => 3600,
            Self::Test => 10_800,
        })
    }
}

impl Installed {
    fn between(before: &Packages, after: &Packages) -> Self {
        let is_new = |name: &&String| !before.by_name.contains(name);
        Self {
            all: after.all.saturating_sub(before.all),
            by_name: after.by_name.iter().filter(is_new).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_was_not_installed() {
        let packages = |all, names: &[&str]| Packages {
            all,
            by_name: names.iter().map(|&name| name.to_owned()).collect(),
        };
        let installed =
            Installed::between(&packages(100, &["gcc"]), &packages(130, &["cpio", "gcc", "kmod"]));
        assert_eq!(installed.all, 30);
        assert_eq!(installed.by_name, ["cpio", "kmod"]);
    }

    #[test]
    fn the_end_of_the_output_is_kept_of_failures_only() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let lines: Vec<String> = (1..=25).map(|number| number.to_string()).collect();
        fs::write(&log, lines.join("\n")).unwrap();
        let trial = Trial::new(Suite::Sid, User::Root, ReadmeCommand::Demo, vec!["x".into()]);
        let mut report = trial.report(Verdict::Passed);
        report.read(&log).unwrap();
        assert_eq!((report.first_lines[0].as_str(), report.first_lines.len()), ("1", SHOWN_LINES));
        assert!(report.last_lines.is_empty());
        report.verdict = Verdict::Hung;
        report.read(&log).unwrap();
        assert_eq!(report.last_lines.last().unwrap(), "25");
    }
}
