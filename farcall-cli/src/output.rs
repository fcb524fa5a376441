//! The output: lines and JSON, in which nothing of a peer can move a terminal's cursor.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::args::{Color, Format, Global};
use crate::failure::{Failure, code_name};

/// Writes the results on the standard output, and notes and failures on the standard error.
///
/// Every text passes [`escape`] or [`escape_json`] here, so that no command can forget it.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    is_colored: bool,
    verbosity: u8,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let is_colored = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
            }
        };
        Self { format: global.format, is_colored, verbosity: global.verbose }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Writes one line.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(std::io::stdout().lock(), "{}", escape(text))?)
    }

    /// Writes a text of the command's own, with its lines.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
    }

    /// Writes a value as JSON: indented for people, on one line for programs.
    pub(crate) fn value(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = match self.format {
            Format::Text => serde_json::to_string_pretty(value),
            Format::Json => serde_json::to_string(value),
        };
        let text = text.map_err(|error| {
            Failure::peer(format!("the message cannot be shown as JSON: {error}"))
        })?;
        Ok(writeln!(std::io::stdout().lock(), "{}", escape_json(&text))?)
    }

    /// Returns true if notes are written.
    pub(crate) fn has_notes(&self) -> bool {
        self.verbosity > 0
    }

    /// Writes a line on the standard error, with `-v` alone.
    pub(crate) fn note(&self, text: &str) {
        if self.has_notes() {
            // Notes are a courtesy: a closed standard error does not fail the command.
            let _ = writeln!(std::io::stderr().lock(), "{}", escape(text));
        }
    }

    /// Writes a failure on the standard error, each of its lines escaped.
    pub(crate) fn failure(&self, failure: &Failure) {
        let code = failure.code().map(code_name);
        let message = failure.message();
        if message.is_empty() && code.is_none() {
            return;
        }
        let text = if self.is_json() {
            let value = serde_json::json!({
                "error": { "code": code, "exit": failure.exit_code(), "message": message }
            });
            escape_json(&value.to_string()).into_owned()
        } else {
            let label = code.as_deref().unwrap_or("error");
            let lines: Vec<_> = message.split('\n').map(escape).collect();
            let (on, off) = if self.is_colored { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
            format!("{on}{label}{off}: {}", lines.join("\n  "))
        };
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }
}

/// Returns true if `character` could change more of a terminal than its own cell: control
/// characters, marks of direction, and characters without a width.
fn must_escape(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Writes the dangerous characters of a line as `\n` or `\u{1b}`.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    replaced(text, must_escape, |character, escaped| {
        escaped.extend(character.escape_default());
    })
}

/// Writes the dangerous characters of a JSON text as `\u001b`. The newlines between its values
/// stay: those inside of strings are escaped already.
fn escape_json(text: &str) -> Cow<'_, str> {
    let must_escape = |character| character != '\n' && must_escape(character);
    replaced(text, must_escape, |character, escaped| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    })
}

fn replaced(
    text: &str,
    must_escape: impl Fn(char) -> bool,
    write: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&must_escape) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match must_escape(character) {
            true => write(character, &mut escaped),
            false => escaped.push(character),
        }
    }
    escaped.into()
}

/// Returns a duration with the unit that fits it.
pub(crate) fn duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match nanos {
        0..1_000_000 => format!("{:.1} us", duration.as_secs_f64() * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", duration.as_secs_f64() * 1e3),
        _ => format!("{:.2} s", duration.as_secs_f64()),
    }
}

/// Returns a number with commas between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Widest column, in characters. A longer cell pushes its neighbours aside, and other rows do not
/// grow with it.
const WIDTH_MAX: usize = 60;

/// Returns the lines of a table of aligned columns, in which no text of a server moves the cursor.
/// Columns whose names begin with `#` have figures, which are aligned at the right.
pub(crate) fn table<const N: usize>(
    columns: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Vec<String> {
    let is_figure = columns.map(|name| name.starts_with('#'));
    let mut table = vec![columns.map(|name| name.trim_start_matches('#').to_owned())];
    table.extend(rows.map(|row| row.map(|cell| escape(&cell).into_owned())));
    let widths: Vec<usize> = (0..N)
        .map(|column| {
            let lengths = table.iter().map(|row| row[column].chars().count());
            lengths.max().unwrap_or_default().min(WIDTH_MAX)
        })
        .collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).zip(is_figure);
        let cells = cells.map(|((cell, width), is_figure)| match is_figure {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    table.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_escapes_and_newlines_are_spelled_out() {
        assert_eq!(escape("a\x1b[2Jb\nc\u{9b}1m\u{202e}"), r"a\u{1b}[2Jb\nc\u{9b}1m\u{202e}");
        let json = "{\n  \"a\u{9b}\u{e0041}\"\n}";
        assert_eq!(escape_json(json), "{\n  \"a\\u009b\\udb40\\udc41\"\n}");
        assert!(matches!(escape("größe → 1"), Cow::Borrowed(_)), "text as it is needs no copy");
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        let numbers = [0, 999, 1_000, 12_345, 1_234_567].map(count);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_dangerous_character(text in any::<String>()) {
            prop_assert!(!escape(&text).chars().any(must_escape));
        }

        #[test]
        fn escaped_json_means_the_same(text in any::<String>(), key in any::<String>()) {
            let value = serde_json::json!({ key: [text] });
            for written in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let escaped = escape_json(&written);
                let is_clean = !escaped.chars().any(|it| it != '\n' && must_escape(it));
                prop_assert!(is_clean);
                let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
                prop_assert_eq!(&read, &value);
            }
        }
    }
}
