//! The chosen rows, one after the other, and the verdict on all.

use std::time::Instant;

use super::conduct::show;
use super::judge::judge;
use super::row::{Quick, Row};
use super::rows::ROWS;
use super::scale::Scale;
use super::table::{Heading, LEGEND, Line};
use crate::RigError;
use crate::conductor::watchdog::Watchdog;
use crate::matrix::{Matrix, Selection, Verdict};

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
/// Returns an error if a row is asked for that does not exist. A row that cannot be run has failed.
pub fn matrix(selection: &Selection) -> Result<bool, RigError> {
    selection.check(|name| ROWS.iter().any(|row| row.name == name))?;
    let scale = if selection.is_quick { Scale::Quick } else { Scale::Full };
    let mut matrix = Matrix::start();
    println!("{Heading}");
    for row in ROWS.iter().filter(|row| is_chosen(selection, row)) {
        matrix.add(row.name, |watchdog| show_row(row, scale, watchdog));
    }
    print!("\n{LEGEND}\n\n{matrix}");
    Ok(matrix.holds())
}

fn is_chosen(selection: &Selection, row: &Row) -> bool {
    selection.has(row.name, row.quick == Quick::Shown)
}

fn show_row(row: &Row, scale: Scale, watchdog: &Watchdog) -> Verdict {
    let began = Instant::now();
    match show(row, scale, watchdog) {
        Ok(observed) => {
            let complaints = judge(row, scale, &observed);
            let (name, took) = (row.name, began.elapsed());
            let line = Line { name, observed: &observed, complaints: &complaints, took };
            println!("{line}");
            Verdict::on(&complaints)
        }
        Err(error) => {
            println!("{:<22} FAILED\n    {error}", row.name);
            Verdict::Broken(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows_are_unique() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..index].iter().all(|other| other.name != row.name), "{}", row.name);
        }
        let selection = Selection { rows: vec!["no-such".into()], is_quick: false };
        assert!(matrix(&selection).unwrap_err().to_string().contains("no-such"));
    }

    #[test]
    fn the_short_form_has_rows_and_a_name_chooses_any() {
        let quick = Selection { rows: Vec::new(), is_quick: true };
        assert!(ROWS.iter().any(|row| is_chosen(&quick, row)));
        for row in ROWS {
            let named = Selection { rows: vec![row.name.to_owned()], is_quick: true };
            assert_eq!(ROWS.iter().filter(|row| is_chosen(&named, row)).count(), 1);
        }
    }
}
