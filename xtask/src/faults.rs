//! `cargo xtask faults`: the fault matrix, from a bare machine to its table.
//!
//! The rows and their rules are `farcall-faults`', in `tests/rig`; here it is built, and run in
//! one virtual machine, or in two for the rows that take two hosts. Never on this host, whatever
//! devices it has: the rows cut links and remove devices.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded;

use crate::batch::Job;
use crate::interrupt;
use crate::kernel::Series;
use crate::rdma_place::{BOOT_LIMIT, RdmaPlace};
use crate::rdma_programs::{RdmaProgram, Target};
use crate::setup::{self, Purpose};
use crate::vm::{self, VmEnd, VmOptions};

/// Arguments of `cargo xtask faults`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FaultsOptions {
    /// Show this row only. May be repeated.
    #[arg(long, value_name = "NAME")]
    row: Vec<String>,
    /// Name the rows instead of showing them.
    #[arg(long)]
    list: bool,
    /// Number of calls in the row `cancels`.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    cancels: u64,
    /// The guest's kernel.
    #[arg(long, value_enum, default_value_t = Series::V6_1)]
    kernel: Series,
}

/// The short rows, as one of the checks. The bound is several times what they take in emulation.
/// Fewer cancelled calls do not do: memory is flat once each size has been in use often enough.
pub(crate) const QUICK: &[RdmaProgram] =
    &[program(&["matrix", "--quick"], 400), program(&["cancels", "--calls", "2000"], 300)];

const fn program(arguments: &'static [&'static str], limit_seconds: u64) -> RdmaProgram {
    RdmaProgram {
        package: "farcall-rig",
        target: Target::Bin { name: "farcall-faults", test: "soak" },
        arguments,
        limit_seconds,
    }
}

/// The bound on the whole matrix of one host: a row takes 15 to 60 s.
const MATRIX_SECONDS: u64 = 1800;

/// The bound on 1,000 cancelled calls: measured in emulation they take a tenth.
const CANCELS_SECONDS: u64 = 300;

/// The bound on the rows of two hosts, boots excluded.
const TWO_HOSTS_LIMIT: Duration = Duration::from_secs(600);

/// The row that is a program of its own.
const CANCELS: &str = "cancels";

/// The row whose flipped bits may panic the kernel of the guest: 6.1 computes the checksum of a
/// packet whose length was flipped. A machine of its own keeps the other rows from it.
const CORRUPT: &str = "corrupt";

/// The longest that naming the rows may take.
const LIST_LIMIT: Duration = Duration::from_secs(10);

/// Shows the rows of `options`.
///
/// # Errors
///
/// Returns an error if something cannot be built or started, or if a row does not hold; what it
/// showed has been printed by then.
pub(crate) fn run(options: &FaultsOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build, Purpose::Vm])?;
    let place = RdmaPlace::Vm(options.kernel);
    let mut jobs = program(&[], MATRIX_SECONDS).build(&place.addresses())?;
    let job = jobs.pop().context("the build produced no program")?;
    let list = bounded::output(Command::new(&job.program).arg("list"), LIST_LIMIT)?;
    let list = Rows::parse(&list)?;
    if options.list {
        print!("{list}");
        return Ok(());
    }
    let chosen = list.chosen(&options.row)?;
    let mut failed = Vec::new();
    for here in jobs_here(&chosen, &job, options) {
        if note(place.run(&here)) {
            failed.push("one host");
        }
        if interrupt::requested() {
            bail!("interrupted");
        }
    }
    if chosen.iter().any(|row| row.hosts == 2) && note(two_hosts(&chosen, &job.program, options)) {
        failed.push("two hosts");
    }
    if failed.is_empty() { Ok(()) } else { bail!("rows of {} failed", failed.join(" and of ")) }
}

/// Shows an error at its place, since what comes after it runs all the same.
fn note(result: Result<()>) -> bool {
    result.inspect_err(|error| println!("FAILED: {error:#}")).is_err()
}

/// The rows of one host, by the machine that they share.
fn jobs_here(chosen: &[&Row], program: &Job, options: &FaultsOptions) -> Vec<Vec<Job>> {
    let rows: Vec<&Row> = chosen.iter().copied().filter(|row| row.hosts == 1).collect();
    let (alone, rows): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.name == CANCELS);
    let (last, first): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.name == CORRUPT);
    let matrix = |rows: &[&Row]| {
        let job = || Job { arguments: row_arguments("matrix", rows), ..program.clone() };
        (!rows.is_empty()).then(job)
    };
    let mut jobs: Vec<Job> = matrix(&first).into_iter().collect();
    if !alone.is_empty() {
        let count = options.cancels;
        let limit_seconds = CANCELS_SECONDS * count.div_ceil(1000);
        let arguments = vec![CANCELS.to_owned(), "--calls".to_owned(), count.to_string()];
        jobs.push(Job { arguments, limit_seconds, ..program.clone() });
    }
    let machines = [jobs, matrix(&last).into_iter().collect()];
    machines.into_iter().filter(|jobs| !jobs.is_empty()).collect()
}

