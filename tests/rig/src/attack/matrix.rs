//! The chosen rows, one after the other, and the verdict on all.

use std::time::Instant;

use super::conduct::show;
use super::judge::judge;
use super::row::{Quick, Row};
use super::rows::ROWS;
use super::table::{Heading, LEGEND, Line};
use super::{AttackError, Scale};
use crate::conductor::watchdog::Watchdog;

/// The rows to show, and their scale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Their names; all when there are none, or all that the short form has.
    pub rows: Vec<String>,
    /// Scale of each.
    pub scale: Scale,
}

impl Selection {
    fn check(&self) -> Result<(), AttackError> {
        let wrong = self.rows.iter().find(|name| ROWS.iter().all(|row| row.name != **name));
        wrong.map_or(Ok(()), |name| Err(AttackError::NoSuchRow(name.clone())))
    }

    fn has(&self, row: &Row) -> bool {
        if self.rows.is_empty() {
            self.scale == Scale::Full || row.quick == Quick::Shown
        } else {
            self.rows.iter().any(|name| name == row.name)
        }
    }
}

/// Names the rows.
pub fn list() {
    for row in ROWS {
        println!("{:<22} {}", row.name, row.what);
        println!("{:<22}   at most {} MiB: {}", "", row.bounds.growth_mib, row.bounds.why);
        if let Quick::Left(reason) = row.quick {
            println!("{:<22}   not in the short form: {reason}", "");
        }
    }
}

/// Shows the chosen rows; gives whether all of them held.
///
/// # Errors
///
/// When a row is asked for that does not exist. A row that cannot be run has failed.
pub fn matrix(selection: &Selection) -> Result<bool, AttackError> {
    selection.check()?;
    let watchdog = Watchdog::start();
    let (mut held, mut failed) = (0, Vec::new());
    let started = Instant::now();
    println!("{Heading}");
    for row in ROWS.iter().filter(|row| selection.has(row)) {
        watchdog.enter_row(row.name);
        let began = Instant::now();
        let complaints = match show(row, selection.scale, &watchdog) {
            Ok(observed) => {
                let complaints = judge(row, selection.scale, &observed);
                let took = began.elapsed();
                let line =
                    Line { name: row.name, observed: &observed, complaints: &complaints, took };
                println!("{line}");
                complaints
            }
            Err(error) => {
                println!("{:<22} FAILED\n    {error}", row.name);
                vec![error.to_string()]
            }
        };
        if complaints.is_empty() {
            held += 1;
        } else {
            failed.push(row.name);
        }
    }
    println!("\n{LEGEND}\n");
    let seconds = started.elapsed().as_secs();
    println!("{held} held, {} failed in {seconds} s: {}", failed.len(), failed.join(", "));
    Ok(held > 0 && failed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_a_wrong_one_is_refused() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..index].iter().all(|other| other.name != row.name), "{}", row.name);
        }
        let selection = Selection { rows: vec!["no-such".into()], scale: Scale::Full };
        assert!(selection.check().unwrap_err().to_string().contains("no-such"));
    }

    #[test]
    fn the_short_form_has_rows_and_a_name_chooses_any() {
        let quick = Selection { rows: Vec::new(), scale: Scale::Quick };
        assert!(ROWS.iter().any(|row| quick.has(row)));
        for row in ROWS {
            let named = Selection { rows: vec![row.name.to_owned()], scale: Scale::Quick };
            assert_eq!(ROWS.iter().filter(|row| named.has(row)).count(), 1);
        }
    }
}
