//! The table of behaviours and transports, and whether it is all green.

use std::fmt;

use farcall_testkit::table::Columns;

use super::report::{Cell, Report};
use super::transport::Transport;

/// Page that explains the differences.
const DIFFERENCES: &str = "docs/book/src/differences-from-tonic.md";

/// The width of a cell, which a space more separates from the next.
const CELL_WIDTH: usize = 8;

/// One transport's results.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) transport: Transport,
    pub(super) report: Report,
    /// Why its program did not end well.
    pub(super) failure: Option<String>,
}

/// All results.
#[derive(Debug, Default)]
pub(super) struct Table {
    columns: Vec<Column>,
}

/// Counts of cells.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    absent: usize,
}

impl Table {
    pub(super) fn add(&mut self, column: Column) {
        self.columns.push(column);
    }

    /// Returns true if every behaviour was shown that can be.
    pub(super) fn is_green(&self) -> bool {
        let is_shown = self.columns.iter().all(|column| self.count(column).failed == 0);
        let has_ended = self.columns.iter().all(|column| column.failure.is_none());
        is_shown && has_ended && !self.behaviours().is_empty()
    }

    /// Every behaviour that any transport knows.
    fn behaviours(&self) -> Vec<&str> {
        let mut behaviours = Vec::new();
        for (name, _) in self.columns.iter().flat_map(|column| &column.report.cells) {
            if !behaviours.contains(&name.as_str()) {
                behaviours.push(name.as_str());
            }
        }
        behaviours
    }

    fn count(&self, column: &Column) -> Counts {
        let mut counts = Counts::default();
        for behaviour in self.behaviours() {
            match column.report.cell(behaviour) {
                Cell::Passed(_) => counts.passed += 1,
                Cell::Absent(_) if column.transport == Transport::Tonic => counts.absent += 1,
                // Over our own transports, every behaviour has to be there.
                Cell::Absent(_) | Cell::Failed | Cell::Missing => counts.failed += 1,
            }
        }
        counts
    }

    fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let behaviours = self.behaviours().len();
        let (tonics, ours): (Vec<&Column>, Vec<&Column>) =
            self.columns.iter().partition(|column| column.transport == Transport::Tonic);
        if !ours.is_empty() {
            let (mut passed, mut failed) = (0, 0);
            for counts in ours.iter().map(|column| self.count(column)) {
                passed += counts.passed;
                failed += counts.failed;
            }
            let transports = ours.len();
            writeln!(
                f,
                "{behaviours} behaviours x {transports} transports: {passed} passed, {failed} \
                 failed"
            )?;
        }
        for column in tonics {
            let Counts { passed, failed, absent } = self.count(column);
            writeln!(
                f,
                "tonic itself: {passed} passed, {failed} failed, {absent} without a counterpart"
            )?;
        }
        for column in &self.columns {
            if let Some(failure) = &column.failure {
                writeln!(f, "{}: {failure}", column.transport)?;
            }
        }
        Ok(())
    }
}

/// Notes in the order of their first mention.
#[derive(Debug, Default)]
struct Footnotes(Vec<String>);

impl Footnotes {
    /// The mark of a note.
    fn mark(&mut self, note: String) -> usize {
        let known = self.0.iter().position(|known| *known == note);
        1 + known.unwrap_or_else(|| {
            self.0.push(note);
            self.0.len() - 1
        })
    }
}

fn text(cell: Cell, notes: &mut Footnotes) -> String {
    match cell {
        Cell::Passed(None) => "ok".to_owned(),
        Cell::Passed(Some(difference)) => {
            let note = format!("differs, see `{difference}` in {DIFFERENCES}");
            format!("ok [{}]", notes.mark(note))
        }
        Cell::Absent(reason) => format!("- [{}]", notes.mark(reason)),
        Cell::Failed => "FAILED".to_owned(),
        Cell::Missing => format!("FAILED [{}]", notes.mark("it reported nothing".to_owned())),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let behaviours = self.behaviours();
        const HEAD: &str = "behaviour";
        let names = behaviours.iter().copied().chain([HEAD]);
        let longest = names.map(str::len).max().unwrap_or_default();
        let names = self.columns.iter().map(|column| column.transport.to_string());
        let columns = Columns::new().left(HEAD, longest + 1);
        let columns = names.fold(columns, |columns, name| columns.left(name, CELL_WIDTH + 1));
        writeln!(f, "{}", columns.heading())?;
        let mut notes = Footnotes::default();
        for behaviour in behaviours {
            let cells = self.columns.iter().map(|column| column.report.cell(behaviour));
            let cells = cells.map(|cell| text(cell, &mut notes));
            let cells = [behaviour.to_owned()].into_iter().chain(cells);
            writeln!(f, "{}", columns.line(cells))?;
        }
        writeln!(f)?;
        for (index, note) in notes.0.iter().enumerate() {
            writeln!(f, "[{}] {note}", index + 1)?;
        }
        self.write_counts(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(transport: Transport, cells: &[(&str, Cell)]) -> Column {
        let cells = cells.iter().map(|(name, cell)| ((*name).to_owned(), cell.clone())).collect();
        Column { transport, report: Report { cells }, failure: None }
    }

    fn green() -> Table {
        let ok = Cell::Passed(None);
        let mut table = Table::default();
        table.add(column(Transport::Tcp, &[("one", ok.clone()), ("two", ok.clone())]));
        let differs = Cell::Passed(Some("words".into()));
        table.add(column(
            Transport::Tonic,
            &[("one", differs), ("two", Cell::Absent("none".into()))],
        ));
        table
    }

    #[test]
    fn the_table_shows_every_cell_and_its_notes() {
        let table = green();
        assert!(table.is_green());
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "behaviour  tcp       tonic");
        assert_eq!(lines[1], "one        ok        ok [1]");
        assert_eq!(lines[2], "two        ok        - [2]");
        assert!(lines[4].starts_with("[1] differs") && lines[4].contains("`words`"));
        assert_eq!(lines[5], "[2] none");
        assert_eq!(lines[6], "2 behaviours x 1 transports: 2 passed, 0 failed");
        assert_eq!(lines[7], "tonic itself: 1 passed, 0 failed, 1 without a counterpart");
    }

    #[test]
    fn a_behaviour_that_one_transport_does_not_have_is_a_failure() {
        let mut table = green();
        table.add(column(Transport::Unix, &[("one", Cell::Passed(None))]));
        assert!(!table.is_green());
        assert!(table.to_string().contains("FAILED [3]"));
        assert!(table.to_string().contains("2 transports: 3 passed, 1 failed"));
    }

    #[test]
    fn a_program_that_fails_is_a_failure_whatever_it_reported() {
        let mut table = green();
        table.columns[0].failure = Some("it crashed".into());
        assert!(!table.is_green());
        assert!(table.to_string().ends_with("tcp: it crashed\n"));
    }

    #[test]
    fn nothing_at_all_is_not_green() {
        assert!(!Table::default().is_green());
        let mut table = Table::default();
        table.add(column(Transport::Tcp, &[]));
        assert!(!table.is_green());
    }
}
