//! `cargo xtask hardware`: two hosts with RDMA devices, tried for about thirty minutes, and the
//! results as a file to send in.
//!
//! `rows` is the table, `host` runs scripts here and by ssh, and `outcome` judges their output.
//! `programs` are what they run, and `counters` are those of the devices. CI runs all of it between
//! two virtual machines, where speed says nothing: a missed bound is no failure there, and a row
//! that cannot run is one.

mod counters;
mod host;
mod outcome;
mod programs;
mod rows;

use std::ffi::OsString;
use std::fs;
use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use farcall_testkit::git;
use serde::{Deserialize, Serialize};

use self::counters::Counters;
use self::host::Host;
use self::outcome::{Outcome, Verdict};
pub(crate) use self::programs::DRY;
use self::programs::{TestPrograms, build_measured};
use self::rows::{Pair, ROWS, Row};
use crate::batch::{Job, RUNNING_PROGRAM};
use crate::interrupt;
use crate::kernel::Series;
use crate::rdma_place::BOOT_LIMIT;
use crate::setup::{self, Purpose};
use crate::vm::{self, SHARE_IN_GUEST, VmEnd, VmOptions};

/// Arguments of `cargo xtask hardware`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HardwareOptions {
    /// The other host, by the name that ssh knows. Its user needs no repository, but bash.
    #[arg(long, value_name = "HOST", required_unless_present = "list")]
    peer: Option<String>,
    /// The other host's address on the RDMA network, if ssh reaches it by another one.
    #[arg(long, value_name = "ADDRESS")]
    peer_address: Option<String>,
    /// The command that runs a script on the other host.
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes")]
    ssh: String,
    /// The file for the results.
    #[arg(long, value_name = "FILE", default_value = "hardware.json")]
    out: PathBuf,
    /// Run this row only. May be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Name the rows instead of running them.
    #[arg(long)]
    list: bool,
    /// Run the rows that take the other host's link down, drop its packets or reset its device.
    /// They need root's rights on both hosts.
    #[arg(long)]
    disruptive: bool,
    /// The folder with the programs on both hosts, instead of building and copying them.
    #[arg(long, value_name = "DIR", hide = true)]
    programs: Option<PathBuf>,
    /// The file that lists the test programs of both hosts, instead of building and copying them.
    #[arg(long, value_name = "FILE", hide = true, requires = "programs")]
    tests: Option<PathBuf>,
    /// The commit of those programs.
    #[arg(long, value_name = "COMMIT", hide = true)]
    commit: Option<String>,
    /// Small loads, for emulated devices.
    #[arg(long, hide = true)]
    short: bool,
}

/// The file of results.
#[derive(Debug, Serialize, Deserialize)]
struct Results {
    commit: String,
    rows: Vec<RowResult>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RowResult {
    row: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// Runs the rows of `options`, and writes the file anew after each.
///
/// # Errors
///
/// Returns an error if the hosts cannot be reached or the file cannot be written, and at the end if
/// a row failed.
pub(crate) fn run(options: &HardwareOptions) -> Result<()> {
    if let Some(name) = options.only.iter().find(|name| ROWS.iter().all(|row| row.name != **name)) {
        bail!("there is no row `{name}`; --list names them");
    }
    if options.list {
        for row in ROWS {
            println!("{:<12} {}", row.name, row.what);
        }
        return Ok(());
    }
    let pair = meet(options)?;
    let commit = options.commit.clone().map_or_else(git::commit, Ok)?;
    let mut results = Results { commit, rows: Vec::new() };
    let mut counters = None;
    for row in ROWS.iter().filter(|row| options.wants(row)) {
        println!("=== {}: {}", row.name, row.what);
        let outcome = match row.is_disruptive && !options.disruptive {
            true => Outcome::skipped("--disruptive was not given"),
            false => run_row(row, &pair, &mut counters),
        };
        println!("{outcome}");
        results.rows.push(RowResult { row: row.name.into(), outcome });
        let text = serde_json::to_string_pretty(&results)? + "\n";
        fs::write(&options.out, text)
            .with_context(|| format!("writing {}", options.out.display()))?;
        if interrupt::requested() {
            bail!("interrupted");
        }
    }
    println!("\nxtask: the results are in {}", options.out.display());
    results.ensure_none_failed()
}

impl Results {
    /// Returns an error with the failed rows and their reasons, if there are any.
    fn ensure_none_failed(&self) -> Result<()> {
        let failed: Vec<String> = self.rows.iter().filter_map(RowResult::failure).collect();
        ensure!(failed.is_empty(), "rows failed: {}", failed.join("; "));
        Ok(())
    }
}

impl RowResult {
    /// The row and the first line of its reason, if it failed.
    fn failure(&self) -> Option<String> {
        let Verdict::Failed(reason) = &self.outcome.verdict else { return None };
        Some(format!("{} ({})", self.row, reason.lines().next().unwrap_or_default()))
    }
}

impl HardwareOptions {
    fn wants(&self, row: &Row) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == row.name)
    }
}

