//! A row as text: a block as soon as it is there.

use std::fmt;
use std::time::Duration;

use farcall::Code;
use farcall_testkit::table::Columns;

use super::conduct::Shown;
use super::rule::Line;

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
