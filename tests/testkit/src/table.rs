//! The columns of a text table: their names, widths and sides stand once, for the heading and for
//! every row.

use std::fmt::{Display, Write as _};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

#[derive(Debug, Clone)]
struct Column {
    name: String,
    width: usize,
    side: Side,
}

/// The columns of a table. A space stands between two, and one more before text that follows a
/// number.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    columns: Vec<Column>,
    indent: usize,
}

impl Columns {
    /// No columns yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins every line with so many spaces.
    #[must_use]
    pub fn indented(self, indent: usize) -> Self {
        Self { indent, ..self }
    }

    /// Adds a column whose cells begin at its left side, as text does. A longer cell moves the rest
    /// of its line.
    #[must_use]
    pub fn left(self, name: impl Into<String>, width: usize) -> Self {
        self.with(name.into(), width, Side::Left)
    }

    /// Adds a column whose cells end at its right side, as numbers do.
    #[must_use]
    pub fn right(self, name: impl Into<String>, width: usize) -> Self {
        self.with(name.into(), width, Side::Right)
    }

    fn with(mut self, name: String, width: usize, side: Side) -> Self {
        self.columns.push(Column { name, width, side });
        self
    }

    /// The line of names, without a line break.
    #[must_use]
    pub fn heading(&self) -> String {
        self.line(self.columns.iter().map(|column| &column.name))
    }

    /// A line of cells, without a line break. Columns without a cell stay empty.
    #[must_use]
    pub fn line<T: Display>(&self, cells: impl IntoIterator<Item = T>) -> String {
        let mut line = " ".repeat(self.indent);
        let mut before = None;
        for (Column { width, side, .. }, cell) in self.columns.iter().zip(cells) {
            line.push_str(match (before, side) {
                (None, _) => "",
                (Some(Side::Right), Side::Left) => "  ",
                (Some(_), _) => " ",
            });
            before = Some(*side);
            // Formatted first: many types ignore a width.
            let cell = cell.to_string();
            // Writing to a string cannot fail.
            let _ = match side {
                Side::Left => write!(line, "{cell:<width$}"),
                Side::Right => write!(line, "{cell:>width$}"),
            };
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Columns {
        Columns::new().left("step", 6).right("seconds", 8).left("result", 8).left("note", 0)
    }

    #[test]
    fn cells_stand_below_their_names() {
        assert_eq!(columns().heading(), "step    seconds  result   note");
        assert_eq!(columns().line(["fmt", "1.2", "ok", "-"]), "fmt         1.2  ok       -");
        assert_eq!(columns().indented(2).line(["a"]), "  a");
    }

    #[test]
    fn no_line_ends_with_spaces_and_a_long_cell_is_shown_whole() {
        assert_eq!(columns().line(["fmt", "1.2", "ok"]), "fmt         1.2  ok");
        assert_eq!(columns().line(["portability", "1"]), "portability        1");
    }
}