/// Runs a row, and adds what the devices have counted meanwhile. `last` are the counters after the
/// row before.
fn run_row(row: &Row, pair: &Pair, last: &mut Option<[Counters; 2]>) -> Outcome {
    let before = match last.take().map_or_else(|| pair.counters(), Ok) {
        Ok(before) => before,
        Err(error) => return Outcome::failed(format!("before the row: {error:#}")),
    };
    let outcome = (row.run)(pair);
    let mut outcome = outcome.unwrap_or_else(|error| Outcome::failed(format!("{error:#}")));
    match pair.counters() {
        Ok(after) => {
            outcome.print_counters("counted", &before, &after);
            *last = Some(after);
        }
        // A host that is out of reach now was in reach before the row.
        Err(error) => outcome.fail(format!("after the row: {error:#}")),
    }
    outcome
}

/// Makes both hosts ready.
fn meet(options: &HardwareOptions) -> Result<Pair> {
    let peer = options.peer.as_deref().context("--peer is needed")?;
    let address = match &options.peer_address {
        Some(address) => address.clone(),
        None => address_of(peer)?,
    };
    let address = address.as_str();
    let built;
    let programs = match &options.programs {
        Some(folder) => folder,
        None => {
            setup::ensure(&[Purpose::Build])?;
            built = build_measured()?;
            &built
        }
    };
    let a = Host::here(address, programs)?;
    let mut b = Host::there(&options.ssh, peer, address, programs)?;
    if options.programs.is_none() {
        b.copy_programs()?;
    }
    let needs_tests = ROWS.iter().any(|row| row.needs_tests && options.wants(row));
    let tests = match &options.tests {
        Some(file) => Some(TestPrograms::read(file)?),
        None if needs_tests => Some(TestPrograms::build(&b)?),
        None => None,
    };
    let at_start = [Counters::read(&a)?, Counters::read(&b)?];
    Ok(Pair { a, b, tests, at_start, is_short: options.short })
}

/// Returns the address of a host that ssh knows as `peer`.
fn address_of(peer: &str) -> Result<String> {
    let host = peer.rsplit('@').next().unwrap_or(peer);
    let found = (host, 0).to_socket_addrs().ok().and_then(|mut found| found.next());
    let address = found.with_context(|| {
        format!("no address of {host}, which may be an alias of ssh: --peer-address names it")
    })?;
    Ok(address.ip().to_string())
}

/// The bound on all rows between two virtual machines, boots excluded.
const DRY_LIMIT: Duration = Duration::from_secs(1200);

/// Rows that need what Soft-RoCE lacks.
const NOT_EMULATED: &[&str] = &["bond", "mtu", "firmware"];

/// Runs all rows between two virtual machines with the `programs` of [`DRY`].
///
/// # Errors
///
/// Returns an error if a row fails, or one is skipped that the machines can run.
pub(crate) fn dry(programs: &[Job], kernel: Series) -> Result<()> {
    let share = tempfile::Builder::new().prefix("farcall-hardware-").tempdir()?;
    fs::write(share.path().join("between.sh"), include_str!("between.sh"))?;
    // A copy: a build beside this step may replace the file that this program was started from.
    fs::copy(RUNNING_PROGRAM, share.path().join("xtask")).context("copying this program")?;
    let folder = programs.first().and_then(|job| job.program.parent());
    let folder = folder.context("the build produced no programs")?;
    fs::write(share.path().join("tests.json"), serde_json::to_string(programs)?)?;
    let limit = BOOT_LIMIT + DRY_LIMIT;
    let mut machines = VmOptions::for_command(command(folder)?, kernel, limit);
    machines.hosts = 2;
    machines.share = Some(share.path().to_owned());
    let end = vm::run(&machines)?;
    let text = fs::read_to_string(share.path().join("hardware.json"))
        .context("the rows left no results")?;
    let results: Results = serde_json::from_str(&text)?;
    for RowResult { row, outcome } in &results.rows {
        if let Verdict::Skipped(reason) = &outcome.verdict {
            ensure!(NOT_EMULATED.contains(&row.as_str()), "row {row} was skipped: {reason}");
        }
    }
    match end {
        VmEnd::Exited(0) => Ok(()),
        VmEnd::Exited(status) => {
            results.ensure_none_failed()?;
            bail!("the rows ended with status {status}, see above")
        }
        VmEnd::Expired => bail!("the virtual machines hung, see above"),
        VmEnd::NoStatus => bail!("the virtual machines failed, see above"),
    }
}

/// The command of both virtual machines: the second one serves the first one's scripts.
fn command(programs: &Path) -> Result<Vec<OsString>> {
    let script = format!(
        r#"between="bash {SHARE_IN_GUEST}/between.sh {SHARE_IN_GUEST}"
        if [ "$FARCALL_VM_HOST" = 1 ]; then exec $between serve; fi
        {SHARE_IN_GUEST}/xtask hardware --peer 10.0.2.2 --ssh "$between call" \
            --programs "$1" --commit "$2" --disruptive --short \
            --tests {SHARE_IN_GUEST}/tests.json \
            --out {SHARE_IN_GUEST}/hardware.json
        status=$?
        $between over
        exit $status"#
    );
    let shell = ["bash".into(), "-c".into(), script.into(), "dry".into()];
    let arguments = [programs.into(), git::commit()?.into()];
    Ok(shell.into_iter().chain(arguments).collect())
}
