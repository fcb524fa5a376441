//! The rows, one after the other.

use std::time::{Duration, Instant};

use super::FaultError;
use super::conduct::show;
use super::far_host::is_first;
use super::lab::{Lab, be_far_host};
use super::rows::{ROWS, Row, Scene};
use super::table::{Block, Matrix, Verdict};
use crate::conductor::watchdog::Watchdog;

/// The rows to show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only these; all when there are none.
    pub rows: Vec<String>,
    /// Only the short ones.
    pub quick: bool,
}

impl Selection {
    fn has(&self, row: &Row) -> bool {
        let is_named = self.rows.is_empty() || self.rows.iter().any(|name| name == row.name);
        is_named && (row.is_quick || !self.quick)
    }

    fn check(&self) -> Result<(), FaultError> {
        let is_there = |name: &&String| ROWS.iter().any(|row| row.name == **name);
        match self.rows.iter().find(|name| !is_there(name)) {
            Some(name) => Err(FaultError::NoSuchRow(name.clone())),
            None => Ok(()),
        }
    }
}

/// Prints the rows: name, machines it takes, and what happens.
pub fn list() {
    for row in ROWS {
        let hosts = match row.scene {
            Scene::Here(_) | Scene::Impossible(_) => 1,
            Scene::TwoHosts(_) => 2,
        };
        println!("{}\t{hosts}\t{}", row.name, row.what);
    }
    println!("cancels\t1\tlarge calls given up at random moments: nothing harmed, nothing left");
}

/// Shows the rows of one machine and prints what they show; true when every one holds.
///
/// # Errors
///
/// When the machine is not the virtual one, or has not what it takes.
pub fn matrix(selection: &Selection) -> Result<bool, FaultError> {
    selection.check()?;
    show_all(&mut Lab::on_one_host()?, |row| match row.scene {
        _ if !selection.has(row) => None,
        Scene::TwoHosts(_) => None,
        scene => Some(scene),
    })
}

/// The same for the rows of two machines: the first one serves and does what it is told, the second
/// one shows the rows. Which of them this is, the virtual machine says.
///
/// # Errors
///
/// As [`matrix`].
pub fn two_hosts(selection: &Selection) -> Result<bool, FaultError> {
    selection.check()?;
    if is_first() {
        return be_far_host().map(|()| true);
    }
    show_all(&mut Lab::on_two_hosts()?, |row| match row.scene {
        Scene::TwoHosts(plan) if selection.has(row) => Some(Scene::Here(plan)),
        _ => None,
    })
}

fn show_all(lab: &mut Lab, scene: impl Fn(&Row) -> Option<Scene>) -> Result<bool, FaultError> {
    let watchdog = Watchdog::start();
    let mut matrix = Matrix::default();
    let scenes = ROWS.iter().filter_map(|row| Some((row, scene(row)?)));
    for (row, scene) in scenes {
        println!("== {}: {}", row.name, row.what);
        watchdog.enter_row(row.name);
        let started = Instant::now();
        let shown = match scene {
            Scene::Here(plan) | Scene::TwoHosts(plan) => show(&plan, lab, &watchdog),
            Scene::Impossible(reason) => {
                println!("  cannot be shown here: {reason}\n");
                matrix.add(row.name, Duration::ZERO, Verdict::Impossible);
                continue;
            }
        };
        let Ok(shown) = shown.inspect_err(|error| println!("  FAILED: {error}")) else {
            matrix.add(row.name, started.elapsed(), Verdict::Broken(1));
            println!("\nthe rows after it are not shown, since the fault may still be there");
            break;
        };
        println!("{}", Block(&shown));
        matrix.add(row.name, started.elapsed(), verdict(&shown.complaints));
    }
    print!("{matrix}");
    Ok(matrix.holds())
}

fn verdict(complaints: &[String]) -> Verdict {
    match complaints.len() {
        0 => Verdict::Held,
        count => Verdict::Broken(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_a_wrong_one_is_refused() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..index].iter().all(|other| other.name != row.name), "{}", row.name);
        }
        let selection = Selection { rows: vec!["no-such".into()], quick: false };
        assert!(selection.check().unwrap_err().to_string().contains("no-such"));
    }

    #[test]
    fn the_short_form_has_rows_and_not_all() {
        let quick = Selection { quick: true, ..Default::default() };
        let count = ROWS.iter().filter(|row| quick.has(row)).count();
        assert!(count > 0 && count < ROWS.len());
    }

    #[test]
    fn nothing_is_broken_outside_of_the_virtual_machine() {
        if std::env::var_os("FARCALL_VM_HOST").is_none() {
            let refused = matrix(&Selection::default()).unwrap_err();
            assert!(matches!(refused, FaultError::NotInMachine), "{refused}");
        }
    }
}
