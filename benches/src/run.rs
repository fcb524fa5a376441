//! Going through the figures.

use anyhow::{Result, bail};

use crate::driver::{Bench, Options, commit, machine};
use crate::figures::{Figure, Goal, Group, Results, Table};
use crate::{rdma, scale, tcp};

/// Measures the figures that are asked for, prints them as a table and writes them down.
///
/// # Errors
///
/// Returns an error if a figure could not be measured, whatever the others were. A goal that was
/// missed is no error: the table and the file say so.
pub fn run(options: &Options) -> Result<()> {
    let bench = Bench::new(options)?;
    let commit = options.commit.clone().unwrap_or_else(commit);
    let machine = machine();
    println!("{machine}, commit {commit}, {} rounds", bench.effort.round_count);
    let mut results = match &options.json {
        Some(file) if file.exists() => Results::read(file)?,
        _ => Results::default(),
    };
    let mut table = Table::default();
    for goal in options.goals() {
        eprintln!("measuring {}: {}", goal.number, goal.title);
        match measure(&bench, goal, &commit, &machine) {
            Ok(figure) => {
                table.add(goal.number, figure.clone());
                results.put(goal.number, figure);
                // Now, so that what was measured is not lost with what fails later.
                options.json.as_ref().map_or(Ok(()), |file| results.write(file))?;
            }
            Err(error) => table.add_failure(goal.number, &format!("{error:#}")),
        }
    }
    print!("{table}");
    match table.failed_count() {
        0 => Ok(()),
        1 => bail!("a figure could not be measured"),
        count => bail!("{count} figures could not be measured"),
    }
}

fn measure(bench: &Bench, goal: &Goal, commit: &str, machine: &str) -> Result<Figure> {
    let parts = match goal.group {
        Group::Tcp => tcp::measure(bench, goal)?,
        Group::Rdma => rdma::measure(bench, goal)?,
        Group::Scale | Group::ScaleRdma => scale::measure(bench, goal)?,
    };
    Figure::new(goal, parts, commit, machine)
}
