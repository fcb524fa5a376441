//! `cargo xtask mutants`: whether the tests of the pure machines notice a change of each line.
//!
//! `cargo mutants` changes one place after the other (an operator, a condition, what a function
//! returns) and runs the machine's own tests. A mutant that they do not notice is a missing
//! property, dead code, or stands with its reason in `.cargo/mutants.toml`. `machines` is the table
//! of what is mutated, `tree` makes the small package in which a mutant takes seconds.

mod machines;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use farcall_testkit::process::bounded::{CommandEnd, Running};
use farcall_testkit::table::Columns;
use serde::Deserialize;

use machines::{MACHINES, Machine};
use xtask::cargo;
use xtask::setup::{self, Purpose};

/// All mutants of a machine, on a slow machine.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

/// The least time that the tests of a mutant have, in seconds: they take one or two.
const TEST_SECONDS_MIN: &str = "10";

/// Inputs of a property test for each mutant.
const PROPERTY_CASES: &str = "64";

/// Schedules of what can happen to a channel's endpoints, for each mutant.
const SCHEDULES: &str = "500";

/// Folder of trees and results in the target folder.
const FOLDER: &str = "mutants";

/// Arguments of `cargo xtask mutants`.
#[derive(Debug, clap::Args)]
pub(crate) struct MutantsOptions {
    /// The machines to mutate; all of them without a name.
    machines: Vec<String>,
    /// Show the machines instead of mutating them.
    #[arg(long)]
    list: bool,
    /// Go on where an earlier run ended: leave out what that has noticed.
    #[arg(long)]
    iterate: bool,
    /// Test only this part of the mutants, for example `0/4`.
    #[arg(long, value_name = "PART")]
    shard: Option<String>,
}

/// The results of a machine's mutants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct MutantOutcome {
    caught: usize,
    missed: usize,
    timeout: usize,
    unviable: usize,
}

/// Mutates the machines that are asked for, one after the other, and prints the table.
///
/// # Errors
///
/// Returns an error if there is no such machine, `cargo mutants` is missing or fails, or if tests
/// did not notice a mutant.
pub(crate) fn run(options: &MutantsOptions) -> Result<()> {
    let unknown = |name: &&String| MACHINES.iter().all(|machine| machine.name != **name);
    if let Some(name) = options.machines.iter().find(unknown) {
        bail!("there is no machine `{name}`; `cargo xtask mutants --list` names them");
    }
    let is_chosen = |machine: &&Machine| {
        options.machines.is_empty() || options.machines.iter().any(|name| name == machine.name)
    };
    let chosen: Vec<&Machine> = MACHINES.iter().filter(is_chosen).collect();
    if options.list {
        chosen.iter().for_each(|machine| println!("{:10} {}", machine.name, machine.pattern()));
        return Ok(());
    }
    setup::ensure(&[Purpose::Build])?;
    let mut outcomes = Vec::new();
    for machine in chosen {
        outcomes.push((machine.name, mutate(machine, options)?));
    }
    print!("{}", table(&outcomes));
    let missed: usize = outcomes.iter().map(|(_, outcome)| outcome.missed).sum();
    ensure!(missed == 0, "the tests missed {missed} mutants; see target/{FOLDER}");
    Ok(())
}

