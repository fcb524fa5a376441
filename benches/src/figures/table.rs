//! The table that the driver prints.

use std::fmt;

use farcall_testkit::table::Columns;

use super::figure::{Figure, Part};
use super::goals::Better;

/// Rows of figures, and of those that could not be measured.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
enum Row {
    Measured { number: String, figure: Box<Figure> },
    Failed { number: String, reason: String },
}

impl Table {
    /// Adds a figure.
    pub fn add(&mut self, number: &str, figure: Figure) {
        self.rows.push(Row::Measured { number: number.to_owned(), figure: Box::new(figure) });
    }

    /// Adds a figure that could not be measured.
    pub fn add_failure(&mut self, number: &str, reason: &str) {
        self.rows.push(Row::Failed { number: number.to_owned(), reason: reason.to_owned() });
    }

    /// Returns the number of figures that could not be measured.
    #[must_use]
    pub fn failed_count(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row, Row::Failed { .. })).count()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = columns();
        writeln!(f, "{}", columns.heading())?;
        for row in &self.rows {
            match row {
                Row::Failed { number, reason } => {
                    writeln!(f, "{number:<4} not measured: {reason}")?;
                }
                Row::Measured { number, figure } => {
                    writeln!(f, "{number:<4} {}", figure.title)?;
                    let mut lines = figure.parts.iter().map(|part| columns.line(cells(part)));
                    lines.try_for_each(|line| writeln!(f, "{line}"))?;
                }
            }
        }
        Ok(())
    }
}

fn columns() -> Columns {
    Columns::new()
        .left("", 4)
        .left("part", 16)
        .right("ship", 8)
        .right("aim", 8)
        .right("measured", 9)
        .left("range", 18)
        .left("standing", 14)
        .left("unit", 0)
}

fn cells(part: &Part) -> [String; 8] {
    let sign = match part.better {
        Better::Lower => "<=",
        Better::Higher => ">=",
    };
    [
        String::new(),
        part.part.to_string(),
        format!("{sign}{}", short(part.ship)),
        format!("{sign}{}", short(part.aim)),
        short(part.value),
        format!("{} to {}", short(part.range[0]), short(part.range[1])),
        part.standing.to_string(),
        part.unit.to_string(),
    ]
}

/// A number with three significant digits, or as many as its whole part has.
pub(crate) fn short(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 || value == 0.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Sides, goal};

    #[test]
    fn the_table_shows_figures_and_failures() {
        let goal = goal("T5").unwrap();
        let part = Part::new(&goal.parts[0], vec![1.5, 1.25, 2.0], Sides::new()).unwrap();
        let mut table = Table::default();
        table.add("T5", Figure::new(goal, vec![part], "abc", "a machine").unwrap());
        table.add_failure("T6", "the server died");
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("T5   messages/s"), "{text}");
        let pieces: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(pieces[..6], [">=1.20", ">=2.00", "1.50", "1.25", "to", "2.00"]);
        assert_eq!(pieces[6], "ship");
        assert_eq!(lines[3], "T6   not measured: the server died");
        assert_eq!(table.failed_count(), 1);
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 0.0667, 1.2345, 12.345, 123.45, 12345.6].map(short);
        assert_eq!(shown, ["0.00", "0.067", "1.23", "12.3", "123", "12346"]);
    }
}
