//! The matrix as text: a block a row as soon as it is there, and all rows in a table at the end.

use std::fmt;
use std::time::Duration;

use farcall::Code;
use farcall_testkit::table::Columns;

use super::conduct::Shown;
use super::rule::Line;

/// The verdict of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its rules held.
    Held,
    /// Otherwise, in so many ways.
    Broken(usize),
    /// It cannot be shown here.
    Impossible,
}

/// The block of a row.
pub(super) struct Block<'a>(pub(super) &'a Shown);

impl fmt::Display for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = Columns::new()
            .indented(2)
            .left("over", 5)
            .left("kind", 17)
            .right("ok", 6)
            .left("failed", 24)
            .right("wrong", 5)
            .right("longest", 9)
            .right("went on", 8)
            .right("again", 8);
        writeln!(f, "{}", columns.heading())?;
        for (column, kind, line) in &self.0.lines {
            let cells = [
                column.to_string(),
                kind.to_string(),
                line.answered.to_string(),
                failures(line),
                line.wrong.to_string(),
                seconds(Some(line.longest)),
                seconds(line.goes_on),
                seconds(line.again),
            ];
            writeln!(f, "{}", columns.line(cells))?;
        }
        for remark in &self.0.remarks {
            writeln!(f, "  {remark}")?;
        }
        for complaint in &self.0.complaints {
            writeln!(f, "  FAILED: {complaint}")?;
        }
        Ok(())
    }
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()))
}

fn failures(line: &Line) -> String {
    let mut pieces: Vec<String> = line
        .failed
        .iter()
        .map(|(code, count)| format!("{count} {}", name(Code::from_i32(*code))))
        .collect();
    if line.unseen > 0 {
        pieces.push(format!("({} unseen)", line.unseen));
    }
    if line.endless > 0 {
        pieces.push(format!("{} ENDLESS", line.endless));
    }
    if pieces.is_empty() { "-".to_owned() } else { pieces.join(" ") }
}

fn name(code: Code) -> String {
    match code {
        Code::Unavailable => "UNAVAILABLE".to_owned(),
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED".to_owned(),
        other => format!("{other:?}").to_uppercase(),
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Matrix {
    rows: Vec<(&'static str, Duration, Verdict)>,
}

impl Matrix {
    pub(super) fn add(&mut self, name: &'static str, took: Duration, verdict: Verdict) {
        self.rows.push((name, took, verdict));
    }

    /// Returns true if every row that can be shown has held, and there was one.
    pub(super) fn holds(&self) -> bool {
        let has = |wanted: fn(&Verdict) -> bool| self.rows.iter().any(|(_, _, it)| wanted(it));
        has(|it| *it == Verdict::Held) && !has(|it| matches!(it, Verdict::Broken(_)))
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, took, verdict) in &self.rows {
            let verdict = match verdict {
                Verdict::Held => "ok".to_owned(),
                Verdict::Broken(count) => format!("FAILED ({count})"),
                Verdict::Impossible => "cannot be shown here; not counted".to_owned(),
            };
            writeln!(f, "{name:<18} {:>6.1} s  {verdict}", took.as_secs_f64())?;
        }
        let count = |wanted: fn(&Verdict) -> bool| {
            self.rows.iter().filter(|(_, _, verdict)| wanted(verdict)).count()
        };
        let held = count(|it| *it == Verdict::Held);
        let broken = count(|it| matches!(it, Verdict::Broken(_)));
        let impossible = count(|it| *it == Verdict::Impossible);
        writeln!(f, "{held} held, {broken} failed, {impossible} cannot be shown here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_broken_row_is_enough_and_none_is_too_few() {
        let mut matrix = Matrix::default();
        assert!(!matrix.holds());
        matrix.add("impossible", Duration::ZERO, Verdict::Impossible);
        assert!(!matrix.holds());
        matrix.add("held", Duration::ZERO, Verdict::Held);
        assert!(matrix.holds());
        matrix.add("broken", Duration::ZERO, Verdict::Broken(2));
        assert!(!matrix.holds());
        assert!(matrix.to_string().ends_with("1 held, 1 failed, 1 cannot be shown here\n"));
    }
}