fn mutate(machine: &Machine, options: &MutantsOptions) -> Result<MutantOutcome> {
    let workspace = std::env::current_dir().context("where the workspace is")?;
    let folder = workspace.join("target").join(FOLDER);
    let tree = tree::make(&workspace, &machine.of, &folder)?;
    let results = folder.join(machine.name);
    fs::create_dir_all(&results).with_context(|| format!("creating {}", results.display()))?;
    let mut command = cargo::command(["mutants", "--in-place", "--cap-lints=true"]);
    command.arg("--dir").arg(&tree).args(["--file", &machine.pattern()]);
    command.arg("--output").arg(&results);
    command.args(["--minimum-test-timeout", TEST_SECONDS_MIN]);
    command.arg("--config").arg(workspace.join(".cargo/mutants.toml"));
    command.args(options.iterate.then_some("--iterate"));
    command.args(options.shard.iter().flat_map(|shard| ["--shard", shard]));
    command.args(["--", "--lib", "--"]).args(machine.tests);
    command.env("CARGO_TARGET_DIR", tree.join("target"));
    // A mutant is noticed with the first input that shows it.
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0");
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    // And mostly by one of the first.
    command.env("PROPTEST_CASES", PROPERTY_CASES).env("FARCALL_SCHEDULES", SCHEDULES);
    // Its status says whether some were missed, which its results say too.
    let CommandEnd::Exited(_) = Running::start(&mut command)?.wait(LIMIT)? else {
        bail!("the mutants of {} took more than {} h", machine.name, LIMIT.as_secs() / 3600);
    };
    outcome(&results)
        .with_context(|| format!("mutating {}: is cargo-mutants installed?", machine.name))
}

/// Reads what became of the mutants of a machine, whose results are in `folder`. Those that an
/// earlier run had noticed count as caught. `cargo mutants` lists those that do not build among
/// them, so the names of these are kept from run to run.
fn outcome(folder: &Path) -> Result<MutantOutcome> {
    let results = folder.join("mutants.out");
    let file = results.join("outcomes.json");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let mut outcome: MutantOutcome = serde_json::from_str(&text)?;
    let names = |file: &Path| -> BTreeSet<String> {
        fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let kept = folder.join("unviable.txt");
    let unviable = &names(&kept) | &names(&results.join("unviable.txt"));
    let lines: String = unviable.iter().map(|name| format!("{name}\n")).collect();
    fs::write(&kept, lines).with_context(|| format!("writing {}", kept.display()))?;
    let earlier = names(&results.join("previously_caught.txt"));
    outcome.caught += earlier.difference(&unviable).count();
    Ok(outcome)
}

fn table(outcomes: &[(&str, MutantOutcome)]) -> String {
    let columns = Columns::new()
        .left("machine", 10)
        .right("viable", 7)
        .right("caught", 7)
        .right("missed", 7)
        .right("%", 6);
    let mut table = format!("{}\n", columns.heading());
    for (name, MutantOutcome { caught, missed, timeout, .. }) in outcomes {
        // A mutant that does not end was noticed by that.
        let caught = caught + timeout;
        let viable = caught + missed;
        let share = 100.0 * caught as f64 / viable.max(1) as f64;
        let numbers = [viable, caught, *missed].map(|number| number.to_string());
        let cells = [name.to_string()].into_iter().chain(numbers).chain([format!("{share:.1}")]);
        table.push_str(&columns.line(cells.collect::<Vec<_>>()));
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_with_those_of_earlier_runs() {
        let folder = tempfile::tempdir().unwrap();
        assert!(outcome(folder.path()).is_err());
        let results = folder.path().join("mutants.out");
        fs::create_dir(&results).unwrap();
        let text = r#"{"outcomes":[],"total_mutants":9,"missed":1,"caught":4,"timeout":2,
            "unviable":2,"success":0}"#;
        fs::write(results.join("outcomes.json"), text).unwrap();
        // The first run finds that `c` does not build, and the second has it among the caught.
        fs::write(results.join("unviable.txt"), "c\nd\n").unwrap();
        outcome(folder.path()).unwrap();
        fs::write(results.join("unviable.txt"), "d\n").unwrap();
        fs::write(results.join("previously_caught.txt"), "a\nb\nc\n").unwrap();
        let read = outcome(folder.path()).unwrap();
        assert_eq!(read, MutantOutcome { caught: 6, missed: 1, timeout: 2, unviable: 2 });
        let line = table(&[("calls", read)]).lines().nth(1).unwrap().to_owned();
        let pieces: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(pieces, ["calls", "9", "8", "1", "88.9"]);
    }
}