fn two_hosts(chosen: &[&Row], program: &Path, options: &FaultsOptions) -> Result<()> {
    let rows: Vec<&Row> = chosen.iter().copied().filter(|row| row.hosts == 2).collect();
    let text = row_arguments("two-hosts", &rows).into_iter().map(OsString::from);
    let command = [program.as_os_str().to_owned()].into_iter().chain(text).collect();
    let limit = BOOT_LIMIT + TWO_HOSTS_LIMIT;
    let mut machines = VmOptions::for_command(command, options.kernel, limit);
    machines.hosts = 2;
    match vm::run(&machines)? {
        VmEnd::Exited(0) => Ok(()),
        VmEnd::Exited(status) => bail!("the rows ended with status {status}, see above"),
        VmEnd::Expired | VmEnd::NoStatus => bail!("the virtual machines failed, see above"),
    }
}

/// The arguments that show these rows.
fn row_arguments(command: &str, rows: &[&Row]) -> Vec<String> {
    let names = rows.iter().flat_map(|row| ["--row".to_owned(), row.name.clone()]);
    [command.to_owned()].into_iter().chain(names).collect()
}

/// A row, as the program names it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    name: String,
    hosts: u8,
    what: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rows(Vec<Row>);

impl Rows {
    fn parse(text: &str) -> Result<Self> {
        let row = |line: &str| {
            let mut fields = line.splitn(3, '\t');
            let (name, hosts, what) = (fields.next()?, fields.next()?, fields.next()?);
            Some(Row { name: name.into(), hosts: hosts.parse().ok()?, what: what.into() })
        };
        let rows = text
            .lines()
            .map(|line| row(line).with_context(|| format!("cannot parse a row: `{line}`")));
        rows.collect::<Result<_>>().map(Self)
    }

    /// The rows with these names; all when there are none.
    fn chosen(&self, names: &[String]) -> Result<Vec<&Row>> {
        if let Some(name) = names.iter().find(|name| self.0.iter().all(|row| row.name != **name)) {
            bail!("there is no row `{name}`; --list names them");
        }
        let is_chosen = |row: &&Row| names.is_empty() || names.contains(&row.name);
        Ok(self.0.iter().filter(is_chosen).collect())
    }
}

impl std::fmt::Display for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Row { name, hosts, what } in &self.0 {
            let hosts = if *hosts == 2 { " (two hosts)" } else { "" };
            writeln!(f, "{name:<18} {what}{hosts}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "a\t1\tfirst\nb\t2\tsecond\ncorrupt\t1\tthird\ncancels\t1\tfourth\n";

    fn job() -> Job {
        Job {
            name: "faults".into(),
            program: "/t/farcall-faults".into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            directory: "/".into(),
            limit_seconds: 60,
        }
    }

    fn options(cancels: u64) -> FaultsOptions {
        FaultsOptions { row: Vec::new(), list: false, cancels, kernel: Series::V6_1 }
    }

    #[test]
    fn rows_go_to_the_machines_that_they_take() {
        let rows = Rows::parse(LIST).unwrap();
        let all = rows.chosen(&[]).unwrap();
        let jobs = jobs_here(&all, &job(), &options(2500));
        let arguments = |jobs: &Vec<Job>| -> Vec<String> {
            jobs.iter().map(|job| job.arguments.join(" ")).collect()
        };
        let first = vec!["matrix --row a".to_owned(), "cancels --calls 2500".to_owned()];
        let second = vec!["matrix --row corrupt".to_owned()];
        assert_eq!(jobs.iter().map(arguments).collect::<Vec<_>>(), [first, second]);
        assert_eq!(jobs[0][1].limit_seconds, 3 * CANCELS_SECONDS);
        let second = rows.chosen(&["b".to_owned()]).unwrap();
        assert!(jobs_here(&second, &job(), &options(1)).is_empty());
        assert_eq!(row_arguments("two-hosts", &second).join(" "), "two-hosts --row b");
    }

    #[test]
    fn a_row_that_does_not_exist_is_refused() {
        let rows = Rows::parse(LIST).unwrap();
        assert!(rows.chosen(&["c".to_owned()]).unwrap_err().to_string().contains("`c`"));
        assert!(Rows::parse("no tabs").is_err());
    }
}
